package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The driver itself, on a module of one function: each verdict comes out of what go test really
// says.
func TestDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command a dozen times")
	}
	top := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module m\n\ngo 1.24\n",
		"a/a.go":      "package a\n\nfunc Small(x int) bool {\n\treturn x < 3\n}\n\nfunc Unused() int {\n\treturn 1\n}\n",
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestSmall(t *testing.T) {\n\tif !Small(2) || Small(4) {\n\t\tt.Error(\"wrong\")\n\t}\n}\n\nfunc TestNothing(t *testing.T) {}\n",
		"c/c.go":      "package c\n\nfunc Small(x int) bool {\n\treturn x < 3\n}\n",
		"c/c_test.go": "package c\n\nimport (\n\t\"testing\"\n\t\"time\"\n)\n\nfunc TestLong(t *testing.T) {\n\tfor began := time.Now(); time.Since(began) < time.Second; {\n\t}\n\tif Small(4) {\n\t\tt.Error(\"wrong\")\n\t}\n}\n",
		"b/b.go":      "package b\n",
		"b/b_test.go": "package b\n\nimport \"testing\"\n\nfunc TestRed(t *testing.T) { t.Error(\"red\") }\n",
	} {
		name = filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	small := func(id, to, test, why string) *fault {
		return &fault{id: id, file: "a/a.go", pkg: "./a", test: test, equivalent: why, old: "\treturn x < 3\n", new: to}
	}
	faults := []*fault{
		small("killed", "\treturn x < 5\n", "", ""),
		small("survives", "\treturn x < 4\n", "", ""),
		small("not-looked-at", "\treturn x < 5\n", "TestNothing", ""),
		small("no-tests", "\treturn x < 5\n", "TestSmal$", ""),
		small("hangs", "\tfor x != 3 {\n\t}\n\treturn true\n", "", ""),
		small("unbuilt", "\treturn 3\n", "", ""),
		{id: "equivalent", file: "a/a.go", pkg: "./a", equivalent: "nobody calls it", old: "return 1", new: "return 2"},
		small("refuted", "\treturn x < 5\n", "", "said to be"),
	}
	want := []verdict{killed, survives, survives, noTests, hangs, unbuilt, equivalent, refuted}
	for i, f := range faults {
		if o := try(t.TempDir(), top, 2*time.Second, f); o.verdict != want[i] {
			t.Errorf("%s: %v, want %v\n%s", f.id, o.verdict, want[i], o.output)
		}
	}
	// A test that takes longer than its time does not hang: it takes as long without the fault.
	long := &fault{id: "long", file: "c/c.go", pkg: "./c", old: "\treturn x < 3\n", new: "\treturn x < 5\n"}
	if o := try(t.TempDir(), top, 500*time.Millisecond, long); o.verdict != killed {
		t.Errorf("on a slow machine: %v, want killed\n%s", o.verdict, o.output)
	}
	red := healthy(top, []*fault{{pkg: "./a ./b"}, {pkg: "./b", test: "TestRed"}})
	if len(red) != 1 || !strings.Contains(string(red["./b"]), "TestRed") {
		t.Errorf("packages whose tests fail without a fault: %s", red)
	}
	src, err := os.ReadFile(filepath.Join(top, "a/a.go"))
	if err != nil || !strings.Contains(string(src), "x < 3") {
		t.Errorf("the tree has changed, %v:\n%s", err, src)
	}
}

// A sample is the same for one commit and another for the next, and in the long run every fault is
// drawn.
func TestDraw(t *testing.T) {
	var faults []*fault
	for i := range 100 {
		faults = append(faults, &fault{id: fmt.Sprint("fault-", i)})
	}
	ids := func(faults []*fault) (s []string) {
		for _, f := range faults {
			s = append(s, f.id)
		}
		return s
	}
	one, seen := ids(draw(faults, 20, "abc")), map[string]bool{}
	slices.Reverse(faults)
	if again := ids(draw(faults, 20, "abc")); !slices.Equal(one, again) || len(one) != 20 {
		t.Errorf("drawn %v, then %v", one, again)
	}
	for i := range 100 {
		for _, id := range ids(draw(faults, 20, fmt.Sprint("commit ", i))) {
			seen[id] = true
		}
	}
	if len(seen) != 100 || len(draw(faults, 200, "x")) != 100 {
		t.Errorf("a hundred commits draw %d of 100 faults", len(seen))
	}
}

// The report counts by room, leaves equivalent faults out of the share, and names each survivor.
func TestReport(t *testing.T) {
	var outcomes []outcome
	for i, v := range []verdict{killed, killed, equivalent, survives, hangs} {
		f := &fault{id: fmt.Sprint("f", i), file: "internal/lock/lock.go", why: "why", equivalent: "as good"}
		if i == 1 {
			f.file = "internal/sched/explore/dpor.go"
		}
		outcomes = append(outcomes, outcome{fault: f, verdict: v, stuck: i == 0, took: 1e9})
	}
	const want = `room                     planted  killed (stuck)  equivalent  survive     time
lock                           4       1       1           1        2      4 s
sched/explore                  1       1       0           0        0      1 s
all                            5       2       1           1        2      5 s
killed 50.0 % of the 4 that are not equivalent

equivalent:
f2: why
  equivalent: as good

survivors:
f3 survives: why
f4 hangs: why
`
	if have := table(outcomes); have != want {
		t.Errorf("have\n%s\nwant\n%s", have, want)
	}
}
