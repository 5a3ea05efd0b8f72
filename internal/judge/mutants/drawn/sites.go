package drawn

import (
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// Site is one small change of the code.
type Site struct {
	// ID names the site as long as its function and text stay: file, function, operator, and a
	// number among those that are alike.
	ID       string
	File     string // from the top of the module, with slashes
	Line     int
	Op       string // the operator
	Old, New string

	start, end int                // the bytes of the file that change
	fn         int                // the line that its function begins in
	text       func(n int) string // what stands there when the fault has number n
	nth        int                // its number in a build, from 1
}

// Dir is the package's folder, from the top of the module.
func (s *Site) Dir() string { return filepath.ToSlash(filepath.Dir(s.File)) }

// Find returns the sites of the packages in the given folders, of the files that this system builds
// without cgo, in the order of the files' names and their lines. top is the folder of the module.
func Find(top string, dirs []string) ([]*Site, error) {
	pkgs, err := list(top, dirs)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range pkgs {
		exports[p.ImportPath] = p.Export
	}
	var all []*Site
	for _, p := range pkgs {
		if p.DepOnly {
			continue
		}
		src, err := p.load(top, exports)
		if err != nil {
			return nil, err
		}
		for i := range src.trees {
			all = append(all, src.sites(i)...)
		}
	}
	slices.SortStableFunc(all, func(a, b *Site) int { return strings.Compare(a.File, b.File) })
	return all, nil
}

// Draw returns n of the sites that do not overlap, by a hash of the seed and their identity: a site
// that is drawn for one seed stays so while others come and go.
func Draw(sites []*Site, n int, seed string) []*Site {
	key := func(s *Site) string {
		sum := sha256.Sum256([]byte(seed + " " + s.ID))
		return string(sum[:])
	}
	keys := make(map[*Site]string, len(sites))
	for _, s := range sites {
		keys[s] = key(s)
	}
	order := slices.SortedFunc(slices.Values(sites), func(a, b *Site) int { return strings.Compare(keys[a], keys[b]) })
	var drawn []*Site
	for _, s := range order {
		if len(drawn) == n {
			break
		}
		if !slices.ContainsFunc(drawn, func(o *Site) bool { return o.File == s.File && o.start < s.end && s.start < o.end }) {
			drawn = append(drawn, s)
		}
	}
	return drawn
}

// finder collects the sites of one file.
type finder struct {
	file  string
	text  []byte
	tree  *ast.File
	src   *source
	fn    *ast.FuncDecl // the function that is walked
	found []*Site
	alike map[string]int
}

// sites are those of the i-th file.
func (s *source) sites(i int) []*Site {
	f := &finder{file: s.names[i], text: s.texts[i], tree: s.trees[i], src: s, alike: map[string]int{}}
	for _, d := range f.tree.Decls {
		fd, ok := d.(*ast.FuncDecl)
		if !ok || fd.Body == nil || describes[fd.Name.Name] {
			continue
		}
		f.fn = fd
		f.block(fd.Body.List, fd.Type.Results)
		f.walk(fd.Body, fd.Type.Results)
		f.typed(fd.Body)
	}
	return f.found
}

// describes are functions whose result is a text for people.
var describes = map[string]bool{"String": true, "Error": true, "Event": true, "Dump": true, "GoString": true}

// mute are packages and functions whose calls are texts or assertions: a fault in them is none of
// the code.
func mute(c *ast.CallExpr) bool {
	name := ""
	switch fun := c.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
		if name == "panic" || name == "print" || name == "println" {
			return true
		}
	case *ast.SelectorExpr:
		name = fun.Sel.Name
		if x, ok := fun.X.(*ast.Ident); ok && (x.Name == "fmt" || x.Name == "errors" || x.Name == "trace" || x.Name == "prose" ||
			x.Name == "lockdep" && strings.HasPrefix(name, "Might")) {
			return true
		}
	}
	return strings.HasPrefix(name, "Assert") || strings.HasPrefix(name, "assert") || strings.HasPrefix(name, "corrupt")
}

func (f *finder) at(p token.Pos) int { return f.src.fset.Position(p).Offset }

func (f *finder) textOf(n ast.Node) string { return string(f.text[f.at(n.Pos()):f.at(n.End())]) }

// add adds a site that replaces [from, to). What stands there is old with the fault off, new with
// it on.
func (f *finder) add(op string, from, to token.Pos, old, new string, text func(n int) string) {
	kind := f.file + ":" + f.fn.Name.Name + ":" + op + ":" + short(old)
	f.alike[kind]++
	f.found = append(f.found, &Site{ID: fmt.Sprintf("%s:%d", kind, f.alike[kind]), File: f.file, Line: f.src.fset.Position(from).Line, Op: op,
		Old: old, New: new, start: f.at(from), end: f.at(to), fn: f.src.fset.Position(f.fn.Pos()).Line, text: text})
}

// short is a text without spaces, cut to a length that still tells it from others.
func short(s string) string {
	s = strings.Join(strings.Fields(s), "")
	if len(s) > 48 {
		sum := sha256.Sum256([]byte(s))
		s = fmt.Sprintf("%s~%x", s[:40], sum[:3])
	}
	return s
}

// walk looks at everything inside n. results are those of the function that n is in.
func (f *finder) walk(n ast.Node, results *ast.FieldList) {
	ast.Inspect(n, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.CallExpr:
			if mute(x) {
				return false
			}
			f.call(x)
		case *ast.FuncLit:
			f.block(x.Body.List, x.Type.Results)
			f.walk(x.Body, x.Type.Results)
			return false
		case *ast.GenDecl:
			return x.Tok == token.VAR
		case *ast.BlockStmt:
			if x != n {
				f.block(x.List, results)
			}
		case *ast.CaseClause:
			f.block(x.Body, results)
		case *ast.IfStmt:
			c := f.textOf(x.Cond)
			f.add("negate", x.Cond.Pos(), x.Cond.End(), c, "!("+c+")", func(n int) string { return fmt.Sprintf("(%s) != faultIs(%d)", c, n) })
		case *ast.BinaryExpr:
			f.binary(x)
		case *ast.ReturnStmt:
			f.returned(x)
		case *ast.BranchStmt:
			if x.Label == nil && x.Tok == token.CONTINUE {
				f.add("branch", x.Pos(), x.End(), "continue", "break", func(n int) string {
					return fmt.Sprintf("if faultIs(%d) {\nbreak\n}\ncontinue", n)
				})
			}
		}
		return true
	})
}

// pick is an expression of any type that is a, or b with fault n on.
func pick(n int, a, b string) string { return fmt.Sprintf("faultPick(%d, %s, %s)", n, a, b) }

var opposite = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "=="}

func (f *finder) binary(x *ast.BinaryExpr) {
	all, a, b := f.textOf(x), f.textOf(x.X), f.textOf(x.Y)
	expr := func(op, new string, text func(n int) string) { f.add(op, x.Pos(), x.End(), all, new, text) }
	other := func(op, new string) { expr(op, new, func(n int) string { return pick(n, all, new) }) }
	switch x.Op {
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		new := a + " " + opposite[x.Op] + " " + b
		expr("bound", new, func(n int) string { return fmt.Sprintf("(!faultIs(%d) && %s || faultIs(%d) && %s)", n, all, n, new) })
	case token.EQL, token.NEQ:
		expr("equal", a+" "+opposite[x.Op]+" "+b, func(n int) string { return fmt.Sprintf("((%s) != faultIs(%d))", all, n) })
	case token.LAND:
		expr("operand", a, func(n int) string { return fmt.Sprintf("(%s && (faultIs(%d) || %s))", a, n, b) })
		expr("operand", b, func(n int) string { return fmt.Sprintf("((faultIs(%d) || %s) && %s)", n, a, b) })
	case token.LOR:
		expr("operand", a, func(n int) string { return fmt.Sprintf("(%s || !faultIs(%d) && (%s))", a, n, b) })
		expr("operand", b, func(n int) string { return fmt.Sprintf("(!faultIs(%d) && (%s) || %s)", n, a, b) })
	case token.OR, token.AND:
		other("bits", a)
		other("bits", b)
	case token.AND_NOT:
		other("bits", a)
	case token.ADD, token.SUB:
		if b == "1" {
			other("off by one", a)
		} else {
			other("arithmetic", a+map[token.Token]string{token.ADD: " - ", token.SUB: " + "}[x.Op]+b)
		}
	}
}

func (f *finder) call(x *ast.CallExpr) {
	fun, ok := x.Fun.(*ast.Ident)
	if !ok || fun.Name != "min" && fun.Name != "max" {
		return
	}
	all := f.textOf(x)
	new := map[string]string{"min": "max", "max": "min"}[fun.Name] + all[3:]
	f.add("extreme", x.Pos(), x.End(), all, new, func(n int) string { return pick(n, all, new) })
}

func (f *finder) returned(x *ast.ReturnStmt) {
	for _, r := range x.Results {
		id, ok := r.(*ast.Ident)
		switch {
		case !ok:
		case id.Name == "true":
			f.add("constant", r.Pos(), r.End(), "return true", "return false", func(n int) string { return fmt.Sprintf("!faultIs(%d)", n) })
		case id.Name == "false":
			f.add("constant", r.Pos(), r.End(), "return false", "return true", func(n int) string { return fmt.Sprintf("faultIs(%d)", n) })
		case id.Name == "err":
			f.add("error", r.Pos(), r.End(), "return err", "return nil", func(n int) string { return fmt.Sprintf("faultPick[error](%d, err, nil)", n) })
		}
	}
}

// simple says that a statement can be left out, or change places with its neighbour, and the rest
// is still a program.
func simple(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		c, ok := s.X.(*ast.CallExpr)
		return ok && !mute(c)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.IncDecStmt:
		return true
	case *ast.DeferStmt:
		return !mute(s.Call)
	}
	return false
}

// block looks at the statements of a block as a list.
func (f *finder) block(list []ast.Stmt, results *ast.FieldList) {
	for i, s := range list {
		text := f.textOf(s)
		if simple(s) {
			f.add("drop", s.Pos(), s.End(), text, "", func(n int) string { return fmt.Sprintf("if !faultIs(%d) {\n%s\n}", n, text) })
		}
		if a, ok := s.(*ast.AssignStmt); ok && (a.Tok == token.ADD_ASSIGN || a.Tok == token.SUB_ASSIGN) {
			new := f.textOf(a.Lhs[0]) + map[token.Token]string{token.ADD_ASSIGN: " -= ", token.SUB_ASSIGN: " += "}[a.Tok] + f.textOf(a.Rhs[0])
			f.add("arithmetic", s.Pos(), s.End(), text, new, func(n int) string {
				return fmt.Sprintf("if faultIs(%d) {\n%s\n} else {\n%s\n}", n, new, text)
			})
		}
		if i > 0 && simple(s) && simple(list[i-1]) {
			before := f.textOf(list[i-1])
			f.add("swap", list[i-1].Pos(), s.End(), before+"; "+text, text+"; "+before, func(n int) string {
				return fmt.Sprintf("if faultIs(%d) {\n%s\n%s\n} else {\n%s\n%s\n}", n, text, before, before, text)
			})
		}
		if _, ends := s.(*ast.ReturnStmt); i > 0 && !ends {
			out := f.leave(results)
			f.add("early return", s.Pos(), s.Pos(), "", out+" before "+short(text), func(n int) string {
				return fmt.Sprintf("if faultIs(%d) {\n%s\n}\n", n, out)
			})
		}
	}
}

// leave is a return of zero values.
func (f *finder) leave(results *ast.FieldList) string {
	if results == nil || len(results.List) == 0 || len(results.List[0].Names) > 0 {
		return "return"
	}
	var values []string
	for _, r := range results.List {
		values = append(values, "*new("+f.textOf(r.Type)+")")
	}
	return "return " + strings.Join(values, ", ")
}
