package sandbox

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// The rules about values ask the type checker: an expression in parentheses, an alias, a name that
// hides another and a copy by range or in a literal are told from what they look like.

// exports are the files with the export data of packages, by root and path: the go tool makes them,
// for the build needs them as well.
var exports struct {
	sync.Mutex
	files map[string]string
}

// exported are the files with the export data of the packages that a lab may import, by path.
func exported(ctx context.Context, root string, paths []string) (files map[string]string, err error) {
	exports.Lock()
	defer exports.Unlock()
	var missing []string
	for _, p := range paths {
		if exports.files[root+"\n"+p] == "" {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		c := command(ctx, root, "go", append([]string{"list", "-export", "-f", "{{.ImportPath}}\t{{.Export}}", "--"}, missing...)...)
		out, err := c.Output()
		switch {
		case errors.Is(err, exec.ErrNotFound):
			return nil, errNoGo
		case err != nil:
			why := ""
			if x, ok := err.(*exec.ExitError); ok {
				why = "\n" + string(x.Stderr)
			}
			return nil, fmt.Errorf("build the packages of the lab: %w%s", err, why)
		}
		if exports.files == nil {
			exports.files = map[string]string{}
		}
		for line := range strings.Lines(string(out)) {
			path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
			exports.files[root+"\n"+path] = file
		}
	}
	files = map[string]string{}
	for _, p := range paths {
		files[p] = exports.files[root+"\n"+p]
	}
	return files, nil
}

// typed asks the type checker about the files. What does not compile is left for the compiler to
// say; untyped keeps that it is so.
func (c *checker) typed(exports map[string]string, files []*ast.File) {
	lookup := func(path string) (io.ReadCloser, error) {
		file := exports[path]
		if file == "" {
			return nil, fmt.Errorf("%q is not for this lab", path)
		}
		return os.Open(file)
	}
	c.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Instances: map[*ast.Ident]types.Instance{}, Implicits: map[ast.Node]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(c.fset, "gc", lookup), Error: func(err error) {
		if c.untyped == "" {
			c.untyped = err.Error()
		}
	}}
	_, _ = conf.Check("student", c.fset, files, c.info) // Error has seen what it returns
}

// pkg is the path of the package that an expression names, empty for none.
func (c *checker) pkg(x ast.Expr) string {
	if id, ok := ast.Unparen(x).(*ast.Ident); ok {
		if p, ok := c.info.Uses[id].(*types.PkgName); ok {
			return p.Imported().Path()
		}
	}
	return ""
}

// builtin is the name of the builtin function that a call's function is, empty for none.
func (c *checker) builtin(fun ast.Expr) string {
	if id, ok := ast.Unparen(fun).(*ast.Ident); ok {
		if b, ok := c.info.Uses[id].(*types.Builtin); ok {
			return b.Name()
		}
	}
	return ""
}

// guarded is the type of package kit that a value of type t has in it, nil for none: one with a
// field of its own, as a lock, a checked field or an operation has, which is used where it is. A
// Range or a Profile may be copied.
func guarded(t types.Type) *types.Named { return guardedIn(t, map[types.Type]bool{}) }

func guardedIn(t types.Type, seen map[types.Type]bool) *types.Named {
	if t == nil || seen[t] {
		return nil
	}
	seen[t] = true
	t = types.Unalias(t)
	if n, ok := t.(*types.Named); ok {
		if s, ok := n.Underlying().(*types.Struct); ok && inKit(n) {
			for i := range s.NumFields() {
				if !s.Field(i).Exported() {
					return n
				}
			}
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Struct:
		for i := range u.NumFields() {
			if n := guardedIn(u.Field(i).Type(), seen); n != nil {
				return n
			}
		}
	case *types.Array:
		return guardedIn(u.Elem(), seen)
	}
	return nil
}

func inKit(n *types.Named) bool { return n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == KitPath }

// owned are the types of package kit that a student makes; of the others the grader hands out
// pointers.
var owned = map[string]bool{"Mutex": true, "Cond": true, "Var": true}

// lent is the type of package kit that the grader has handed out and t is, or points to; nil for
// none.
func lent(t types.Type) *types.Named {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	if n := guarded(t); n != nil && !owned[n.Obj().Name()] {
		return n
	}
	return nil
}

// copied reports the expressions that are values of a guarded type which exist elsewhere: all but
// literals and what a function has made.
func (c *checker) copied(l ...ast.Expr) {
	if c.Free {
		return
	}
	for _, x := range l {
		x = ast.Unparen(x)
		if kv, ok := x.(*ast.KeyValueExpr); ok {
			c.copied(kv.Key, kv.Value)
			continue
		}
		tv, ok := c.info.Types[x]
		if !ok || !tv.IsValue() {
			continue
		}
		switch e := x.(type) {
		case *ast.CompositeLit:
			continue
		case *ast.CallExpr:
			if c.info.Types[e.Fun].IsType() && len(e.Args) == 1 {
				c.copied(e.Args[0])
			}
			continue // a function that returns one is reported where it is declared
		}
		c.copies(x.Pos(), types.ExprString(x), tv.Type)
	}
}

// copies reports what, which is a value of type t that is copied, if it may not be.
func (c *checker) copies(pos token.Pos, what string, t types.Type) {
	n := guarded(t)
	switch {
	case n == nil || c.Free:
	case owned[n.Obj().Name()]:
		c.say(pos, "copies %s, in which is a kit.%s: a copy is another one", what, n.Obj().Name())
	default:
		c.say(pos, "copies %s: what the grader has handed out is used by its methods only", what)
	}
}

// overwritten reports assignments to all of what the grader has handed out.
func (c *checker) overwritten(l ...ast.Expr) {
	for _, x := range l {
		if x == nil {
			continue
		}
		if t := c.info.TypeOf(x); t != nil && !c.Free {
			if n := guarded(t); n != nil && !owned[n.Obj().Name()] {
				c.copies(x.Pos(), types.ExprString(x), t)
			}
		}
	}
}

// values looks at a node for copies of guarded values, and for what leaves the sight of the rules
// by way of an interface or a type parameter.
func (c *checker) values(n ast.Node) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		c.copied(n.Rhs...)
		if n.Tok == token.ASSIGN {
			c.overwritten(n.Lhs...)
			for i := range n.Rhs {
				if len(n.Lhs) == len(n.Rhs) {
					c.hidden(n.Rhs[i], c.info.TypeOf(n.Lhs[i]))
				}
			}
		}
	case *ast.RangeStmt:
		for _, x := range []ast.Expr{n.Key, n.Value} {
			if x != nil {
				if t := c.info.TypeOf(x); t != nil {
					c.copies(x.Pos(), types.ExprString(x), t)
				}
			}
		}
	case *ast.ValueSpec:
		c.copied(n.Values...)
		if n.Type != nil {
			for _, x := range n.Values {
				c.hidden(x, c.info.TypeOf(n.Type))
			}
		}
	case *ast.ReturnStmt:
		c.copied(n.Results...)
	case *ast.CompositeLit:
		c.copied(n.Elts...)
		c.elements(n)
	case *ast.CallExpr:
		c.call(n)
	case *ast.FuncDecl:
		c.signature(n.Recv, n.Type)
	case *ast.FuncLit:
		c.signature(nil, n.Type)
	case *ast.Ident:
		c.instance(n)
	}
}

// call looks at the arguments of a call or a conversion.
func (c *checker) call(n *ast.CallExpr) {
	switch c.builtin(n.Fun) {
	case "recover":
		c.say(n.Pos(), "has a recover: the explorer ends executions by a panic")
		return
	case "append", "copy", "clear":
		if s, ok := c.info.TypeOf(n.Args[0]).Underlying().(*types.Slice); ok {
			c.copies(n.Args[0].Pos(), "the elements of "+types.ExprString(n.Args[0]), s.Elem())
		}
		return
	case "len", "cap", "new", "make":
		return
	case "panic":
		c.hidden(n.Args[0], types.NewInterfaceType(nil, nil))
		return
	}
	fun := c.info.Types[n.Fun]
	c.copied(n.Args...)
	if fun.IsType() {
		for _, x := range n.Args {
			c.hidden(x, fun.Type)
		}
		return
	}
	sig, ok := fun.Type.(*types.Signature)
	if !ok {
		return
	}
	for i, x := range n.Args {
		switch last := sig.Params().Len() - 1; {
		case i < last || !sig.Variadic() && i == last:
			c.hidden(x, sig.Params().At(i).Type())
		case sig.Variadic() && !n.Ellipsis.IsValid():
			c.hidden(x, sig.Params().At(last).Type().(*types.Slice).Elem())
		}
	}
}

// elements looks at what is stored in the interfaces of a literal.
func (c *checker) elements(n *ast.CompositeLit) {
	t := c.info.TypeOf(n)
	if t == nil {
		return
	}
	for i, x := range n.Elts {
		key := ast.Expr(nil)
		if kv, ok := x.(*ast.KeyValueExpr); ok {
			key, x = kv.Key, kv.Value
		}
		switch u := types.Unalias(t).Underlying().(type) {
		case *types.Slice:
			c.hidden(x, u.Elem())
		case *types.Array:
			c.hidden(x, u.Elem())
		case *types.Map:
			c.hidden(key, u.Key())
			c.hidden(x, u.Elem())
		case *types.Struct:
			if id, ok := key.(*ast.Ident); ok {
				if f, ok := c.info.Uses[id].(*types.Var); ok {
					c.hidden(x, f.Type())
				}
			} else if key == nil && i < u.NumFields() {
				c.hidden(x, u.Field(i).Type())
			}
		}
	}
}

// hidden reports x, which becomes a value of type to, if what the grader has handed out becomes an
// interface there: its methods could be asked for by name alone, and its fields printed.
func (c *checker) hidden(x ast.Expr, to types.Type) {
	if x == nil || to == nil || c.Free || !types.IsInterface(to) {
		return
	}
	if from := c.info.TypeOf(x); from != nil && !types.IsInterface(from) && lent(from) != nil {
		c.say(x.Pos(), "makes an interface of %s: what the grader has handed out is used by its methods only", types.ExprString(x))
	}
}

// signature reports parameters and results that are copies.
func (c *checker) signature(recv *ast.FieldList, f *ast.FuncType) {
	for _, l := range []*ast.FieldList{recv, f.Params, f.Results} {
		if l == nil {
			continue
		}
		for _, x := range l.List {
			if t := c.info.TypeOf(x.Type); t != nil {
				c.copies(x.Pos(), "a "+types.ExprString(x.Type), t)
			}
		}
	}
}

// instance reports a generic function that is used with a guarded type, or with a pointer that the
// grader has handed out: inside of it nobody sees which type that is.
func (c *checker) instance(id *ast.Ident) {
	in, ok := c.info.Instances[id]
	if !ok || c.Free {
		return
	}
	if _, ok := c.info.Uses[id].(*types.Func); !ok {
		return
	}
	for i := range in.TypeArgs.Len() {
		switch t := in.TypeArgs.At(i); {
		case guarded(t) != nil:
			c.copies(id.Pos(), fmt.Sprintf("a %s in %s", types.TypeString(t, types.RelativeTo(nil)), id.Name), t)
		case lent(t) != nil:
			c.say(id.Pos(), "hands %s to %s, which takes any type: what the grader has handed out is used by its methods only", types.TypeString(t, nil), id.Name)
		}
	}
}
