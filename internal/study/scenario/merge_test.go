package scenario

import (
	"bytes"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// part is the outcome of shard n of 3.
func part(n int, v explore.Verdict, pre int, schedule string) Result {
	return Result{Scenario: "s", Policy: "p", Method: "bound", Rule: "r", Shard: n, Shards: 3, Verdict: v, Preemptions: pre, Schedule: schedule,
		Schedules: 10, Cut: 2, Steps: 100, Seconds: float64(n)}
}

// What shards say together is what the weakest of them says: a missing one makes the whole bounded,
// and so does a bounded one, by the least of the bounds. Of several violations the one with the
// fewest preemptions is shown.
func TestMerge(t *testing.T) {
	done := func(n int) Result { return part(n, explore.Exhausted, 3, "") }
	for _, c := range []struct {
		name    string
		parts   []Result
		verdict explore.Verdict
		pre     int
		sched   string
		says    string
	}{
		{"all", []Result{done(2), done(0), done(1)}, explore.Exhausted, 3, "", "exhausted: 30 schedules in 3 shards"},
		{"one missing", []Result{done(0), done(2)}, explore.Bounded, 3, "", "no violation in 20 schedules (1 of 3 shards missing)"},
		{"one bounded", []Result{done(0), part(1, explore.Bounded, 2, ""), done(2)}, explore.Bounded, 2, "",
			"no violation in 30 schedules of 3 shards (preemptions <= 2, limit reached)"},
		{"the least bound", []Result{part(0, explore.Bounded, 2, ""), part(1, explore.Bounded, 1, ""), part(2, explore.Bounded, 3, "")}, explore.Bounded, 1, "",
			"no violation in 30 schedules of 3 shards (preemptions <= 1, limit reached)"},
		{"violated", []Result{done(0), part(1, explore.Violated, 2, "1:1"), part(2, explore.Violated, 1, "1:1,2:0")}, explore.Violated, 1, "1:1,2:0",
			"violated, 1 preemption, in shard 2 of 3"},
		{"the shorter one", []Result{part(0, explore.Violated, 1, "1:1,2:0"), part(1, explore.Violated, 1, "1:1"), done(2)}, explore.Violated, 1, "1:1",
			"violated, 1 preemption, in shard 1 of 3"},
		{"violated though one is missing", []Result{part(2, explore.Violated, 1, "1:1")}, explore.Violated, 1, "1:1", "violated, 1 preemption, in shard 2 of 3"},
	} {
		r, err := Merge(c.parts)
		if err != nil || r.Verdict != c.verdict || r.Preemptions != c.pre || r.Schedule != c.sched || r.Bound.String() != c.says {
			t.Errorf("%s: %s, %d preemptions, schedule %q, %s, %v; want %s, %d, %q, %s", c.name, r.Verdict, r.Preemptions, r.Schedule, r.Bound, err,
				c.verdict, c.pre, c.sched, c.says)
		}
		if n := len(c.parts); r.Schedules != 10*n || r.Cut != 2*n || r.Steps != int64(100*n) || r.Seconds > 2 || r.Shards != 1 {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
	other := done(1)
	other.Policy = "q"
	outside := done(3)
	for name, parts := range map[string][]Result{"no results": nil, "is there twice": {done(0), done(1), done(1)}, "want s under p": {done(0), other}, "shard 3 of 3": {done(0), outside}} {
		if _, err := Merge(parts); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A cell promises no more than the search has shown.
func TestCells(t *testing.T) {
	for want, r := range map[string]Result{
		"kept":             {Verdict: explore.Exhausted, Preemptions: 4},
		"kept<=2":          {Verdict: explore.Bounded, Preemptions: 2, Schedules: 7},
		"kept?7":           {Verdict: explore.Bounded, Preemptions: -1, Schedules: 7},
		"broken":           {Verdict: explore.Violated, Kind: explore.KindOracle},
		"broken: deadlock": {Verdict: explore.Violated, Kind: explore.KindDeadlock},
	} {
		if have := r.Cell(); have != want {
			t.Errorf("have %q want %q", have, want)
		}
	}
}

// The device of a scenario has a write cache: reads see what was written, a power cut leaves of
// each sector what the last flush covered, and what shares a sector with a write stays as it was.
func TestOverlay(t *testing.T) {
	k := sched.NewTask("test")
	base := blockdev.NewMemory(1 << 20)
	fill := func(c byte, n int) []byte { return bytes.Repeat([]byte{c}, n) }
	write := func(d blockdev.Device, c byte, off int64, n int) {
		t.Helper()
		if err := blockdev.Write(k, d, fill(c, n), off); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(name string, d blockdev.Device, off int64, want ...[]byte) {
		t.Helper()
		w := bytes.Join(want, nil)
		have := make([]byte, len(w))
		if err := blockdev.Read(k, d, have, off); err != nil {
			t.Fatal(err)
		}
		if i := slicesDiffer(have, w); i >= 0 {
			t.Errorf("%s: byte %d is %q, want %q", name, off+int64(i), have[i], w[i])
		}
	}
	write(base, 'a', 0, 8*sector)
	d := newOverlay(base)
	write(d, 'b', sector+512, 1024)
	holds("a part of a sector", d, sector, fill('a', 512), fill('b', 1024), fill('a', sector-1536))
	holds("the base", base, sector, fill('a', sector))
	holds("crash before the flush", d.crashed(), sector, fill('a', sector))
	if err := blockdev.Flush(k, d); err != nil {
		t.Fatal(err)
	}
	flushed := [][]byte{fill('a', 512), fill('b', 1024), fill('a', sector-1536)}
	holds("crash after the flush", d.crashed(), sector, flushed...)
	write(d, 'c', sector, 600)
	write(d, 'd', sector+2048, 512)
	write(d, 'e', 3*sector, sector)
	holds("written again", d, sector, fill('c', 600), fill('b', 936), fill('a', 512), fill('d', 512), fill('a', sector-2560))
	c := d.crashed()
	holds("crash after more writes", c, sector, flushed...)
	holds("crash, never flushed", c, 3*sector, fill('a', sector))
	write(c, 'x', sector, sector)
	holds("written to after the crash", d, sector, fill('c', 600))
	holds("flattened", d.flatten(), 3*sector, fill('e', sector))
	d.reset()
	holds("reset", d, 0, fill('a', 8*sector))
}

// slicesDiffer is the first place where two slices of one length differ, or -1.
func slicesDiffer(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
