package conform

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// traceOf parses steps with semicolons between them.
func traceOf(t *testing.T, text string) []PairStep {
	t.Helper()
	return pairTrace(t, strings.ReplaceAll(text, "; ", "\n"))
}

// Of the steps of a task the next one must come, and of two tasks those in any order that do not
// depend on each other.
func TestGuide(t *testing.T) {
	for _, c := range []struct{ name, want, made, wrong string }{
		{"the same", "t lock LOCKED [0,4k); s lock LOCKED [4k,8k)", "t lock LOCKED [0,4k); s lock LOCKED [4k,8k)", ""},
		{"independent, swapped", "t lock LOCKED [0,4k); s lock LOCKED [4k,8k)", "s lock LOCKED [4k,8k); t lock LOCKED [0,4k)", ""},
		{"dependent, swapped", "t unlock LOCKED [0,8k); s lock LOCKED [4k,8k)", "s lock LOCKED [4k,8k)", "comes before t unlock LOCKED [0,8k)"},
		{"one of its own task left out", "t lock LOCKED [0,4k); t lock LOCKED [4k,8k)", "t lock LOCKED [4k,8k)", "where the kernel has t lock LOCKED [0,4k)"},
		{"the range of another one", "t lock LOCKED [0,4k)", "t lock LOCKED [0,8k)", "where the kernel has t lock LOCKED [0,4k)"},
		{"another bit", "t lock LOCKED [0,4k)", "t lock DIO_LOCKED [0,4k)", "where the kernel has t lock LOCKED [0,4k)"},
		{"one more", "t lock LOCKED [0,4k)", "t lock LOCKED [0,4k); t unlock LOCKED [0,4k)", "where the kernel has no step more"},
		{"one of a task that has none", "t lock LOCKED [0,4k)", "s lock LOCKED [8k,12k)", "where the kernel has no step more"},
	} {
		g := &guide{want: traceOf(t, c.want)}
		g.made = make([]bool, len(g.want))
		for _, s := range traceOf(t, c.made) {
			if g.wrong != "" {
				t.Errorf("%s: wrong before the last step: %s", c.name, g.wrong)
			}
			g.take(&s)
		}
		if c.wrong == "" && (g.wrong != "" || g.first != len(g.want)) || !strings.Contains(g.wrong, c.wrong) {
			t.Errorf("%s: %q after %d of %d steps, want %q", c.name, g.wrong, g.first, len(g.want), c.wrong)
		}
	}
}

// recordedPair is a recorded pair.
func recordedPair(t *testing.T, name string) *PairRun {
	t.Helper()
	r, err := OpenPairs()
	if err != nil {
		t.Fatal(err)
	}
	r.Only([]string{name})
	if len(r.Runs) != 1 {
		t.Fatalf("%d pairs are named %s, want 1", len(r.Runs), name)
	}
	return r.Runs[0]
}

// A trace with one step more than the engine makes is none of its own.
func TestGuideEndsEarly(t *testing.T) {
	run := recordedPair(t, "append-append")
	img, err := makeImage(DefaultSize)
	if err != nil {
		t.Fatal(err)
	}
	drop, err := run.single(img, Policy)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(run.Together[0], func(s PairStep) bool { return drop[s.String()] })
	want = append(want, traceOf(t, "s lock LOCKED [1m,2m)")...)
	if ok, why, err := accepts(img, run.Pair, Policy, want, drop); ok || err != nil || why != "the engine ends without s lock LOCKED [1m,2m)" {
		t.Errorf("accepted %v, %q, %v", ok, why, err)
	}
}

// The steps that are left out are those that one task alone has more often on one side, and no
// other: not the other task's with the same text.
func TestSingle(t *testing.T) {
	run := *recordedPair(t, "fsync-fsync")
	img, err := makeImage(DefaultSize)
	if err != nil {
		t.Fatal(err)
	}
	for i := range run.Alone {
		events, err := pairEngine(img, run.Pair.only(i), Policy, &guide{rng: rand.New(rand.NewPCG(1, 1))})
		if err != nil {
			t.Fatal(err)
		}
		run.Alone[i] = stepsOf(events)
	}
	if drop, err := run.single(img, Policy); err != nil || len(drop) > 0 {
		t.Errorf("of the engine beside itself %v is left out, %v", drop, err)
	}
	gone := run.Alone[0][0].String()
	run.Alone[0] = run.Alone[0][1:]
	run.Alone[1] = append(run.Alone[1], traceOf(t, "s lock LOCKED [1m,2m)")...)
	want := map[string]bool{gone: true, "s lock LOCKED [1m,2m)": true}
	if drop, err := run.single(img, Policy); err != nil || !reflect.DeepEqual(drop, want) {
		t.Errorf("%v is left out, %v, want %v", drop, err, want)
	}
}

// Steps that are not compared are not changed either: such a change would be rejected for nothing.
func TestJudgeDropped(t *testing.T) {
	run := *recordedPair(t, "fsync-fsync")
	run.Alone = [2][]PairStep{} // what the engine does, this kernel never has
	for _, c := range []struct {
		trace string
		want  PairResult
	}{
		{"t inode_lock file; t inode_unlock file", PairResult{Traces: 1, Accepted: 1, Steps: 2, Dropped: 2}},
		{"t inode_lock file; t inode_unlock file; s lock LOCKED [1m,2m)", PairResult{Traces: 1, Steps: 3, Dropped: 2, Why: []string{"the engine ends without s lock LOCKED [1m,2m)"}}},
	} {
		run.Together = [][]PairStep{traceOf(t, c.trace)}
		c.want.Pair, c.want.Name = run.Pair, run.Pair.Name
		x, err := run.Judge(Policy, 3)
		if err != nil {
			t.Fatal(err)
		}
		c.want.Turns = x.Turns
		if !reflect.DeepEqual(x, &c.want) {
			t.Errorf("%s: %+v, want %+v", c.trace, *x, c.want)
		}
	}
}

// A bit of a page that goes was a lock, and a step may change two bits that lock.
func TestStepsOfBits(t *testing.T) {
	for _, c := range []struct{ name, about, want string }{
		{"clear_extent_bit", "ALL [0,4k)", "t unlock LOCKED [0,4k)"},
		{"clear_extent_bit", "LOCKED|DIO_LOCKED [4k,8k)", "t unlock LOCKED [4k,8k); t unlock DIO_LOCKED [4k,8k)"},
		{"set_extent_bit", "DIRTY|LOCKED [0,end)", "t lock LOCKED [0,end)"},
		{"set_extent_bit", "DELALLOC [0,4k)", ""},
	} {
		var have []string
		for _, s := range pairSteps(&Event{Group: Bits, Name: c.name, About: c.about}) {
			have = append(have, s.String())
		}
		if strings.Join(have, "; ") != c.want {
			t.Errorf("%s %s: %q, want %q", c.name, c.about, have, c.want)
		}
	}
}

// A shared lock counts from the next step on as well, and a task lets go other ranges than the one
// that it waits for.
func TestLockLateShared(t *testing.T) {
	told := []Event{
		{Lane: Caller, Group: InodeLocks, Name: "inode_lock", About: "file"},
		{Lane: Second, Group: InodeLocks, Name: "inode_lock_shared", About: "file"},
		{Lane: Caller, Group: InodeLocks, Name: "inode_unlock", About: "file"},
		{Lane: Second, Group: Bits, Name: "set_extent_bit", About: "LOCKED [8k,16k)"},
		{Lane: Second, Group: Bits, Name: "clear_extent_bit", About: "LOCKED [0,4k)"},
	}
	want := fmt.Sprint(traceOf(t, "t inode_lock file; t inode_unlock file; s inode_lock_shared file; s lock LOCKED [8k,16k); s unlock LOCKED [0,4k)"))
	if have := fmt.Sprint(stepsOf(lockLate(told))); have != want {
		t.Errorf("%s, want %s", have, want)
	}
}

// Workers take no turns. Kept are the traces with the most turns, each once.
func TestKeep(t *testing.T) {
	const a, b = "t lock LOCKED [0,4k); ", "s lock LOCKED [4k,8k); "
	once := traceOf(t, a+"e lock LOCKED [8k,12k); t unlock LOCKED [0,4k); "+strings.TrimSuffix(b, "; "))
	if n := mixed(once); n != 1 {
		t.Errorf("%d turns, want 1", n)
	}
	var traces [][]PairStep
	for n := range kept + 2 {
		steps := traceOf(t, strings.TrimSuffix(strings.Repeat(a+b, n+1), "; "))
		traces = append(traces, steps, steps)
	}
	var have []int
	for _, steps := range keep(traces) {
		have = append(have, mixed(steps))
	}
	if want := []int{11, 9, 7, 5}; !reflect.DeepEqual(have, want) {
		t.Errorf("kept are traces with %d turns, want %d", have, want)
	}
}

// Each change is the one that it is said to be, and none is drawn twice.
func TestMutants(t *testing.T) {
	trace := traceOf(t, "t inode_lock file; t inode_unlock file; s inode_lock file; s lock LOCKED [0,4k); e unlock LOCKED [0,4k); s inode_unlock file")
	for _, p := range []*Pair{{First: "fsync f", Other: "fsync f"}, {First: "fsync f", Other: "start f"}} {
		rng, seen, drawn := rand.New(rand.NewPCG(1, 1)), map[string]bool{}, 0
		for range 400 {
			changed, how := p.mutant(trace, rng, seen)
			if changed == nil {
				continue
			}
			drawn++
			kind, text, _ := strings.Cut(how, ": ")
			at := 0
			for at < min(len(changed), len(trace)) && changed[at] == trace[at] {
				at++
			}
			ok := false
			switch kind {
			case "a step left out":
				ok = len(changed) == len(trace)-1 && trace[at].String() == text
			case "a step twice":
				ok = len(changed) == len(trace)+1 && trace[at-1].String() == text
			case "a step of the other task":
				ok = p.First != p.Other && len(changed) == len(trace) && changed[at].Lane == Second-trace[at].Lane && changed[at].text() == trace[at].text() && trace[at].Lane != Elsewhere
			case "a lock taken too early":
				ok = len(changed) == len(trace) && changed[at].String() == text && strings.Contains(trace[at].Name, "unlock")
			}
			if !ok {
				t.Fatalf("%s: step %d of %v", how, at, changed)
			}
		}
		want := 6 + 6 + 1 // left out, twice, the inode's lock
		if p.First != p.Other {
			want += 5
		}
		if drawn != want {
			t.Errorf("%d changes are drawn, want %d", drawn, want)
		}
	}
}

// A lock is handed over where no other order can be: by the same bit, not between two that share,
// and where the taker has no step of its own before.
func TestHanded(t *testing.T) {
	for _, c := range []struct {
		trace string
		want  bool
	}{
		{"t inode_unlock file; s inode_lock file", true},
		{"t inode_unlock file; s inode_lock_shared file", true},
		{"t inode_unlock_shared file; s inode_lock file", true},
		{"t inode_unlock_shared file; s inode_lock_shared file", false},
		{"t unlock LOCKED [0,4k); s lock LOCKED [0,8k)", true},
		{"t unlock LOCKED [0,4k); s lock DIO_LOCKED [0,8k)", false},
		{"t unlock LOCKED [0,4k); s lock LOCKED [4k,8k)", false},
		{"t unlock LOCKED [0,4k); s writeback_dirty_folio page 5; s lock LOCKED [0,8k)", false},
		{"t unlock LOCKED [0,4k); t lock LOCKED [0,8k)", false},
		{"t lock LOCKED [0,4k); s lock LOCKED [0,8k)", false},
	} {
		trace := traceOf(t, c.trace)
		if at, to, ok := handedOver(trace, 0); ok != c.want || ok && (at != 0 || to != len(trace)-1) {
			t.Errorf("%s: %d, %d, %v, want %v", c.trace, at, to, ok, c.want)
		}
	}
}

// A recording is read step by step; a pair that the table has no longer is left out, and its steps
// are no other one's.
func TestReadTraces(t *testing.T) {
	const first, other, one, two = "t inode_lock file\n", "s inode_unlock file\n", "t lock LOCKED [0,4k)\n", "e unlock LOCKED [0,4k)\n"
	const gone = "== gone-pair\n-- first\n" + two + "-- other\n" + two + "-- together\n" + two
	const kept = "== write-write\n-- first\n" + first + "-- other\n" + other + "-- together\n" + one + "-- together\n" + two
	const head = "# Linux 6.18.15\n# functions\n"
	r, err := ReadPairs(strings.NewReader(head + gone + kept + gone))
	if err != nil {
		t.Fatal(err)
	}
	want := &PairRun{Pair: FindPair("write-write"), Alone: [2][]PairStep{pairTrace(t, first), pairTrace(t, other)}, Together: [][]PairStep{pairTrace(t, one), pairTrace(t, two)}}
	if r.Release != "6.18.15" || !r.Functions || len(r.Runs) != 1 || !reflect.DeepEqual(r.Runs[0], want) {
		t.Errorf("read is %+v", r)
	}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil || b.String() != head+kept {
		t.Errorf("written is\n%s%v", &b, err)
	}
	if r, err = ReadPairs(strings.NewReader("# Linux 6.18.15\n")); err != nil || r.Functions {
		t.Errorf("a kernel without functions is read as %+v, %v", r, err)
	}
}

// Without names all pairs are meant.
func TestNamesOfPairs(t *testing.T) {
	if n := len(pairsOf(nil)); n != len(Pairs) {
		t.Errorf("%d pairs without a name, want %d", n, len(Pairs))
	}
	if l := pairsOf([]string{"write-read", "append-append"}); len(l) != 2 || l[0].Name != "append-append" || l[1].Name != "write-read" {
		t.Errorf("two names give %v", l)
	}
}

// The table has the sums, and a changed trace that is accepted is no rejected one. A kernel without
// functions is said to be one.
func TestTableOfPairs(t *testing.T) {
	a := &PairResult{Pair: &Pairs[0], Name: "a", Traces: 4, Accepted: 2, Turns: 7, Steps: 100, Dropped: 10}
	b := &PairResult{Pair: &Pairs[1], Name: "b", Traces: 1, Accepted: 1, Turns: 1, Steps: 20, Dropped: 5}
	a.changed("one", false)
	a.changed("two", true)
	b.changed("three", false)
	var out bytes.Buffer
	if err := WritePairs(&out, &PairRecord{Release: "6.18.15"}, Policy, []*PairResult{a, b}); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"a 4 7 100 90 2 2 1", "b 1 1 20 15 1 1 1", "all 5 120 105 3 3 2", "a: accepted with two", "This kernel shows no functions"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}
