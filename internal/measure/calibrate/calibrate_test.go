package calibrate

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// TestRun: a calibration of one short round measures every cost of the table, tells how, and gives
// a table that vtime can load. What it measures is the machine's and not judged.
func TestRun(t *testing.T) {
	task := sched.NewTask("test")
	r, err := Run(task, Options{Rounds: 1, Passes: 1, Loop: time.Millisecond, Size: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Lines) != int(cost.Count) {
		t.Fatalf("have %d costs, want %d", len(r.Lines), cost.Count)
	}
	for i, l := range r.Lines {
		switch {
		case l.How == "":
			t.Errorf("%s: have no way to measure it, want a loop or a path", l.Name)
		case sched.Cost(i) == cost.RangeState: // a part of range-tree
		case !l.Measured && r.CPUs > 1:
			t.Errorf("%s: not measured, with %d processors", l.Name, r.CPUs)
		case l.Nano < l.Low || l.Nano > l.High || math.IsNaN(l.Nano) || math.IsInf(l.Nano, 0):
			t.Errorf("%s: have %g ns in [%g, %g]", l.Name, l.Nano, l.Low, l.High)
		}
	}
	// These cannot be free, and are not the difference of two loops.
	for _, c := range []sched.Cost{cost.Page, cost.Lock, cost.RangeTree, cost.PageAlloc} {
		if r.Lines[c].Nano <= 0 {
			t.Errorf("%s: have %g ns, want more than 0", r.Lines[c].Name, r.Lines[c].Nano)
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	loaded := cost.Default()
	if err := loaded.Load(strings.NewReader(string(b))); err != nil {
		t.Fatal(err)
	}
	table := r.Table()
	for i := range loaded.Entries {
		if have, want := loaded.Entries[i].Nano, table.Entries[i].Nano; have != want {
			t.Errorf("%s: the file says %g, the result %g", table.Entries[i].Name, have, want)
		}
	}
	var out strings.Builder
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

// Two passes that agree are the result, all their rounds; a machine on which none do is refused,
// with what is furthest apart.
func TestAgreed(t *testing.T) {
	of := func(rounds []round) *Result {
		r := &Result{Rounds: len(rounds), Lines: []Line{{Name: "page"}, {Name: "line"}}}
		for i := range r.Lines {
			r.Lines[i].Nano, _, _ = middleOf(rounds, func(x *round) float64 { return x.ns[i] })
		}
		return r
	}
	passes := func(line ...float64) func(int) ([]round, error) {
		return func(n int) ([]round, error) {
			r := make([]round, 2)
			for i := range r {
				r[i].ns[0], r[i].ns[1] = 10+float64(n), line[n]
			}
			return r, nil
		}
	}
	for _, c := range []struct {
		line []float64
		most int
		want int // rounds of the result
	}{
		{[]float64{80, 90}, 5, 4},
		{[]float64{80, 684, 700}, 5, 4},
		{[]float64{80}, 1, 2},
		{[]float64{80, 160, 80, 684_000}, 4, 0},
	} {
		r, err := agreed(c.most, passes(c.line...), of)
		var d *Disturbed
		switch {
		case c.want > 0 && (err != nil || r.Rounds != c.want):
			t.Errorf("%v: %+v, %v, want the %d rounds of two passes", c.line, r, err, c.want)
		case c.want == 0 && (!errors.As(err, &d) || d.Cost != "line" || d.B != 684_000 || !strings.Contains(err.Error(), "not quiet")):
			t.Errorf("%v: %+v, %v, want the machine refused for its line", c.line, r, err)
		}
	}
}

// TestShare: what an operation takes beyond the known costs goes to its rest in the proportion of
// the model, and nothing else changes.
func TestShare(t *testing.T) {
	p := path{rest: []sched.Cost{cost.Submit, cost.Complete}}
	var ns, units [cost.Count]float64
	ns[cost.Copy], ns[cost.Submit], ns[cost.Complete], ns[cost.Item] = 0.5, 100, 300, 7
	units[cost.Copy], units[cost.Submit], units[cost.Complete] = 4000, 2, 1
	p.share(&ns, &units, 3000) // 1000 ns are left for 500
	if ns[cost.Submit] != 200 || ns[cost.Complete] != 600 || ns[cost.Copy] != 0.5 || ns[cost.Item] != 7 {
		t.Errorf("have %v", ns)
	}
	p.share(&ns, &units, 1000) // less than the copy alone
	if ns[cost.Submit] != 0 || ns[cost.Complete] != 0 {
		t.Errorf("have %g and %g, want nothing", ns[cost.Submit], ns[cost.Complete])
	}
}

// TestUnits: the counts of the paths are those of the write path: a 64 KiB write moves sixteen
// times the bytes of a 4 KiB one in one call.
func TestUnits(t *testing.T) {
	var small, large [cost.Count]float64
	for i := range paths {
		var err error
		switch p := &paths[i]; p.name {
		case "write 4k":
			small, err = p.units(16 << 20)
		case "write 64k":
			large, err = p.units(16 << 20)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for c, want := range map[sched.Cost][2]float64{cost.Copy: {4096, 65536}, cost.Page: {1, 16}, cost.Syscall: {1, 1}, cost.Reserve: {1, 1}, cost.Cold: {1, 1}} {
		if have := [2]float64{small[c], large[c]}; have != want {
			t.Errorf("cost %d: have %v want %v", c, have, want)
		}
	}
}

// TestLoads: each load runs in virtual time, the same every time, and its writes cost what the
// table says: with copies ten times as dear a job of large writes is slower.
func TestLoads(t *testing.T) {
	run := func(l *Load, costs cost.Table) (v float64) {
		_, err := vtime.Run(vtime.Machine{CPUs: 2, Costs: &costs, GoLocks: true}, func(t *sched.Task) {
			var lerr error
			if v, lerr = l.Run(t, 16<<20, 20); lerr != nil {
				panic(lerr)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	dear := cost.Default()
	dear.Entries[cost.Copy].Nano *= 10
	for i := range Loads {
		l := &Loads[i]
		a := run(l, cost.Default())
		if b := run(l, cost.Default()); a != b || a == 0 {
			t.Errorf("%s, %s: have %g and %g operations a second", l.Name, l.Policy, a, b)
		}
		if b := run(l, dear); b >= a {
			t.Errorf("%s, %s: %g operations a second, and %g with dear copies", l.Name, l.Policy, a, b)
		}
	}
}
