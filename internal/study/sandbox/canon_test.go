package sandbox

import (
	"strings"
	"testing"
)

// TestCanon: comments, layout and local names make no other code; everything that could be seen in
// an execution does.
func TestCanon(t *testing.T) {
	const src = `package p

import "btrlab/labs/kit"

type box struct{ n int }

func f(t *kit.Task, w *kit.LockedWrite) {
	sum := 0
again:
	for i := range 3 {
		if sum += i; sum > 7 {
			break again
		}
	}
	var x any = box{n: sum}
	switch v := x.(type) {
	case box:
		g(v.n)
	}
	const limit = 4
	g(limit)
}

func g(n int) int { return n }
`
	root, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	canon := func(src string) string {
		t.Helper()
		x, err := Check(t.Context(), root, []File{{"x.go", []byte(src)}}, Rules{Allowed: []string{KitPath}, Entry: "f", Want: "f"})
		if err != nil || len(x.Bad) > 0 || x.untyped != "" {
			t.Fatalf("%+v %v\n%s", x, err, src)
		}
		return x.canon
	}
	want := canon(src)
	for _, tt := range []struct {
		name string
		old  []string // and new
		same bool
	}{
		{"comments", []string{"sum := 0", "sum := 0 // from nothing", "func g", "/* this */\nfunc g"}, true},
		{"layout", []string{"\tsum := 0\n", "sum   :=  0;", "{ return n }", "{\n\n\treturn n;\n}"}, true},
		{"a local", []string{"sum", "total"}, true},
		{"a parameter", []string{"g(n int) int { return n }", "g(number int) int { return number }"}, true},
		{"a label", []string{"again", "more"}, true},
		{"a constant", []string{"limit", "most"}, true},
		{"of a type switch", []string{"v := x", "w := x", "v.n", "w.n"}, true},
		{"a name that hides another", []string{"sum := 0", "n := 0", "sum", "n"}, true},
		{"another name", []string{"g(v.n)", "_ = v; g(sum)"}, false},
		{"a number", []string{"> 7", "> 8"}, false},
		{"an operator", []string{"sum +=", "sum -="}, false},
		{"a function", []string{"g(", "h("}, false},
		{"a field", []string{"n int }", "m int }", "box{n:", "box{m:", "v.n", "v.m"}, false},
		{"a type", []string{"box", "bin"}, false},
		{"an order", []string{"g(limit)", "_ = g(limit)"}, false},
	} {
		if have := canon(strings.NewReplacer(tt.old...).Replace(src)); (have == want) != tt.same {
			t.Errorf("%s: the same is %v, want %v", tt.name, have == want, tt.same)
		}
	}
	swapped := strings.Replace(src, "func g(n int) int { return n }", "func g(n int) int { m := n; n = 2; return m + n }", 1)
	if canon(swapped) == canon(strings.Replace(swapped, "return m + n", "return n + m", 1)) {
		t.Error("two locals that change places are the same")
	}
}
