package drawn

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strings"
)

// The operators that ask for types: what they put there is of the type of what they take away.

// typed looks at everything inside the body of a function.
func (f *finder) typed(body *ast.BlockStmt) {
	vars := map[types.Object]bool{} // that have had their site
	place := map[ast.Expr]bool{}    // expressions that are no values: assigned to, addressed, named
	constant := map[ast.Expr]bool{} // that must stay constants, or are a part of one
	ast.Inspect(body, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.CallExpr:
			if mute(x) {
				f.message(x)
				return false
			}
			f.arguments("arguments", x, x.Args)
			for _, a := range x.Args {
				f.variable(a, vars, place)
			}
		case *ast.AssignStmt:
			for _, l := range x.Lhs {
				place[l] = true
			}
			for _, r := range x.Rhs {
				f.variable(r, vars, place)
			}
		case *ast.IncDecStmt:
			place[x.X] = true
		case *ast.UnaryExpr:
			if x.Op == token.AND {
				place[x.X] = true
			}
		case *ast.BinaryExpr:
			f.variable(x.X, vars, place)
			f.variable(x.Y, vars, place)
		case *ast.ReturnStmt:
			for _, r := range x.Results {
				f.variable(r, vars, place)
			}
			f.flushed(x)
		case *ast.GenDecl:
			return x.Tok == token.VAR
		case *ast.ArrayType:
			return false
		case *ast.KeyValueExpr:
			constant[x.Key] = true
			place[x.Key] = true
		case *ast.IfStmt:
			f.checked(x)
		case *ast.BlockStmt:
			f.pairs(x.List, body)
		case *ast.CaseClause:
			f.pairs(x.Body, body)
		}
		if e, ok := x.(ast.Expr); ok {
			return f.constant(e, constant)
		}
		return true
	})
}

// quiet says that an expression can be evaluated twice: it calls nothing.
func quiet(e ast.Expr) bool {
	ok := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr, *ast.FuncLit, *ast.CompositeLit:
			ok = false
		case *ast.UnaryExpr:
			ok = ok && n.Op != token.ARROW
		}
		return ok
	})
	return ok
}

// arguments swaps two neighbours of one type.
func (f *finder) arguments(op string, x *ast.CallExpr, args []ast.Expr) {
	if t := f.src.info.Types[x.Fun]; t.IsType() {
		return
	}
	if id, ok := x.Fun.(*ast.Ident); ok && (id.Name == "min" || id.Name == "max") {
		return
	}
	for i := 1; i < len(args); i++ {
		a, b := args[i-1], args[i]
		ta, tb := f.src.info.Types[a], f.src.info.Types[b]
		if !quiet(a) || !quiet(b) || !ta.IsValue() || !tb.IsValue() || ta.IsNil() || !types.Identical(ta.Type, tb.Type) || ta.Value != nil && tb.Value != nil {
			continue
		}
		kind, ok := f.typeText(types.Default(ta.Type))
		if !ok {
			continue
		}
		p, q := f.textOf(a), f.textOf(b)
		if p == q {
			continue
		}
		fun := short(f.textOf(x.Fun))
		f.add(op, a.Pos(), b.End(), fun+"("+p+", "+q+")", fun+"("+q+", "+p+")", func(n int) string {
			return fmt.Sprintf("faultPick[%s](%d, %s, %s), faultPick[%s](%d, %s, %s)", kind, n, p, q, kind, n, q, p)
		})
	}
}

// message swaps two values of a formatted text: it says the contrary of what is so.
func (f *finder) message(x *ast.CallExpr) {
	sel, ok := x.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	if p, ok := sel.X.(*ast.Ident); !ok || p.Name != "fmt" || !strings.HasSuffix(sel.Sel.Name, "f") {
		return
	}
	for i, a := range x.Args {
		if t := f.src.info.Types[a]; t.Value != nil && t.Value.Kind() == constant.String {
			f.arguments("message", x, x.Args[i+1:])
			return
		}
	}
}

// constant puts another value in the place of a number. It says whether to look at the parts.
func (f *finder) constant(e ast.Expr, not map[ast.Expr]bool) bool {
	t, ok := f.src.info.Types[e]
	if !ok || t.Value == nil {
		return true
	}
	if not[e] || !t.IsValue() || t.Value.Kind() != constant.Int {
		return false
	}
	kind, ok := f.typeText(types.Default(t.Type))
	v, exact := constant.Int64Val(t.Value)
	if !ok || !exact || v >= -1 && v <= 1 {
		return false
	}
	new := v + 1
	switch {
	case v >= 8 && v&(v-1) == 0:
		new = v * 2
	case v%1000 == 0:
		new = v / 1000 // another unit
	}
	b, ok := t.Type.Underlying().(*types.Basic)
	if !ok || !fits(new, b) {
		return false
	}
	old := f.textOf(e)
	f.add("value", e.Pos(), e.End(), old, fmt.Sprintf("%s(%d)", kind, new), func(n int) string {
		return fmt.Sprintf("faultPick[%s](%d, %s, %d)", kind, n, old, new)
	})
	return false
}

// fits says that a basic type has the value v.
func fits(v int64, b *types.Basic) bool {
	switch b.Kind() {
	case types.Int8:
		return v == int64(int8(v))
	case types.Int16:
		return v == int64(int16(v))
	case types.Int32, types.UntypedRune:
		return v == int64(int32(v))
	case types.Uint8:
		return v == int64(uint8(v))
	case types.Uint16:
		return v == int64(uint16(v))
	case types.Uint32:
		return v == int64(uint32(v))
	case types.Uint, types.Uint64, types.Uintptr:
		return v >= 0
	}
	return b.Info()&types.IsInteger != 0
}

// variable puts another variable of the function in the place of e, the one of its type that is
// declared last. A variable has one site in a function.
func (f *finder) variable(e ast.Expr, had map[types.Object]bool, place map[ast.Expr]bool) {
	id, ok := e.(*ast.Ident)
	if !ok || place[e] {
		return
	}
	v, ok := f.src.info.Uses[id].(*types.Var)
	if !ok || v.IsField() || had[v] || v.Parent() == nil || v.Parent() == f.src.pkg.Scope() || v.Parent() == types.Universe {
		return
	}
	var other *types.Var
	for s := f.src.pkg.Scope().Innermost(id.Pos()); s != nil && s != f.src.pkg.Scope() && s.Parent() != f.src.pkg.Scope(); s = s.Parent() {
		for _, name := range s.Names() {
			o, ok := s.Lookup(name).(*types.Var)
			if !ok || o == v || name == "_" || o.Pos() >= id.Pos() || !types.Identical(o.Type(), v.Type()) {
				continue
			}
			if _, seen := s.LookupParent(name, id.Pos()); seen != o {
				continue
			}
			if _, now := f.src.pkg.Scope().Innermost(id.Pos()).LookupParent(name, id.Pos()); now == o && (other == nil || o.Pos() > other.Pos()) {
				other = o
			}
		}
	}
	if other == nil {
		return
	}
	had[v] = true
	f.add("variable", id.Pos(), id.End(), id.Name, other.Name(), func(n int) string { return pick(n, id.Name, other.Name()) })
}

// isError says that e is a value of type error.
func (f *finder) isError(e ast.Expr) bool {
	t, ok := f.src.info.Types[e]
	return ok && t.IsValue() && types.Identical(t.Type, types.Universe.Lookup("error").Type())
}

// checked is a statement if that asks for an error: the error is ignored, or what may fail is not
// done.
func (f *finder) checked(x *ast.IfStmt) {
	c, ok := x.Cond.(*ast.BinaryExpr)
	if !ok || c.Op != token.NEQ || !f.isError(c.X) || f.textOf(c.Y) != "nil" {
		return
	}
	cond := f.textOf(c)
	f.add("ignore", c.Pos(), c.End(), cond, "false", func(n int) string { return fmt.Sprintf("(%s && !faultIs(%d))", cond, n) })
	a, ok := x.Init.(*ast.AssignStmt)
	if !ok || x.Else != nil || len(a.Rhs) != 1 {
		return
	}
	if call, ok := a.Rhs[0].(*ast.CallExpr); ok && !mute(call) {
		all := f.textOf(x)
		f.add("skip", x.Pos(), x.End(), f.textOf(call), "", func(n int) string { return fmt.Sprintf("if !faultIs(%d) {\n%s\n}", n, all) })
	}
}

// durable are the names of calls that bring data to a device.
var durable = regexp.MustCompile(`(?i)flush|sync|barrier`)

// flushed is a return of the error of a flush, which is not done.
func (f *finder) flushed(x *ast.ReturnStmt) {
	if len(x.Results) != 1 || !f.isError(x.Results[0]) {
		return
	}
	call, ok := x.Results[0].(*ast.CallExpr)
	if !ok || !durable.MatchString(calls(call)) {
		return
	}
	all := f.textOf(x)
	f.add("skip", x.Pos(), x.End(), all, "return nil", func(n int) string { return fmt.Sprintf("if faultIs(%d) {\nreturn nil\n}\n%s", n, all) })
}

// calls is the name of the function that a call calls.
func calls(c *ast.CallExpr) string {
	switch fun := c.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	}
	return ""
}

// lockOf says what is locked by a statement and how, "mu.Unlock" for mu.Lock(t): what the
// statement that unlocks calls.
func (f *finder) lockOf(s ast.Stmt) string {
	e, ok := s.(*ast.ExprStmt)
	if !ok {
		return ""
	}
	c, ok := e.X.(*ast.CallExpr)
	if !ok {
		return ""
	}
	name := calls(c)
	unlock := ""
	switch {
	case strings.HasPrefix(name, "RLock"):
		unlock = "RUnlock" + name[5:]
	case strings.HasPrefix(name, "Lock"):
		unlock = "Unlock" + name[4:]
	case strings.HasPrefix(name, "lock"):
		unlock = "unlock" + name[4:]
	default:
		return ""
	}
	return strings.TrimSuffix(f.textOf(c.Fun), name) + unlock
}

// pairs drops what locks together with what unlocks, of one list of statements, where it is
// unlocked nowhere else in the function.
func (f *finder) pairs(list []ast.Stmt, body *ast.BlockStmt) {
	for i, s := range list {
		unlock := f.lockOf(s)
		if unlock == "" {
			continue
		}
		times := 0
		ast.Inspect(body, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && f.textOf(c.Fun) == unlock {
				times++
			}
			return true
		})
		if times != 1 {
			continue
		}
		for _, u := range list[i+1:] {
			var c *ast.CallExpr
			switch u := u.(type) {
			case *ast.DeferStmt:
				c = u.Call
			case *ast.ExprStmt:
				c, _ = u.X.(*ast.CallExpr)
			}
			if c == nil || f.textOf(c.Fun) != unlock {
				continue
			}
			first, last := f.textOf(s), f.textOf(u)
			between := string(f.text[f.at(s.End()):f.at(u.Pos())])
			f.add("unlocked", s.Pos(), u.End(), first+"; "+last, "", func(n int) string {
				return fmt.Sprintf("if !faultIs(%d) {\n%s\n}%sif !faultIs(%d) {\n%s\n}", n, first, between, n, last)
			})
		}
	}
}
