package sandbox

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"btrlab/internal/goast"
	"btrlab/internal/module"
	"btrlab/internal/study/grade"
)

// NoFilesError says that a folder has nothing that could be graded.
type NoFilesError struct {
	Dir, Want string
}

func (e *NoFilesError) Error() string { return fmt.Sprintf("%s has no %s", e.Dir, e.Want) }

// Sources lists the Go files of dir that are the student's solution: no tests.
func Sources(dir string) ([]string, error) {
	entries, err := Entries(dir)
	if err != nil {
		return nil, err
	}
	var l []string
	for _, e := range entries {
		n := e.Name()
		if !strings.HasSuffix(n, ".go") || strings.HasSuffix(n, "_test.go") || e.IsDir() {
			continue
		}
		if !e.Type().IsRegular() && strings.ContainsAny(n[:1], "._") {
			continue // an editor's, which the go tool does not see
		}
		l = append(l, filepath.Join(dir, n))
	}
	return l, nil
}

// Rules are what code must look like.
type Rules struct {
	Allowed []string            // packages that it may import
	May     map[string][]string // names that it may use of those that have more
	Entry   string              // the function that is called
	Want    string              // its declaration, for people
	// Shared says that Entry makes what tasks share: all its fields must be of package kit, where
	// the explorer sees their uses.
	Shared bool
	// Free is a program that makes its tasks itself: it has pointers of its own, and its tasks are
	// function literals, which change no plain variable from outside.
	Free bool
}

// KitPath is the package whose types tasks may share.
const KitPath = module.Path + "/labs/kit"

// Check reads the student's files and returns what the rules do not allow, a line each.
//
// Imports: only those in r.Allowed, so no sync, sync/atomic, time, unsafe or os; what waits must
// wait where the explorer sees it. For the same reason no go statement, channel or select, and no
// plain field in what tasks share: between a look at it and a change of it there is no scheduling
// point, so a race would never show. No variable of the package, which would outlive an execution
// of the explorer, no init function, no recover, which would stop the panic by which the explorer
// ends an execution, and no directive to the compiler or linker.
//
// Nothing is stored in a package either: not in its variables, nor in what they lead to. Where the
// grader hands out a pointer nothing is copied out of one or stored through it, since a request
// that is put back as it was would seem unused.
//
// What a kit.Var leads to (the elements of a slice, the nodes of a tree) may be plain; a Load of it
// counts as a Store of all. A value of package kit that has fields of its own is nowhere copied
// (typed.go).
//
// The files are read in a process with limits (limited.go). Files that are too much for it are bad.
func Check(ctx context.Context, root string, files []File, r Rules) (x Checked, err error) {
	exports, err := exported(ctx, root, r.Allowed)
	if err != nil {
		return x, err
	}
	a, err := ask(ctx, "check", request{Root: root, Files: files, Rules: r, Exports: exports})
	var much *LimitError
	switch {
	case errors.As(err, &much):
		return Checked{Bad: []string{much.Why}}, nil
	case err != nil:
		return x, err
	case a.Checked == nil:
		return x, errors.New("check has no answer")
	}
	return Checked{a.Checked.Bad, a.Checked.Untyped, a.Checked.Canon}, nil
}

// checkedText is Checked between two processes.
type checkedText struct {
	Bad            []string
	Untyped, Canon string
}

// check is Check in the limited process.
func check(q request) *checkedText {
	files, r := q.Files, q.Rules
	c := &checker{Rules: r, fset: token.NewFileSet(), types: map[string]ast.Expr{}, kit: map[string]bool{}, seen: map[string]bool{}}
	parsed := true
	var all []*ast.File
	for _, h := range files {
		f, err := parser.ParseFile(c.fset, h.Path, h.Data, parser.ParseComments)
		if err != nil {
			c.bad = append(c.bad, strings.ReplaceAll(err.Error(), filepath.Dir(h.Path)+string(filepath.Separator), ""))
			parsed = false
			continue
		}
		all = append(all, f)
	}
	c.typed(q.Exports, all)
	for _, f := range all {
		c.file(f)
	}
	switch {
	case !parsed:
	case c.made == nil:
		c.bad = append(c.bad, fmt.Sprintf("no func %s: want %s", r.Entry, r.Want))
	case r.Shared:
		c.result()
	}
	x := &checkedText{Bad: c.bad, Untyped: c.untyped}
	if len(c.bad) == 0 && c.untyped == "" {
		x.Canon = c.canon(files, all)
	}
	x.Bad = grade.Few(x.Bad)
	return x
}

// Checked is what Check says of files.
type Checked struct {
	Bad []string // what the rules do not allow
	// untyped is why the type checker has not understood the files, empty if it has: then what was
	// not found may be there, and the compiler must refuse them.
	untyped string
	canon   string // the same for the same code, see canon.go; empty unless all is well
}

// checker is what is known of a package while it is checked.
type checker struct {
	Rules
	fset  *token.FileSet
	bad   []string
	types map[string]ast.Expr // declared in the package, by name
	kit   map[string]bool     // names under which files import package kit
	made  *ast.FuncDecl       // declares the entry
	seen  map[string]bool     // types that fields or result have come to

	info    *types.Info
	untyped string // the first error of the type checker
}

func (c *checker) say(pos token.Pos, format string, a ...any) {
	p := c.fset.Position(pos)
	c.bad = append(c.bad, fmt.Sprintf("%s:%d: %s", filepath.Base(p.Filename), p.Line, fmt.Sprintf(format, a...)))
}

func (c *checker) file(f *ast.File) {
	if f.Name.Name == "main" {
		c.say(f.Name.Pos(), "package main, want a package that can be imported")
	}
	for _, i := range f.Imports {
		c.imports(i)
	}
	for _, g := range f.Comments {
		for _, x := range g.List {
			if strings.HasPrefix(x.Text, "//go:") || strings.HasPrefix(x.Text, "//line") || strings.HasPrefix(x.Text, "/*line") || strings.HasPrefix(x.Text, "//export") {
				c.say(x.Pos(), "has the directive %s", strings.Fields(x.Text)[0])
			}
		}
	}
	for _, d := range f.Decls {
		c.declares(d)
	}
	end := token.NoPos // of the last outermost function literal
	ast.Inspect(f, func(n ast.Node) bool {
		c.values(n)
		goast.Changed(n, c.stores)
		switch n := n.(type) {
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				c.stores(n.X)
			}
		case *ast.SelectorExpr:
			if may := c.May[c.pkg(n.X)]; may != nil && !slices.Contains(may, n.Sel.Name) {
				c.say(n.Pos(), "uses %s, want only %s", types.ExprString(n), strings.Join(may, ", "))
			}
		case *ast.FuncLit:
			if c.Free && n.Pos() >= end { // not in a literal that was looked at
				c.captures(n)
				end = n.End()
			}
		case *ast.GoStmt:
			c.say(n.Pos(), "has a go statement")
		case *ast.SelectStmt:
			c.say(n.Pos(), "has a select")
		case *ast.ChanType:
			c.say(n.Pos(), "has a channel")
		}
		return true
	})
}

// captures reports assignments in a function literal to variables that are declared outside of it.
// What a task changes so the explorer does not see: between a look at it and the change there is no
// scheduling point.
func (c *checker) captures(f *ast.FuncLit) {
	changes := func(x ast.Expr) {
		id := goast.Root(x)
		if id == nil {
			return
		}
		if v, ok := c.info.Uses[id].(*types.Var); ok && (v.Pos() < f.Pos() || v.Pos() >= f.End()) {
			c.say(x.Pos(), "changes %s, a plain variable from outside of the function, which the explorer does not see: want a kit.Word or a kit.Var", id.Name)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		goast.Changed(n, changes)
		return true
	})
}

// stores reports x, which is changed, if it is in a package: policy.Presets[0].Name.
func (c *checker) stores(x ast.Expr) {
	for at := x; at != nil; at = goast.Inside(at) {
		if s, ok := at.(*ast.SelectorExpr); ok && c.pkg(s.X) != "" {
			c.say(x.Pos(), "changes %s, or takes its address: it is not yours", types.ExprString(x))
			return
		}
	}
}

func (c *checker) imports(i *ast.ImportSpec) {
	p, _ := strconv.Unquote(i.Path.Value)
	if !slices.Contains(c.Allowed, p) {
		c.say(i.Pos(), "imports %q, want only %s", p, strings.Join(c.Allowed, ", "))
	}
	if p == KitPath {
		c.kit["kit"] = true
		if i.Name != nil {
			c.kit[i.Name.Name] = true
		}
	}
	if i.Name != nil && (i.Name.Name == "." || i.Name.Name == "_") {
		c.say(i.Pos(), "imports %q as %s", p, i.Name.Name)
	}
}

func (c *checker) declares(d ast.Decl) {
	switch d := d.(type) {
	case *ast.GenDecl:
		if d.Tok == token.VAR {
			where := "declare it in the function"
			if c.Shared {
				where = "keep state in the lock"
			}
			c.say(d.Pos(), "has a variable of the package, which outlives an execution: %s", where)
		}
		for _, x := range d.Specs {
			if x, ok := x.(*ast.TypeSpec); ok {
				c.types[x.Name.Name] = x.Type
			}
		}
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.Name == c.Entry {
			c.made = d
		}
		if d.Recv == nil && d.Name.Name == "init" {
			c.say(d.Pos(), "has an init function")
		}
	}
}

// result checks what the entry returns, which tasks share: a pointer to a struct.
func (c *checker) result() {
	if l := c.made.Type.Results; l != nil && len(l.List) == 1 {
		if p, ok := l.List[0].Type.(*ast.StarExpr); ok {
			if id, ok := p.X.(*ast.Ident); ok {
				if s, ok := c.types[id.Name].(*ast.StructType); ok {
					c.seen[id.Name] = true
					c.fields(s)
					return
				}
			}
		}
	}
	c.say(c.made.Pos(), "func %s does not return a pointer to a struct of this package: want %s", c.Entry, c.Want)
}

func (c *checker) fields(s *ast.StructType) {
	for _, f := range s.Fields.List {
		if c.ok(f.Type) {
			continue
		}
		what := types.ExprString(f.Type)
		name := what
		if len(f.Names) > 0 {
			name = f.Names[0].Name
		}
		c.say(f.Pos(), "field %s is a plain %s, which the explorer does not see: want kit.Var[%s]", name, what, what)
	}
}

// ok says whether tasks may share a field of type x: one of package kit, or a struct or array of
// such.
func (c *checker) ok(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.ParenExpr:
		return c.ok(x.X)
	case *ast.SelectorExpr:
		return c.isKit(x, "Mutex") || c.isKit(x, "Cond")
	case *ast.IndexExpr:
		return c.isKit(x.X, "Var")
	case *ast.ArrayType:
		return x.Len != nil && c.ok(x.Elt)
	case *ast.StructType:
		c.fields(x) // says itself what is wrong
		return true
	case *ast.Ident:
		t, ok := c.types[x.Name]
		if !ok || c.seen[x.Name] {
			return ok
		}
		c.seen[x.Name] = true
		return c.ok(t)
	}
	return false
}

func (c *checker) isKit(x ast.Expr, name string) bool {
	s, ok := x.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	id, ok := s.X.(*ast.Ident)
	return ok && c.kit[id.Name]
}
