package drawn

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/judge/noticed"
)

const toy = `package toy

import "errors"

var errBig = errors.New("big")

// Clip returns x, at most most.
func Clip(x, most int, flags uint) (int, error) {
	if x > most && flags&1 != 0 {
		return 0, errBig
	}
	x = min(x, most)
	x += 0
	sink(x)
	for x < 0 {
		x++
	}
	return x, nil
}

func sink(int) {}

func never() bool {
	return true
}

func first(list []int) int {
	for i := 0; ; i++ {
		if list[i] == 0 {
			continue
		}
		return list[i]
	}
}

func (t toyType) String() string {
	if t == 1 {
		return "one"
	}
	return "many"
}

type toyType int
`

const toyTest = `package toy

import "testing"

func TestClip(t *testing.T) {
	if n, err := Clip(5, 3, 0); n != 3 || err != nil {
		t.Error(n, err)
	}
	if _, err := Clip(5, 3, 1); err == nil {
		t.Error("no error")
	}
	if n, _ := Clip(-2, 3, 1); n != 0 {
		t.Error(n)
	}
}
`

// toyModule is a module with one package and its test.
func toyModule(t *testing.T) string {
	top := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m\n\ngo 1.24\n", "toy/toy.go": toy, "toy/toy_test.go": toyTest} {
		name = filepath.Join(top, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(text), 0o644))
	}
	return top
}

// The operators find what they say, and nothing in texts.
func TestFind(t *testing.T) {
	sites, err := Find(toyModule(t), []string{"toy"})
	must(t, err)
	var have []string
	for _, s := range sites {
		have = append(have, s.Op+": "+noticed.OneLine(s.Old)+" -> "+noticed.OneLine(s.New))
	}
	for _, want := range []string{
		"negate: x > most && flags&1 != 0 -> !(x > most && flags&1 != 0)",
		"operand: x > most && flags&1 != 0 -> x > most",
		"operand: x > most && flags&1 != 0 -> flags&1 != 0",
		"bound: x > most -> x >= most",
		"equal: flags&1 != 0 -> flags&1 == 0",
		"bits: flags&1 -> flags",
		"extreme: min(x, most) -> max(x, most)",
		"drop: sink(x) -> ",
		"drop: x++ -> ",
		"arithmetic: x += 0 -> x -= 0",
		"swap: x += 0; sink(x) -> sink(x); x += 0",
		"early return:  -> return *new(int), *new(error) before sink(x)",
		"constant: return true -> return false",
	} {
		if !slices.Contains(have, want) {
			t.Errorf("no site %q in\n%s", want, strings.Join(have, "\n"))
		}
	}
	ids := map[string]bool{}
	for _, s := range sites {
		if ids[s.ID] || strings.Contains(s.ID, "String") || strings.Contains(s.ID, "errBig=") {
			t.Errorf("site %s twice, or in a text", s.ID)
		}
		ids[s.ID] = true
	}
}

// A seed draws the same sites however many are wanted, no two of which overlap, and in the long run
// every site.
func TestDraw(t *testing.T) {
	sites, err := Find(toyModule(t), []string{"toy"})
	must(t, err)
	few, many := Draw(sites, 3, "a"), Draw(sites, 6, "a")
	if !slices.Equal(few, many[:3]) || slices.Equal(few, Draw(sites, 3, "b")) {
		t.Error("the seed does not decide what is drawn")
	}
	for i, s := range many {
		for _, o := range many[:i] {
			if s.start < o.end && o.start < s.end {
				t.Errorf("%s overlaps %s", s.ID, o.ID)
			}
		}
	}
	seen := map[*Site]bool{}
	for _, seed := range strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y z 1 2 3 4 5 6 7 8 9") {
		for _, s := range Draw(sites, 4, seed) {
			seen[s] = true
		}
	}
	if len(seen) != len(sites) {
		t.Errorf("35 seeds draw %d of %d sites", len(seen), len(sites))
	}
}

// Each verdict comes out of what a test binary really says. A site that the compiler does not take
// is left out, also one whose error is on another line: an endless loop that is left misses a
// return at the brace of its function. The others of its build stay.
func TestVerdicts(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command six times")
	}
	top := toyModule(t)
	all, err := Find(top, []string{"toy"})
	must(t, err)
	find := func(op, old, new string) *Site {
		for _, s := range all {
			if s.Op == op && s.Old == old && s.New == new {
				return s
			}
		}
		t.Fatalf("no site %s of %q", op, old)
		return nil
	}
	unbuilt := *find("drop", "sink(x)", "")
	unbuilt.text = func(int) string { return "sink(nothing)" }
	sites := []*Site{
		find("bound", "x > most", "x >= most"),
		find("equal", "flags&1 != 0", "flags&1 == 0"),
		&unbuilt,
		find("branch", "continue", "break"),
		find("drop", "x++", ""),
		find("constant", "return true", "return false"),
	}
	want := []noticed.Verdict{noticed.Survives, noticed.Killed, noticed.Hangs, noticed.Unreached}
	dir := t.TempDir()
	sites, overlay, err := Build(dir, top, sites, len(sites))
	must(t, err)
	bins, err := Link(dir, top, overlay, []string{"./toy"})
	must(t, err)
	if len(sites) != len(want) {
		t.Fatalf("%d sites build, want %d", len(sites), len(want))
	}
	names, err := bins[0].Tests()
	must(t, err)
	reach := make([][]Test, len(sites)+1)
	for _, name := range names {
		test, at, err := bins[0].Reach(name, t.TempDir())
		must(t, err)
		for _, n := range at {
			reach[n] = append(reach[n], test)
		}
	}
	patience = 2 * time.Second
	var outcomes []Outcome
	for i, s := range sites {
		v, by := Try(s, reach[s.nth])
		if v != want[i] || v == noticed.Killed && by != "TestClip" {
			t.Errorf("%s: %v by %q, want %v", s.ID, v, by, want[i])
		}
		outcomes = append(outcomes, Outcome{Site: s, Verdict: v})
	}
	if s := noticed.Share(Faults(outcomes)); s != 0.5 {
		t.Errorf("%.2f of the faults noticed, want 0.5", s)
	}
	outcomes[0].Argued = "x at the bound is clipped to itself"
	if s := noticed.Share(Faults(outcomes)); s < 0.66 || s > 0.67 {
		t.Errorf("%.2f of the faults noticed with one argued, want 2/3", s)
	}
	if text := noticed.Table(Faults(outcomes)); !strings.Contains(text, "toy                            4       1       1           1        0           1") || !strings.Contains(text, "never:constant") ||
		strings.Contains(text, "x>most") {
		t.Errorf("the report:\n%s", text)
	}
}
