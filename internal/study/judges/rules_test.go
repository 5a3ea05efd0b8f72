package judges

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/study/sandbox"
)

// checkText is what check says of a file x.go.
func checkText(t *testing.T, src string, r sandbox.Rules) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.go")
	if err := os.WriteFile(file, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := sandbox.ReadAll([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	x, err := sandbox.Check(t.Context(), root(t), files, r)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(x.Bad, "\n")
}

// TestCheck: everything that would let student code wait, or keep state, where the explorer does
// not see it.
func TestCheck(t *testing.T) {
	const kitted = "package p\nimport \"btrlab/labs/kit\"\n"
	for _, tt := range []struct{ name, src, want string }{
		{"variable", "package p\nimport \"slices\"\nvar _ = 1\nfunc f() {}", "x.go:3: has a variable of the package, which outlives an execution: declare it in the function"},
		{"allowed", "package p\nimport \"slices\"\nfunc f(l []int) { slices.Sort(l) }", ""},
		{"sync", "package p\nimport \"sync\"", `x.go:2: imports "sync"`},
		{"atomic", "package p\nimport \"sync/atomic\"", `x.go:2: imports "sync/atomic"`},
		{"time", "package p\nimport \"time\"", `x.go:2: imports "time"`},
		{"unsafe", "package p\nimport \"unsafe\"", `x.go:2: imports "unsafe"`},
		{"os", "package p\nimport \"os\"", `x.go:2: imports "os"`},
		{"renamed", "package p\nimport s \"sync\"", `x.go:2: imports "sync"`},
		{"cgo", "package p\nimport \"C\"", `x.go:2: imports "C"`},
		{"dot", "package p\nimport . \"slices\"", `x.go:2: imports "slices" as .`},
		{"go", "package p\nfunc f() { go f() }", "x.go:2: has a go statement"},
		{"channel", "package p\nfunc f() { _ = make(chan int) }", "x.go:2: has a channel"},
		{"select", "package p\nfunc f() { select {} }", "x.go:2: has a select"},
		{"recover", "package p\nfunc f() { defer func() { recover() }() }", "x.go:2: has a recover"},
		{"init", "package p\nfunc init() {}", "x.go:2: has an init function"},
		{"directive", "package p\n//go:linkname f g\nfunc f()", "x.go:2: has the directive //go:linkname"},
		{"main", "package main\nfunc f() {}", "x.go:1: package main"},
		{"nothing to call", "package p\nfunc g() {}\ntype t struct{}\nfunc (t) f() {}", "no func f: want func f()"},
		{"broken", "package p\nfunc", "x.go:2:"},
		{"stores in a package", "package p\nimport \"btrlab/internal/policy\"\nfunc f() { policy.Presets[0].Name = policy.SetISize }", "x.go:3: changes policy.Presets[0].Name, or takes its address"},
		{"through an address", "package p\nimport q \"btrlab/internal/policy\"\nfunc f() { p := &q.SetISize; p = p }", "x.go:3: changes q.SetISize, or takes its address"},
		{"uses another name", "package p\nimport \"btrlab/internal/policy\"\nfunc f() { l := policy.Presets; l[0] = l[1] }", "x.go:3: uses policy.Presets, want only SetsizeStep, DIOWait"},
		{"the grader's side", "package p\nimport \"btrlab/labs/kit\"\nfunc f() { kit.On(nil) }", "x.go:3: uses kit.On, want only Task, Mutex"},
		{"copies out", kitted + "func f(q *kit.Request) { old := *q; _ = old }", "x.go:3: copies *q: what the grader"},
		{"copies as an argument", kitted + "func f(q *kit.Request) { g((*q)) }\nfunc g(any) {}", "x.go:3: copies *q: "},
		{"copies by range", kitted + "func f(w *kit.LockedWrite, l []kit.LockedWrite) { for _, *w = range l {} }", "x.go:3: copies *w: "},
		{"copies by a variable of a range", kitted + "func f(l [1]kit.Request) { for _, q := range l { g(&q) } }\nfunc g(*kit.Request) {}", "x.go:3: copies a [1]kit.Request"},
		{"copies into a literal", kitted + "func f(w *kit.LockedWrite) { g([]kit.LockedWrite{*w}) }\nfunc g([]kit.LockedWrite) {}", "x.go:3: copies *w: "},
		{"copies into a field", kitted + "type s struct{ q kit.Request }\nfunc f(q *kit.Request) *s { return &s{q: *q} }", "x.go:4: copies *q: "},
		{"copies by an alias", kitted + "type r = kit.Request\nfunc f(q *r) { var old r = *q; _ = &old }", "x.go:4: copies *q: "},
		{"copies what has one", kitted + "type s struct{ a [2]kit.Request }\nfunc f(x *s) { y := *x; _ = &y }", "x.go:4: copies *x: "},
		{"copies by a type parameter", kitted + "func f(q *kit.Request) { g(q) }\nfunc g[T any](p *T) { x := *p; _ = x }", "x.go:3: copies a btrlab/labs/kit.Request in g"},
		{"copies by append", kitted + "func f(l []kit.Request) []kit.Request { return append(l[:0:0], l...) }", "x.go:3: copies the elements of l[:0:0]"},
		{"stores through", kitted + "func f(q *kit.Request) { *q = kit.Request{} }", "x.go:3: copies *q: "},
		{"copies a lock", kitted + "type s struct{ m kit.Mutex }\nfunc f(x *s) { y := x.m; y.Init() }", "x.go:4: copies x.m, in which is a kit.Mutex"},
		{"receives a lock", kitted + "type s struct{ m kit.Mutex }\nfunc (x s) g() {}\nfunc f() {}", "x.go:4: copies a s, in which is a kit.Mutex"},
		{"makes a lock", kitted + "type s struct{ m [2]kit.Mutex }\nfunc f() *s { var x s; y := &s{m: [2]kit.Mutex{}}; y.m[0].Init(); return &x }", ""},
		{"copies a range", kitted + "func f(r *kit.Range) kit.Range { x := *r; l := []kit.Range{x}; return append(l, *r)[0] }", ""},
		{"an interface of one", kitted + "func f(q *kit.Request) { var x any = q; _ = x }", "x.go:3: makes an interface of q"},
		{"an interface by a call", kitted + "func f(q *kit.Request) { g(1, q) }\nfunc g(l ...any) {}", "x.go:3: makes an interface of q"},
		{"an interface by a panic", kitted + "func f(q *kit.Request) { panic(q) }", "x.go:3: makes an interface of q"},
		{"an interface in a literal", kitted + "func f(q *kit.Request) { _ = map[string]any{\"q\": q} }", "x.go:3: makes an interface of q"},
		{"a type parameter", kitted + "func f(q *kit.Request) { g(q) }\nfunc g[T any](p T) { _ = any(p) }", "x.go:3: hands *btrlab/labs/kit.Request to g"},
		{"a local name of a package", kitted + "func f(w *kit.LockedWrite, t *kit.Task) { kit := w; kit.Lock(t) }", ""},
		{"a package by parentheses", kitted + "func f() { (kit).On(nil) }", "x.go:3: uses (kit).On, want only Task"},
		{"recover in parentheses", "package p\nfunc f() { defer func() { _ = (recover)() }() }", "x.go:2: has a recover"},
		{"a recover of one's own", "package p\nfunc f() { recover := func() {}; recover() }", ""},
		{"another directive", "package p\nfunc f() { /*line y.go:7*/ }", "x.go:2: has the directive /*line"},
		{"own pointers", "package p\nfunc f(q *int) *int { var r *int = q; return r }", ""},
	} {
		got := checkText(t, tt.src, sandbox.Rules{May: mayUse, Allowed: []string{"slices", policyPath, sandbox.KitPath}, Entry: "f", Want: "func f()"})
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: have %q want %q", tt.name, got, tt.want)
		}
	}
}

// TestCheckShared: what tasks share lies in fields that the explorer sees. A race in a plain one
// would never show, since nobody is switched between the look and the change.
func TestCheckShared(t *testing.T) {
	l := lab(t, 5)
	for _, tt := range []struct{ name, decls, want string }{
		{"all of kit", "type L struct { mu kit.Mutex; cond kit.Cond; held kit.Var[[]kit.Range] }", ""},
		{"embedded", "type L struct { kit.Mutex; cond kit.Cond }", ""},
		{"structs and arrays of it", "type shard struct { mu kit.Mutex; held kit.Var[int] }\ntype L struct { s [4]shard; in struct { c kit.Cond } }", ""},
		{"nodes that a Var points to", "type node struct { start uint64; next *node }\ntype L struct { root kit.Var[*node] }", ""},
		{"slice", "type L struct { held []kit.Range }", "x.go:4: field held is a plain []kit.Range, which the explorer does not see: want kit.Var[[]kit.Range]"},
		{"flag", "type L struct {\n mu kit.Mutex\n busy bool }", "x.go:6: field busy is a plain bool"},
		{"map", "type L struct { m map[int]bool }", "x.go:4: field m is a plain map[int]bool"},
		{"closure", "type L struct { f func() int }", "x.go:4: field f is a plain func() int"},
		{"pointer", "type in struct { n int }\ntype L struct { p *in }", "x.go:5: field p is a plain *in"},
		{"inner struct", "type in struct { n int }\ntype L struct { i in }", "x.go:4: field n is a plain int"},
		{"embedded struct", "type in struct { n int }\ntype L struct { in }", "x.go:4: field n is a plain int"},
		{"array", "type L struct { a [4]int }", "x.go:4: field a is a plain [4]int"},
		{"named", "type list []kit.Range\ntype L struct { l list }", "x.go:5: field l is a plain list"},
		{"another's Var", "type other struct{}\ntype L struct { v other }", ""},
		{"no struct", "type L []kit.Range", "x.go:3: func New does not return a pointer to a struct"},
		{"interface", "type I interface{ Lock() }\ntype L = I", "x.go:3: func New does not return a pointer to a struct"},
	} {
		got := checkText(t, "package p\nimport \"btrlab/labs/kit\"\nfunc New() *L { return &L{} }\n"+tt.decls+"\n", l.About().Code.Rules)
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: have %q want %q", tt.name, got, tt.want)
		}
	}
}

// TestCheckLends: a policy has shared fields, as a range lock has, and is handed operations, which
// no lab may copy.
func TestCheckLends(t *testing.T) {
	const src = "package p\nimport \"btrlab/labs/kit\"\ntype L struct{ n kit.Var[int] }\nfunc New() *L { return &L{} }\nfunc (l *L) Write(t *kit.Task, w *kit.WriteOp) { own := *w; own.Alone(t) }\n"
	for n, want := range map[int]string{5: "x.go:5: copies *w: what the grader has handed out", 12: "x.go:5: copies *w: what the grader has handed out"} {
		if got := checkText(t, src, lab(t, n).About().Code.Rules); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("lab %d: have %q want %q", n, got, want)
		}
	}
	if got := checkText(t, strings.Replace(src, "kit.Var[int]", "int", 1), lab(t, 12).About().Code.Rules); !strings.Contains(got, "field n is a plain int") {
		t.Errorf("have %q", got)
	}
}
