// Package arch holds the rules of the house as data (rules.txt) and checks every package by them:
// imports run downward only, siblings do not know each other, the checker shares nothing with what
// it judges, and the write path does not go round the scheduler.
//
// Models go/build/deps_test.go: the rule file is the documentation, and the test reads it.
package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"sort"
	"strconv"
	"strings"

	"btrlab/internal/goast"
)

const modulePath = "btrlab"

// Rules is a parsed rule file.
type Rules struct {
	rooms   map[string]room
	forbids []forbid
	pure    map[string]bool
	stdonly map[int]bool
	modules []moduleRule
	bans    []ban
}

type room struct {
	level    int
	siblings map[string]bool
}

type forbid struct {
	pkg     string
	targets []string
	why     string
}

type moduleRule struct {
	path string
	pkgs []string
}

type ban struct {
	name  string
	areas []string
	what  map[string]bool
	allow map[string]map[string]bool // package -> what
	why   string
}

// Parse reads a rule file; errors name the line.
func Parse(text string) (*Rules, error) {
	r := &Rules{rooms: map[string]room{}, pure: map[string]bool{}, stdonly: map[int]bool{}}
	for i, line := range strings.Split(text, "\n") {
		rule, why, _ := strings.Cut(line, "#")
		f := strings.Fields(rule)
		if len(f) == 0 {
			continue
		}
		if err := r.add(f, strings.TrimSpace(why)); err != nil {
			return nil, fmt.Errorf("rules.txt:%d: %w", i+1, err)
		}
	}
	for name, rm := range r.rooms {
		for s := range rm.siblings {
			if o, ok := r.rooms[s]; !ok || o.level != rm.level {
				return nil, fmt.Errorf("rules.txt: room %s names %s, which is no room of level %d", name, s, rm.level)
			}
		}
	}
	return r, nil
}

func (r *Rules) add(f []string, why string) error {
	head, tail := f, []string(nil)
	for i, w := range f {
		if w == ":" {
			head, tail = f[:i], f[i+1:]
			break
		}
	}
	switch {
	case head[0] == "room" && len(head) == 3:
		level, err := strconv.Atoi(head[1])
		if err != nil {
			return fmt.Errorf("room level %q is no number", head[1])
		}
		if _, ok := r.rooms[head[2]]; ok {
			return fmt.Errorf("room %s is there twice", head[2])
		}
		r.rooms[head[2]] = room{level, set(tail)}
	case head[0] == "forbid" && len(head) == 2 && len(tail) > 0 && why != "":
		r.forbids = append(r.forbids, forbid{head[1], tail, why})
	case head[0] == "pure" && len(tail) == 0:
		for _, p := range head[1:] {
			r.pure[p] = true
		}
	case head[0] == "stdonly" && len(head) == 2:
		level, err := strconv.Atoi(head[1])
		if err != nil {
			return fmt.Errorf("level %q is no number", head[1])
		}
		r.stdonly[level] = true
	case head[0] == "module" && len(head) == 2 && len(tail) > 0:
		r.modules = append(r.modules, moduleRule{head[1], tail})
	case head[0] == "ban" && len(head) > 2 && len(tail) > 0 && why != "":
		r.bans = append(r.bans, ban{head[1], head[2:], set(tail), map[string]map[string]bool{}, why})
	case head[0] == "allow" && len(head) == 3 && len(tail) > 0 && why != "":
		for _, b := range r.bans {
			if b.name == head[1] {
				b.allow[head[2]] = set(tail)
				return nil
			}
		}
		return fmt.Errorf("allow names the ban %q, which is not above it", head[1])
	default:
		return fmt.Errorf("not a rule: %s", strings.Join(f, " "))
	}
	return nil
}

func set(words []string) map[string]bool {
	m := map[string]bool{}
	for _, w := range words {
		m[w] = true
	}
	return m
}

// under reports whether pkg is pattern, or lies below it when pattern ends in "/...".
func under(pkg, pattern string) bool {
	base, tree := strings.CutSuffix(pattern, "/...")
	return pkg == base || tree && strings.HasPrefix(pkg, base+"/")
}

func underAny(pkg string, patterns []string) bool {
	for _, p := range patterns {
		if under(pkg, p) {
			return true
		}
	}
	return false
}

// Package is the parsed non-test source of one package; Name is the path under internal/.
type Package struct {
	Name  string
	Files []*ast.File
}

// Violation is one broken rule and where.
type Violation struct {
	Pos  token.Position
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s", v.Pos, v.Text) }

// Check holds pkgs against the rules.
func (r *Rules) Check(fset *token.FileSet, pkgs []Package) []Violation {
	c := &checker{rules: r, fset: fset, graph: map[string][]edge{}}
	for _, p := range pkgs {
		c.imports(p)
	}
	for _, p := range pkgs {
		c.bans(p)
	}
	c.forbids()
	sort.Slice(c.out, func(i, j int) bool {
		a, b := c.out[i].Pos, c.out[j].Pos
		if a.Filename != b.Filename {
			return a.Filename < b.Filename
		}
		return a.Offset < b.Offset
	})
	return c.out
}

type edge struct {
	to  string
	pos token.Pos
}

type checker struct {
	rules *Rules
	fset  *token.FileSet
	graph map[string][]edge
	out   []Violation
}

func (c *checker) report(pos token.Pos, format string, args ...any) {
	c.out = append(c.out, Violation{c.fset.Position(pos), fmt.Sprintf(format, args...)})
}

// impure are the roots of the standard library that touch the world outside.
var impure = []string{"os/...", "net/...", "syscall/...", "sync/...", "log/..."}

func (c *checker) imports(p Package) {
	rm, known := c.rules.rooms[p.Name]
	if !known {
		c.report(p.Files[0].Package, "package %s has no room in internal/arch/rules.txt", p.Name)
	}
	for _, f := range p.Files {
		for _, spec := range f.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			inside, isOurs := strings.CutPrefix(path, modulePath+"/internal/")
			if !isOurs {
				c.foreign(p, rm, spec.Pos(), path)
				continue
			}
			c.graph[p.Name] = append(c.graph[p.Name], edge{inside, spec.Pos()})
			to, ok := c.rules.rooms[inside]
			switch {
			case !ok || !known:
			case c.rules.pure[p.Name] && to.level > 0:
				c.report(spec.Pos(), "%s is pure and imports %s, level %d", p.Name, inside, to.level)
			case to.level > rm.level:
				c.report(spec.Pos(), "%s, level %d, imports %s, level %d: imports run downward only", p.Name, rm.level, inside, to.level)
			case to.level == rm.level && !rm.siblings[inside]:
				c.report(spec.Pos(), "%s imports its sibling %s, which its room does not name", p.Name, inside)
			}
		}
	}
}

func (c *checker) foreign(p Package, rm room, pos token.Pos, path string) {
	if c.rules.pure[p.Name] && underAny(path, impure) {
		c.report(pos, "%s is pure and imports %s", p.Name, path)
	}
	first, _, _ := strings.Cut(path, "/")
	if !strings.Contains(first, ".") {
		return
	}
	granted := false
	for _, m := range c.rules.modules {
		if !under(path, m.path+"/...") {
			continue
		}
		if underAny(p.Name, m.pkgs) {
			granted = true
		} else {
			c.report(pos, "%s imports %s, which is for %s", p.Name, path, strings.Join(m.pkgs, ", "))
		}
	}
	if c.rules.stdonly[rm.level] && !granted {
		c.report(pos, "%s, level %d, imports %s: its level has the standard library only", p.Name, rm.level, path)
	}
}

// forbids follows imports to the end: a forbidden room must not be reached through a friend either.
func (c *checker) forbids() {
	for _, f := range c.rules.forbids {
		type step struct {
			pkg string
			pos token.Pos
			via string
		}
		seen := map[string]bool{f.pkg: true}
		var queue []step
		for _, e := range c.graph[f.pkg] {
			queue = append(queue, step{e.to, e.pos, f.pkg + " imports " + e.to})
		}
		for len(queue) > 0 {
			s := queue[0]
			queue = queue[1:]
			if seen[s.pkg] {
				continue
			}
			seen[s.pkg] = true
			if underAny(s.pkg, f.targets) {
				c.report(s.pos, "%s: %s", s.via, f.why)
				continue
			}
			for _, e := range c.graph[s.pkg] {
				queue = append(queue, step{e.to, s.pos, s.via + ", which imports " + e.to})
			}
		}
	}
}

func (c *checker) bans(p Package) {
	for _, b := range c.rules.bans {
		if !underAny(p.Name, b.areas) {
			continue
		}
		hit := func(pos token.Pos, what string) {
			kind, _, _ := strings.Cut(what, ":")
			if (b.what[what] || b.what[kind+":*"]) && !b.allow[p.Name][what] {
				c.report(pos, "%s has %s: %s", p.Name, what, b.why)
			}
		}
		vars := map[string]bool{}
		for _, f := range p.Files {
			scan(f, hit)
			packageVars(f, func(name *ast.Ident) {
				vars[name.Name] = true
				hit(name.Pos(), "var:"+name.Name)
			})
		}
		for _, f := range p.Files {
			writes(f, vars, hit)
		}
	}
}

// scan calls hit for everything in f that a ban can name.
func scan(f *ast.File, hit func(pos token.Pos, what string)) {
	local := map[string]string{} // name in this file -> import path
	for _, spec := range f.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		hit(spec.Pos(), "import:"+path)
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		local[name] = path
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			hit(n.Pos(), "syntax:go")
		case *ast.SelectStmt:
			hit(n.Pos(), "syntax:select")
		case *ast.ChanType:
			hit(n.Pos(), "syntax:chan")
		case *ast.SendStmt:
			hit(n.Pos(), "syntax:chan")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				hit(n.Pos(), "syntax:chan")
			}
		case *ast.SelectorExpr:
			hit(n.Pos(), "select:"+n.Sel.Name)
			// An identifier that the parser could not resolve in the file is a package (or a
			// package-level name of another file, which no import of this file is called).
			if x, ok := n.X.(*ast.Ident); ok && x.Obj == nil && local[x.Name] != "" {
				hit(n.Pos(), "use:"+local[x.Name]+"."+n.Sel.Name)
			}
		case *ast.CallExpr:
			if x, ok := n.Fun.(*ast.Ident); ok && x.Obj == nil {
				hit(n.Pos(), "builtin:"+x.Name)
			}
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && takesApart[f.Sel.Name] {
				if x, ok := f.X.(*ast.Ident); ok && x.Obj == nil && (local[x.Name] == "strings" || local[x.Name] == "bytes") {
					texts(n.Args, hit)
				}
			}
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				texts([]ast.Expr{n.X, n.Y}, hit)
			}
		case *ast.SwitchStmt:
			if n.Tag != nil {
				texts([]ast.Expr{n.Tag}, hit)
			}
		}
		return true
	})
}

// takesApart are the functions of strings and bytes that decide by a text, or make another of it.
// Those that cut it into lines are for layout.
var takesApart = map[string]bool{"Contains": true, "ContainsAny": true, "HasPrefix": true, "HasSuffix": true, "Cut": true, "CutPrefix": true,
	"CutSuffix": true, "Index": true, "IndexByte": true, "LastIndex": true, "Replace": true, "ReplaceAll": true, "TrimPrefix": true,
	"TrimSuffix": true, "Fields": true, "FieldsSeq": true, "EqualFold": true, "Count": true}

// said are the methods that make a sentence.
var said = map[string]bool{"Error": true, "Where": true}

// texts calls hit for the sentences in args: of an error and of a finding, made by a method, or a
// field that is one.
func texts(args []ast.Expr, hit func(pos token.Pos, what string)) {
	for _, a := range args {
		ast.Inspect(a, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				if f, ok := c.Fun.(*ast.SelectorExpr); ok && said[f.Sel.Name] && len(c.Args) == 0 {
					hit(c.Pos(), "text:"+f.Sel.Name)
				}
			}
			return true
		})
	}
}

// packageVars calls found for each variable of the package that f declares. Lock classes and error
// values are none: they are made once, by name.
func packageVars(f *ast.File, found func(name *ast.Ident)) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			for i, name := range v.Names {
				if name.Name != "_" && !(i < len(v.Values) && madeOnce(v.Values[i])) {
					found(name)
				}
			}
		}
	}
}

// madeOnce reports whether x is lockdep.NewClass(...) or errors.New(...).
func madeOnce(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := f.X.(*ast.Ident)
	return ok && (pkg.Name == "lockdep" && f.Sel.Name == "NewClass" || pkg.Name == "errors" && f.Sel.Name == "New")
}

// writes calls hit for each assignment in f to one of vars, which are the package's, or to a part
// of one.
func writes(f *ast.File, vars map[string]bool, hit func(pos token.Pos, what string)) {
	top := map[any]bool{} // the parser's objects; types would need every import
	for _, o := range f.Scope.Objects {
		top[o] = true
	}
	ast.Inspect(f, func(n ast.Node) bool {
		goast.Changed(n, func(x ast.Expr) {
			// Without an object the name is of another file of the package.
			if id := goast.Root(x); id != nil && vars[id.Name] && (id.Obj == nil || top[id.Obj]) {
				hit(id.Pos(), "set:"+id.Name)
			}
		})
		return true
	})
}

// ParseFiles parses the named files of one package; src gives their text, or nil to read them.
func ParseFiles(fset *token.FileSet, pkg string, names []string, src map[string]string) (Package, error) {
	p := Package{Name: pkg}
	for _, name := range names {
		var text any
		if src != nil {
			text = src[name]
		}
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return p, err
		}
		p.Files = append(p.Files, f)
	}
	return p, nil
}
