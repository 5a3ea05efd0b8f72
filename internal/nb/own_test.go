package nb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/testing/need"
)

// TestOwnPolicy: the tries of the tutorial, as its notebook has them. The second breaks
// two-writers-same, and the third nothing that locked keeps.
func TestOwnPolicy(t *testing.T) {
	need.Long(t)
	code := func(try string) string {
		b, err := os.ReadFile("../study/own/testdata/" + try + "/policy.go")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, bad := range []string{"package x", "package x\n\nfunc Write() {}", "what is this"} {
		if _, err := OwnPolicy("bad", bad); err == nil {
			t.Errorf("%q is a policy", bad)
		}
	}
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/abs"} {
		if _, err := OwnPolicy(name, code("try1")); err == nil {
			t.Errorf("a policy with the name %q", name)
		}
	}
	if text, err := Template("locked"); err != nil || !strings.Contains(text, "func New() *Policy") {
		t.Errorf("template: %v %.100q", err, text)
	}
	if _, err := Template("none"); err == nil {
		t.Error("a template of no preset")
	}

	two, err := OwnPolicy("two", code("try2"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := ExploreOwn(two, "two-writers-same")
	if err != nil || e.Kept() || e.Schedule == "" {
		t.Fatalf("two-writers-same: %v %+v", err, e)
	}
	p, err := ReplayOwn(two, "two-writers-same", e.Schedule)
	if err != nil || !strings.Contains(p.text, "policy.go:") {
		t.Errorf("replay: %v, its page names no line of the policy", err)
	}
	if html := p.SimpleRender()["text/html"].(string); !strings.Contains(html, "<iframe") || !strings.Contains(html, e.Schedule) {
		t.Errorf("the page shows itself as %.200s", html)
	}
	for _, bad := range []string{"", "no-such"} {
		if _, err := ExploreOwn(two, bad); err == nil {
			t.Errorf("scenario %q was explored", bad)
		}
	}
	if _, err := ReplayOwn(two, "two-writers-same", "x"); err == nil {
		t.Error("schedule x was replayed")
	}
	r, err := TryOwn(two, 300, 0.02)
	if err != nil {
		t.Fatal(err)
	}
	if r.Kept() || r.Ratio("locked") != 1 || r.Ratio("none") != 0 {
		t.Fatalf("kept %v, locked %.2f times itself", r.Kept(), r.Ratio("locked"))
	}
	if b := r.Broken(); len(b.Rows) == 0 || len(b.Rows[0]) != len(b.Head) {
		t.Errorf("%+v", b)
	}
	if tab := r.Table(); len(tab.Rows) != 4 || tab.Rows[2][1] == "0" || tab.Rows[3][1] != "2" {
		t.Errorf("%+v", tab)
	}
	if w := r.Waits(); len(w.Head) != 3 || len(w.Rows) == 0 || len(w.Rows[0]) != 3 {
		t.Errorf("%+v", w)
	}
	if f, err := r.Ratios(); err != nil || !strings.Contains(f.Alt, " two ") || len(f.PNG) == 0 {
		t.Errorf("%v %q", err, f.Alt)
	}
	bin := two.bin
	if two.Close(); bin == "" {
		t.Error("no program")
	} else if _, err := os.Stat(bin); err == nil {
		t.Error("the program is there after Close")
	}
	for _, bad := range []struct {
		n int
		s float64
	}{{0, 1}, {MaxSchedules + 1, 1}, {1, 0}, {1, MaxVirtual + 1}} {
		if _, err := TryOwn(two, bad.n, bad.s); err == nil {
			t.Errorf("%+v ran", bad)
		}
	}

	boom, err := Replace(code("try1"), `func (p *Policy) Write(t *kit.Task, w *kit.WriteOp) { panic("boo") }`)
	if err != nil {
		t.Fatal(err)
	}
	one, err := OwnPolicy("one", boom)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if r, err = TryOwn(one, 20, 0.01); err != nil || r.Kept() || len(r.Broken().Rows) < 10 || r.Ratio("locked") != 0 {
		t.Errorf("a policy that panics: %v %+v", err, r)
	} else if _, err := r.Ratios(); err == nil {
		t.Error("a policy that panics was measured")
	}
	out, err := one.run("policy", "test", one.dir, "--schedules", "5", "--runtime-seconds", "0", "--json", "--out", filepath.Join(t.TempDir(), "one.html"))
	if err != nil || !strings.Contains(string(out), "no power was cut") {
		t.Errorf("power cuts of a policy that panics: %v", err)
	}

	three, err := OwnPolicy("three", code("try3"))
	if err != nil {
		t.Fatal(err)
	}
	defer three.Close()
	if r, err = TryOwn(three, 300, 0.02); err != nil || !r.Kept() || len(r.Broken().Rows) != 0 || !(r.Ratio("three") > 0) {
		t.Errorf("the third try: %v, kept %v, ratio %.2f", err, r.Kept(), r.Ratio("three"))
	}
}

// TestReplace: a function takes the place of the method or the function of its name, and of no
// other.
func TestReplace(t *testing.T) {
	const code = "package mine\n\n// Write does.\nfunc (p *P) Write() { a() }\n\nfunc Read() { b() }\n"
	have, err := Replace(code, "func (p *P) Write() { c() }\nfunc New() { d() }")
	if want := "package mine\n\n// Write does.\nfunc (p *P) Write() { c() }\n\nfunc Read() { b() }\n\nfunc New() { d() }\n"; err != nil || have != want {
		t.Errorf("%v\n%s", err, have)
	}
	if have, err = Replace(code, "func Write() { c() }"); err != nil || !strings.Contains(have, "a()") || !strings.Contains(have, "c()") {
		t.Errorf("a function took the place of a method: %v\n%s", err, have)
	}
	for _, bad := range [][2]string{{code, "func ("}, {code, "var x int"}, {"no Go", "func X() {}"}} {
		if _, err := Replace(bad[0], bad[1]); err == nil {
			t.Errorf("%q into %q", bad[1], bad[0])
		}
	}
}
