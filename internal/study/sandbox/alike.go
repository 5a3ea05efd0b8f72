package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// Whose code two submissions are is asked of what the code does, and not of how it is laid out.
// Forms is the set of that, of the functions that the lab calls and what they call: each action
// (a call of another package, a change), each condition, each pair of actions in a row, in normal
// forms:
//
//   - names, comments, the order of declarations and code that nothing calls are not there;
//   - a function of the package, a closure, a variable that is set once and a constant are what they
//     stand for, so it is the same whether there is a helper or a temporary variable;
//   - comparisons have one direction, negations are at the leaves, what commutes is sorted;
//   - a branch is its condition, whether it is an if, an else, a case, or what follows an early end;
//   - a loop is what it is over, by whatever statement, and so is a call of package slices that
//     stands for one;
//   - what is written twice counts once, so an unrolled loop is its body.
//
// The form needs types. Of files that have none there are only Tokens, the runs of tokens.

// Alike is what a submission is compared by: sets of hashes, each sorted.
type Alike struct{ Forms, Tokens []string }

// LikenessOf is what the files are compared by, read in a process with limits. Files that are too
// much for it have nothing.
func LikenessOf(ctx context.Context, root string, files []File, r Rules) (Alike, error) {
	exports, err := exported(ctx, root, r.Allowed)
	if err != nil {
		return Alike{}, err
	}
	a, err := ask(ctx, "alike", request{Root: root, Files: files, Rules: r, Exports: exports})
	var much *LimitError
	switch {
	case errors.As(err, &much):
		return Alike{}, nil
	case err != nil:
		return Alike{}, err
	case a.Alike == nil:
		return Alike{}, errors.New("alike has no answer")
	}
	return *a.Alike, nil
}

// alikeOf is LikenessOf in the limited process.
func alikeOf(q request) *Alike {
	a := &Alike{}
	seen := map[string]bool{}
	for _, f := range q.Files {
		for _, s := range tokensOf(f.Data) {
			seen[s] = true
		}
	}
	a.Tokens = hashes(seen)
	c := &checker{Rules: q.Rules, fset: token.NewFileSet()}
	var all []*ast.File
	for _, h := range q.Files {
		f, err := parser.ParseFile(c.fset, h.Path, h.Data, parser.SkipObjectResolution)
		if err != nil {
			return a
		}
		all = append(all, f)
	}
	if c.typed(q.Exports, all); c.untyped != "" {
		return a
	}
	a.Forms = hashes(formsOf(c.info, all, q.Rules))
	return a
}

// hashes are short names of the members of a set.
func hashes(set map[string]bool) []string {
	var l []string
	for s := range set {
		h := sha256.Sum256([]byte(s))
		l = append(l, fmt.Sprintf("%x", h[:6]))
	}
	slices.Sort(l)
	return slices.Compact(l)
}

// shingleLen is how many tokens in a row are compared.
const shingleLen = 6

// tokensOf are the runs of tokens of a Go file: every name is the same, and so is every literal of
// a kind.
func tokensOf(src []byte) []string {
	var s scanner.Scanner
	fset := token.NewFileSet()
	s.Init(fset.AddFile("", fset.Base(), len(src)), src, func(token.Position, string) {}, 0)
	var words, l []string
	for {
		_, tok, _ := s.Scan()
		if tok == token.EOF {
			break
		}
		words = append(words, tok.String())
	}
	for i := range len(words) - shingleLen + 1 {
		l = append(l, strings.Join(words[i:i+shingleLen], " "))
	}
	return l
}

// The bounds of a form: calls in calls, and members. Code that is unfolded can double with each
// function.
const (
	maxUnfold  = 12
	maxMembers = 4_000
	maxValue   = 400 // bytes of a value; a longer one is its hash
)

// former makes the form of a package.
type former struct {
	info  *types.Info
	decls map[*types.Func]*ast.FuncDecl
	set   map[string]bool

	// what objects stand for, where that is one value, a struct's values by field, or a function
	values  map[types.Object]string
	structs map[types.Object]map[string]string
	funcs   map[types.Object]*ast.FuncLit
	changed map[types.Object]bool // set more than where they are declared

	calls  []ast.Node // that are being unfolded
	guards []string   // conditions that hold here
	last   []string   // the actions that may be the one before
}

// formsOf is the form of the functions and methods whose names the lab's declaration has.
func formsOf(info *types.Info, files []*ast.File, r Rules) map[string]bool {
	f := &former{info: info, decls: map[*types.Func]*ast.FuncDecl{}, set: map[string]bool{}, values: map[types.Object]string{},
		structs: map[types.Object]map[string]string{}, funcs: map[types.Object]*ast.FuncLit{}, changed: map[types.Object]bool{}}
	called := map[string]bool{r.Entry: true}
	for _, w := range regexp.MustCompile(`\w+`).FindAllString(r.Want, -1) {
		called[w] = true
	}
	var roots []*ast.FuncDecl
	for _, file := range files {
		ast.Inspect(file, f.changes)
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				if fn, ok := info.Defs[d.Name].(*types.Func); ok {
					f.decls[fn] = d
				}
				if called[d.Name.Name] && d.Body != nil {
					roots = append(roots, d)
				}
			}
		}
	}
	for _, d := range roots {
		f.last, f.guards = []string{""}, nil
		n := 0
		for _, p := range d.Type.Params.List {
			for _, name := range p.Names {
				f.values[info.Defs[name]] = fmt.Sprintf("p%d", n)
				n++
			}
		}
		f.unfold(d, d.Body, true)
	}
	return f.set
}

// changes notes the variables that are set again.
func (f *former) changes(n ast.Node) bool {
	note := func(x ast.Expr) {
		if id, ok := ast.Unparen(x).(*ast.Ident); ok {
			if o := f.info.Uses[id]; o != nil {
				f.changed[o] = true
			}
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, x := range n.Lhs {
			note(x)
		}
	case *ast.IncDecStmt:
		note(n.X)
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			note(n.X)
		}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			note(n.Key)
			if n.Value != nil {
				note(n.Value)
			}
		}
	}
	return true
}

func (f *former) add(s string) {
	if len(f.set) < maxMembers {
		f.set[s] = true
	}
}

// act notes an action, alone, after the one before, and under each of the last conditions.
func (f *former) act(s string) {
	f.add(s)
	for _, before := range f.last {
		f.add(before + " > " + s)
	}
	for _, g := range f.guards[max(0, len(f.guards)-3):] {
		if !strings.Contains(g, "result ") { // of a function that says yes or no, or the contrary
			f.add(s + " if " + g)
		}
	}
	f.last = []string{s}
}

// under walks what is done if a condition holds.
func (f *former) under(conds []string, do func()) {
	n := len(f.guards)
	f.guards = append(f.guards[:n:n], conds...)
	do()
	f.guards = f.guards[:n]
}

// unfold walks the body of a function that is called, unless it is being walked already.
func (f *former) unfold(of ast.Node, body *ast.BlockStmt, entry bool) {
	if body == nil || slices.Contains(f.calls, of) || len(f.calls) >= maxUnfold || len(f.set) >= maxMembers {
		return
	}
	f.calls = append(f.calls, of)
	var later []*ast.DeferStmt
	n := len(f.guards)
	f.block(body.List, entry, &later)
	f.guards = f.guards[:n]
	for _, d := range slices.Backward(later) {
		f.expr(d.Call)
	}
	f.calls = f.calls[:len(f.calls)-1]
}

// block walks statements. What follows a branch that ends there is under the other condition.
func (f *former) block(l []ast.Stmt, entry bool, later *[]*ast.DeferStmt) {
	n := len(f.guards)
	for _, s := range l {
		f.stmt(s, entry, later)
	}
	f.guards = f.guards[:min(n, len(f.guards))]
}

// ends reports whether a block leaves the one it is in.
func ends(b ast.Stmt) bool {
	switch b := b.(type) {
	case *ast.BlockStmt:
		return len(b.List) > 0 && ends(b.List[len(b.List)-1])
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	case *ast.IfStmt:
		return b.Else != nil && ends(b.Body) && ends(b.Else)
	case *ast.ExprStmt:
		c, ok := b.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		id, ok := c.Fun.(*ast.Ident)
		return ok && id.Name == "panic"
	}
	return false
}

func (f *former) stmt(s ast.Stmt, entry bool, later *[]*ast.DeferStmt) {
	switch s := s.(type) {
	case *ast.BlockStmt:
		f.block(s.List, entry, later)
	case *ast.LabeledStmt:
		f.stmt(s.Stmt, entry, later)
	case *ast.ExprStmt:
		f.expr(s.X)
	case *ast.DeferStmt:
		*later = append(*later, s)
	case *ast.IncDecStmt:
		f.act("set " + f.place(s.X) + " = " + sum(f.expr(s.X), "1", s.Tok == token.DEC))
	case *ast.DeclStmt:
		if d, ok := s.Decl.(*ast.GenDecl); ok {
			for _, x := range d.Specs {
				if v, ok := x.(*ast.ValueSpec); ok {
					for i, name := range v.Names {
						if len(v.Values) == len(v.Names) {
							f.define(name, v.Values[i])
						}
					}
				}
			}
		}
	case *ast.AssignStmt:
		f.assign(s)
	case *ast.ReturnStmt:
		for _, x := range s.Results {
			v := f.expr(x)
			if entry && v != "err" {
				f.act("return " + v)
			}
		}
	case *ast.IfStmt:
		if s.Init != nil {
			f.stmt(s.Init, entry, later)
		}
		f.branch(s.Cond, func() { f.block(s.Body.List, entry, later) }, ends(s.Body), func() {
			if s.Else != nil {
				f.stmt(s.Else, entry, later)
			}
		}, s.Else != nil && ends(s.Else))
	case *ast.SwitchStmt:
		f.choose(s, entry, later)
	case *ast.ForStmt:
		f.loop(s, entry, later)
	case *ast.RangeStmt:
		over := f.expr(s.X)
		f.iterate(over, s.Key, s.Value)
		f.over(over, func() { f.block(s.Body.List, entry, later) })
	}
}

// branch walks both sides of a condition, and goes on under the one whose other side has ended.
func (f *former) branch(cond ast.Expr, yes func(), yesEnds bool, no func(), noEnds bool) {
	is, not := f.cond(cond, false), f.cond(cond, true)
	f.condition(is)
	before := f.last
	f.under(is, yes)
	after := f.last
	f.last = before
	f.under(not, no)
	if f.last = append(slices.Clone(f.last), after...); len(f.last) > 8 {
		f.last = f.last[len(f.last)-8:]
	}
	switch {
	case yesEnds && !noEnds:
		f.guards = append(f.guards, not...)
	case noEnds && !yesEnds:
		f.guards = append(f.guards, is...)
	}
}

// condition notes a condition, whichever side of it is meant.
func (f *former) condition(is []string) {
	for _, c := range is {
		f.add("cond " + min(c, negated(c)))
	}
}

// choose walks a switch as a chain of ifs.
func (f *former) choose(s *ast.SwitchStmt, entry bool, later *[]*ast.DeferStmt) {
	if s.Init != nil {
		f.stmt(s.Init, entry, later)
	}
	n := len(f.guards)
	for _, c := range s.Body.List {
		c := c.(*ast.CaseClause)
		var is, not []string
		for _, x := range c.List {
			if s.Tag == nil {
				is, not = append(is, f.cond(x, false)...), append(not, f.cond(x, true)...)
			} else {
				v := []string{f.expr(s.Tag), f.expr(x)}
				slices.Sort(v)
				is, not = append(is, v[0]+" == "+v[1]), append(not, v[0]+" != "+v[1])
			}
		}
		f.condition(is)
		f.under(is, func() { f.block(c.Body, entry, later) })
		f.guards = append(f.guards, not...)
	}
	f.guards = f.guards[:n]
}

// over walks the body of a loop over something.
func (f *former) over(what string, body func()) {
	f.add("loop " + what)
	body()
}

// iterate says what the variables of a range stand for.
func (f *former) iterate(over string, key, value ast.Expr) {
	for x, as := range map[ast.Expr]string{key: "index of " + over, value: "member of " + over} {
		if id, ok := x.(*ast.Ident); ok && id.Name != "_" {
			if o := f.info.Defs[id]; o != nil && !f.changed[o] {
				f.values[o] = as
			}
		}
	}
}

// loop walks a for statement. One that counts over something is a range of it.
func (f *former) loop(s *ast.ForStmt, entry bool, later *[]*ast.DeferStmt) {
	n := len(f.guards)
	defer func() { f.guards = f.guards[:n] }()
	if i, ok := s.Init.(*ast.AssignStmt); ok && i.Tok == token.DEFINE && len(i.Lhs) == 1 {
		c, isCond := s.Cond.(*ast.BinaryExpr)
		p, counts := s.Post.(*ast.IncDecStmt)
		id, _ := i.Lhs[0].(*ast.Ident)
		if isCond && counts && p.Tok == token.INC && c.Op == token.LSS && f.expr(i.Rhs[0]) == "0" {
			over := f.expr(c.Y)
			if call, ok := c.Y.(*ast.CallExpr); ok && len(call.Args) == 1 && f.builtin(call) == "len" {
				over = f.expr(call.Args[0])
			}
			f.values[f.info.Defs[id]] = "index of " + over
			f.over(over, func() { f.block(s.Body.List, entry, later) })
			return
		}
	}
	if s.Init != nil {
		f.stmt(s.Init, entry, later)
	}
	f.over("", func() {
		if s.Cond != nil {
			is := f.cond(s.Cond, false)
			f.condition(is)
			f.guards = append(f.guards, is...)
		}
		f.block(s.Body.List, entry, later)
		if s.Post != nil {
			f.stmt(s.Post, entry, later)
		}
	})
}

func (f *former) assign(s *ast.AssignStmt) {
	if len(s.Lhs) != len(s.Rhs) {
		for _, x := range s.Rhs {
			if c, ok := ast.Unparen(x).(*ast.CallExpr); ok && s.Tok == token.DEFINE {
				if l := f.results(c); len(l) == len(s.Lhs) {
					for i := range l {
						if id, ok := s.Lhs[i].(*ast.Ident); ok && !f.changed[f.info.Defs[id]] {
							f.values[f.info.Defs[id]] = l[i]
						}
					}
					continue
				}
			}
			v := f.expr(x)
			for i, l := range s.Lhs {
				if id, ok := l.(*ast.Ident); ok && s.Tok == token.DEFINE {
					if o := f.info.Defs[id]; o != nil && !f.changed[o] {
						f.values[o] = fmt.Sprintf("%d of %s", i, v)
					}
				}
			}
		}
		return
	}
	for i := range s.Lhs {
		switch s.Tok {
		case token.DEFINE:
			if id, ok := s.Lhs[i].(*ast.Ident); ok {
				f.define(id, s.Rhs[i])
			}
		case token.ASSIGN:
			v := f.expr(s.Rhs[i])
			if id, ok := s.Lhs[i].(*ast.Ident); ok && (strings.HasPrefix(v, "index of ") || strings.HasPrefix(v, "member of ")) {
				f.values[f.info.Uses[id]] = v // what a loop has looked for
				continue
			}
			f.act("set " + f.place(s.Lhs[i]) + " = " + v)
		default: // x += y
			op := token.Token(int(s.Tok) - int(token.ADD_ASSIGN) + int(token.ADD))
			f.act("set " + f.place(s.Lhs[i]) + " = " + binary(op, f.expr(s.Lhs[i]), f.expr(s.Rhs[i])))
		}
	}
}

// define says what a variable stands for, or, if it is set again, that it is set.
func (f *former) define(id *ast.Ident, x ast.Expr) {
	o := f.info.Defs[id]
	if o == nil {
		f.expr(x)
		return
	}
	if lit, ok := x.(*ast.FuncLit); ok && !f.changed[o] {
		f.funcs[o] = lit
		return
	}
	v := f.expr(x)
	if f.changed[o] {
		if f.info.Types[x].Value != nil {
			return // where it begins
		}
		f.act("set " + f.place(id) + " = " + v)
		return
	}
	f.values[o] = v
	if fields := f.fields(x); fields != nil {
		f.structs[o] = fields
	}
}

// fields are the values of a literal of a struct.
func (f *former) fields(x ast.Expr) map[string]string {
	if u, ok := ast.Unparen(x).(*ast.UnaryExpr); ok && u.Op == token.AND {
		x = u.X
	}
	c, ok := ast.Unparen(x).(*ast.CompositeLit)
	if !ok {
		return nil
	}
	t := f.info.TypeOf(c)
	if t == nil {
		return nil
	}
	s, ok := t.Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	m := map[string]string{}
	for i, e := range c.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok {
				m[id.Name] = f.expr(kv.Value)
			}
		} else if i < s.NumFields() {
			m[s.Field(i).Name()] = f.expr(e)
		}
	}
	return m
}

// place is what is set: a variable or a field, by its type.
func (f *former) place(x ast.Expr) string {
	switch x := ast.Unparen(x).(type) {
	case *ast.IndexExpr:
		return f.place(x.X) + "[" + f.expr(x.Index) + "]"
	case *ast.StarExpr:
		return f.place(x.X)
	}
	return typeName(f.info.TypeOf(x))
}

// ownType is a type of the student's in the words of typeName.
var ownType = regexp.MustCompile(`student\.\w+|\*`)

// typeName is a type without the names of the student's own, and without pointers.
func typeName(t types.Type) string {
	if t == nil {
		return "?"
	}
	text := types.TypeString(types.Unalias(t), func(p *types.Package) string {
		if p.Path() == "student" {
			return "student"
		}
		return p.Name()
	})
	return ownType.ReplaceAllStringFunc(text, func(s string) string { return map[bool]string{true: "", false: "own"}[s == "*"] })
}

func (f *former) builtin(c *ast.CallExpr) string {
	if id, ok := ast.Unparen(c.Fun).(*ast.Ident); ok {
		if b, ok := f.info.Uses[id].(*types.Builtin); ok {
			return b.Name()
		}
	}
	return ""
}

func short(s string) string {
	if len(s) > maxValue {
		h := sha256.Sum256([]byte(s))
		return fmt.Sprintf("#%x", h[:8])
	}
	return s
}

// expr is the form of a value. The actions in it are noted.
func (f *former) expr(x ast.Expr) string { return short(f.value(x)) }

func (f *former) value(x ast.Expr) string {
	x = ast.Unparen(x)
	if tv, ok := f.info.Types[x]; ok && tv.Value != nil {
		return tv.Value.String()
	}
	switch x := x.(type) {
	case *ast.Ident:
		o := f.info.Uses[x]
		if o == nil {
			o = f.info.Defs[x]
		}
		if v, ok := f.values[o]; ok {
			return v
		}
		if _, ok := o.(*types.Nil); ok {
			return "nil"
		}
		return typeName(f.info.TypeOf(x))
	case *ast.SelectorExpr:
		return f.selector(x)
	case *ast.StarExpr:
		return f.expr(x.X)
	case *ast.UnaryExpr:
		switch x.Op {
		case token.NOT:
			return strings.Join(f.cond(x, false), " && ")
		case token.AND:
			return f.expr(x.X)
		}
		return x.Op.String() + f.expr(x.X)
	case *ast.BinaryExpr:
		switch x.Op {
		case token.LAND, token.LOR, token.LSS, token.GTR, token.LEQ, token.GEQ, token.EQL, token.NEQ:
			return strings.Join(f.cond(x, false), " && ")
		}
		v := f.arithmetic(x)
		f.add("value " + v)
		return v
	case *ast.IndexExpr:
		of, at := f.expr(x.X), f.expr(x.Index)
		if at == "index of "+of {
			return "member of " + of
		}
		return of + "[" + at + "]"
	case *ast.SliceExpr:
		lo, hi := "0", "end"
		if x.Low != nil {
			lo = f.expr(x.Low)
		}
		if x.High != nil {
			hi = f.expr(x.High)
		}
		return f.expr(x.X) + "[" + lo + ":" + hi + "]"
	case *ast.CompositeLit:
		if len(x.Elts) == 0 {
			return typeName(f.info.TypeOf(x))
		}
		var l []string
		for _, e := range x.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				e = kv.Value
			}
			l = append(l, f.expr(e))
		}
		if typeName(f.info.TypeOf(x)) == "own" { // fields have no order
			slices.Sort(l)
		}
		return "{" + strings.Join(l, ", ") + "}"
	case *ast.CallExpr:
		return f.call(x)
	case *ast.FuncLit:
		f.unfold(x, x.Body, false)
		return "func"
	}
	return "?"
}

func (f *former) selector(x *ast.SelectorExpr) string {
	if id, ok := ast.Unparen(x.X).(*ast.Ident); ok {
		if _, ok := f.info.Uses[id].(*types.PkgName); ok {
			return id.Name + "." + x.Sel.Name
		}
		if m, ok := f.structs[f.info.Uses[id]]; ok {
			if v := m[x.Sel.Name]; v != "" {
				return v
			}
			return "field " + typeName(f.info.TypeOf(x))
		}
	}
	v, ok := f.info.Uses[x.Sel].(*types.Var)
	if ok && v.Pkg() != nil && v.Pkg().Path() == "student" {
		return "field " + typeName(v.Type())
	}
	return f.expr(x.X) + "." + x.Sel.Name
}

// arithmetic is the form of an operation. A chain of one that commutes has no order.
func (f *former) arithmetic(x *ast.BinaryExpr) string {
	if x.Op != token.ADD && x.Op != token.MUL {
		return binary(x.Op, f.expr(x.X), f.expr(x.Y))
	}
	var l []string
	var chain func(y ast.Expr)
	chain = func(y ast.Expr) {
		y = ast.Unparen(y)
		if b, ok := y.(*ast.BinaryExpr); ok && b.Op == x.Op && f.info.Types[y].Value == nil {
			chain(b.X)
			chain(b.Y)
			return
		}
		l = append(l, f.expr(y))
	}
	chain(x)
	slices.Sort(l)
	return "(" + strings.Join(l, " "+x.Op.String()+" ") + ")"
}

func binary(op token.Token, a, b string) string {
	switch op {
	case token.ADD, token.MUL, token.AND, token.OR, token.XOR:
		if b < a {
			a, b = b, a
		}
	}
	return "(" + a + " " + op.String() + " " + b + ")"
}

func sum(a, b string, minus bool) string {
	if minus {
		return binary(token.SUB, a, b)
	}
	return binary(token.ADD, a, b)
}

// cond is a condition as what must hold, all of it; with not set, of its contrary.
func (f *former) cond(x ast.Expr, not bool) []string {
	x = ast.Unparen(x)
	switch x := x.(type) {
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			return f.cond(x.X, !not)
		}
	case *ast.BinaryExpr:
		switch x.Op {
		case token.LAND, token.LOR:
			a, b := f.cond(x.X, not), f.cond(x.Y, not)
			if (x.Op == token.LAND) != not {
				l := append(a, b...)
				slices.Sort(l)
				return slices.Compact(l)
			}
			l := []string{strings.Join(a, " && "), strings.Join(b, " && ")}
			slices.Sort(l)
			return []string{short("(" + strings.Join(l, " || ") + ")")}
		case token.LSS, token.GTR, token.LEQ, token.GEQ, token.EQL, token.NEQ:
			if x.Op == token.EQL || x.Op == token.NEQ {
				if typeName(f.info.TypeOf(x.X)) == "kit.Range" {
					return same(f.bounds(x.X), f.bounds(x.Y), not != (x.Op == token.NEQ))
				}
			}
			return []string{compared(x.Op, f.expr(x.X), f.expr(x.Y), not)}
		}
	case *ast.CallExpr:
		if a := f.unfolded(x); a != nil {
			return f.cond(a, not)
		}
		if l := f.overlaps(x, not); l != nil {
			return l
		}
	case *ast.Ident:
		if v, ok := f.values[f.info.Uses[x]]; ok && not {
			return []string{negated(v)}
		}
	}
	v := f.expr(x)
	if not {
		v = negated(v)
	}
	return []string{v}
}

// compared is a comparison with < or <=, or in the order of its sides.
func compared(op token.Token, a, b string, not bool) string {
	if not {
		op = map[token.Token]token.Token{token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR, token.EQL: token.NEQ, token.NEQ: token.EQL}[op]
	}
	switch op {
	case token.GTR:
		op, a, b = token.LSS, b, a
	case token.GEQ:
		op, a, b = token.LEQ, b, a
	case token.EQL, token.NEQ:
		if b < a {
			a, b = b, a
		}
	}
	return a + " " + op.String() + " " + b
}

// negated is the contrary of a form that has no parts.
func negated(v string) string {
	for _, x := range []struct {
		from, to string
		turned   bool
	}{{" < ", " <= ", true}, {" <= ", " < ", true}, {" == ", " != ", false}, {" != ", " == ", false}} {
		a, b, ok := strings.Cut(v, x.from)
		switch {
		case !ok || strings.ContainsAny(v, "|&"):
		case x.turned:
			return b + x.to + a
		default:
			return a + x.to + b
		}
	}
	if s, ok := strings.CutPrefix(v, "not "); ok {
		return s
	}
	return "not " + v
}

// overlaps is the comparison that kit.Range.Overlaps stands for.
func (f *former) overlaps(c *ast.CallExpr, not bool) []string {
	s, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Overlaps" || len(c.Args) != 1 {
		return nil
	}
	return meet(f.bounds(s.X), f.bounds(c.Args[0]), not)
}

// meet is that two ranges have a byte in common.
func meet(a, b [2]string, not bool) []string {
	l := []string{compared(token.LSS, a[0], b[1], not), compared(token.LSS, b[0], a[1], not)}
	slices.Sort(l)
	if not {
		return []string{"(" + strings.Join(l, " || ") + ")"}
	}
	return l
}

// same is that two ranges are one.
func same(a, b [2]string, not bool) []string {
	l := []string{compared(token.EQL, a[0], b[0], not), compared(token.EQL, a[1], b[1], not)}
	slices.Sort(l)
	if not {
		return []string{"(" + strings.Join(l, " || ") + ")"}
	}
	return l
}

// bounds are start and end of a range.
func (f *former) bounds(x ast.Expr) [2]string {
	if id, ok := ast.Unparen(x).(*ast.Ident); ok {
		if m, ok := f.structs[f.info.Uses[id]]; ok {
			return [2]string{m["Start"], m["End"]}
		}
	}
	if m := f.fields(x); m != nil {
		return [2]string{m["Start"], m["End"]}
	}
	v := f.expr(x)
	return [2]string{v + ".Start", v + ".End"}
}

// unfolded is the value of a call of a function that only returns one, nil for others.
func (f *former) unfolded(c *ast.CallExpr) ast.Expr {
	body, params, args := f.body(c)
	if body == nil || len(body.List) != 1 || slices.Contains(f.calls, ast.Node(body)) || len(f.calls) >= maxUnfold {
		return nil
	}
	r, ok := body.List[0].(*ast.ReturnStmt)
	if !ok || len(r.Results) != 1 {
		return nil
	}
	f.bind(params, args)
	return r.Results[0]
}

// results are the values of a call of a function that returns at its end only, nil for others. Its
// actions are noted.
func (f *former) results(c *ast.CallExpr) (l []string) {
	body, params, args := f.body(c)
	if body == nil || len(body.List) == 0 || slices.Contains(f.calls, ast.Node(body)) || len(f.calls) >= maxUnfold {
		return nil
	}
	last, ok := body.List[len(body.List)-1].(*ast.ReturnStmt)
	returns := 0
	ast.Inspect(body, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			returns++
		}
		return true
	})
	if !ok || returns != 1 {
		return nil
	}
	f.bind(params, args)
	f.unfold(body, &ast.BlockStmt{List: body.List[:len(body.List)-1]}, false)
	for _, x := range last.Results {
		l = append(l, f.expr(x))
	}
	return l
}

// body is that of the student's own function that is called, with its parameters and arguments.
func (f *former) body(c *ast.CallExpr) (body *ast.BlockStmt, params []*ast.Ident, args []ast.Expr) {
	names := func(l *ast.FieldList) {
		if l != nil {
			for _, p := range l.List {
				params = append(params, p.Names...)
			}
		}
	}
	fun := ast.Unparen(c.Fun)
	if i, ok := fun.(*ast.IndexExpr); ok {
		fun = i.X
	}
	var o types.Object
	switch x := fun.(type) {
	case *ast.Ident:
		o = f.info.Uses[x]
	case *ast.SelectorExpr:
		o = f.info.Uses[x.Sel]
		args = append(args, x.X)
	case *ast.FuncLit:
		names(x.Type.Params)
		return x.Body, params, c.Args
	}
	if lit := f.funcs[o]; lit != nil {
		names(lit.Type.Params)
		return lit.Body, params, c.Args
	}
	fn, ok := o.(*types.Func)
	if !ok {
		return nil, nil, nil
	}
	d := f.decls[fn.Origin()]
	if d == nil {
		return nil, nil, nil
	}
	if d.Recv == nil {
		args = nil
	} else {
		names(d.Recv)
		if len(params) == 0 {
			args = nil
		}
	}
	names(d.Type.Params)
	return d.Body, params, append(args, c.Args...)
}

// bind says what parameters stand for.
func (f *former) bind(params []*ast.Ident, args []ast.Expr) {
	values, structs := make([]string, len(params)), make([]map[string]string, len(params))
	for i := range params {
		if i >= len(args) {
			break
		}
		values[i] = f.expr(args[i])
		structs[i] = f.fields(args[i])
		if id, ok := ast.Unparen(args[i]).(*ast.Ident); ok {
			structs[i] = f.structs[f.info.Uses[id]]
			if lit := f.funcs[f.info.Uses[id]]; lit != nil {
				f.funcs[f.info.Defs[params[i]]] = lit
			}
		}
		if lit, ok := args[i].(*ast.FuncLit); ok {
			f.funcs[f.info.Defs[params[i]]] = lit
		}
	}
	for i, p := range params {
		o := f.info.Defs[p]
		if o == nil || f.changed[o] {
			continue
		}
		delete(f.structs, o)
		if f.values[o] = values[i]; structs[i] != nil {
			f.structs[o] = structs[i]
		}
	}
}

// call is the form of the value of a call. A call of another package is an action.
func (f *former) call(c *ast.CallExpr) string {
	if tv := f.info.Types[c.Fun]; tv.IsType() && len(c.Args) == 1 {
		return f.expr(c.Args[0]) // a conversion
	}
	if x := f.unfolded(c); x != nil {
		return f.expr(x)
	}
	if l := f.results(c); len(l) > 0 {
		return l[0]
	}
	if body, params, args := f.body(c); body != nil {
		f.bind(params, args)
		f.unfold(body, body, false)
		return "result " + typeName(f.info.TypeOf(c))
	}
	if v, ok := f.slicesCall(c); ok {
		return v
	}
	if l := f.overlaps(c, false); l != nil {
		f.condition(l)
		return strings.Join(l, " && ")
	}
	name := f.builtin(c)
	var args []string
	if name == "" {
		name = "call"
		if s, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr); ok {
			if name = s.Sel.Name; f.info.Selections[s] != nil || f.info.Types[s.X].IsValue() {
				args = append(args, f.expr(s.X))
			}
		} else {
			f.expr(c.Fun)
		}
	}
	for _, x := range c.Args {
		if t := f.info.TypeOf(x); t != nil && strings.HasSuffix(types.TypeString(t, nil), "kit.Task") {
			continue // is everywhere
		}
		args = append(args, f.expr(x))
	}
	v := short(name + "(" + strings.Join(args, ", ") + ")")
	switch {
	case name == "Load": // may be anywhere, and as often as one likes
		f.add(v)
	case f.builtin(c) == "":
		f.act(v)
		f.add("calls " + name)
	}
	return v
}

// slicesCall is the loop that a function of package slices stands for.
func (f *former) slicesCall(c *ast.CallExpr) (string, bool) {
	s, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	id, ok := ast.Unparen(s.X).(*ast.Ident)
	if !ok {
		return "", false
	}
	if p, ok := f.info.Uses[id].(*types.PkgName); !ok || p.Imported().Path() != "slices" || len(c.Args) < 2 {
		return "", false
	}
	over := f.expr(c.Args[0])
	member := "member of " + over
	switch s.Sel.Name {
	case "Index", "Contains":
		f.over(over, func() {
			if typeName(f.info.TypeOf(c.Args[1])) == "kit.Range" {
				f.condition(same([2]string{member + ".Start", member + ".End"}, f.bounds(c.Args[1]), false))
				return
			}
			f.condition([]string{compared(token.EQL, member, f.expr(c.Args[1]), false)})
		})
		return map[string]string{"Index": "index of " + over, "Contains": "result bool"}[s.Sel.Name], true
	case "IndexFunc", "ContainsFunc", "DeleteFunc":
		f.over(over, func() { f.applied(c.Args[1], member) })
		return map[string]string{"IndexFunc": "index of " + over, "ContainsFunc": "result bool", "DeleteFunc": "rest of " + over}[s.Sel.Name], true
	case "Delete":
		if len(c.Args) == 3 {
			return short("append(" + over + "[0:" + f.expr(c.Args[1]) + "], " + over + "[" + f.expr(c.Args[2]) + ":end])"), true
		}
	}
	return "", false
}

// applied notes the condition that a function is of a member.
func (f *former) applied(fun ast.Expr, member string) {
	switch x := ast.Unparen(fun).(type) {
	case *ast.SelectorExpr:
		if x.Sel.Name == "Overlaps" {
			f.condition(meet(f.bounds(x.X), [2]string{member + ".Start", member + ".End"}, false))
			return
		}
	case *ast.Ident:
		if lit := f.funcs[f.info.Uses[x]]; lit != nil {
			f.applied(lit, member)
			return
		}
	case *ast.FuncLit:
		for _, p := range x.Type.Params.List {
			for _, name := range p.Names {
				f.values[f.info.Defs[name]] = member
			}
		}
		if r, ok := x.Body.List[0].(*ast.ReturnStmt); ok && len(r.Results) == 1 && len(x.Body.List) == 1 {
			f.condition(f.cond(r.Results[0], false))
			return
		}
		f.unfold(x, x.Body, false)
		return
	}
	f.act("applies " + f.expr(fun))
}
