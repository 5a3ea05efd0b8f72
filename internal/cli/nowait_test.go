package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

// Seed 000's table says what its patches do: together they halve the tree searches of a write and
// take the places away at which a request may sleep, and without one of them that one's cost is
// back. Virtual time, so the counts are the same everywhere.
func TestCompare000(t *testing.T) {
	need.Long(t)
	var out, errw bytes.Buffer
	args := strings.Fields("compare 000 --ablation --json --runtime vtime --no-payload --rounds 1 --runtime-seconds 0.05 --size 64M --set iodepth=16")
	if code := Main(args, strings.NewReader(""), &out, &errw); code != 0 {
		t.Fatalf("exit %d: %s", code, errw.String())
	}
	var r experiment.Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	rows := map[string]*experiment.Row{}
	for _, row := range r.Rows {
		rows[row.Policy] = row
		if row.Nowait == nil || row.Nowait.Tried < 500 || row.Check != "clean" {
			t.Fatalf("%s: check %s, costs %+v", row.Policy, row.Check, row.Nowait)
		}
	}
	if len(rows) != 10 || len(r.Pairs) != 1 || r.Pairs[0].Published < 1.06 || r.Pairs[0].Published > 1.08 {
		t.Fatalf("%d rows, pairs %+v; want 10 and after by before with 1.07", len(rows), r.Pairs)
	}
	// Every request of a ring is tried, reads too; in flight when the time was up are at most 4
	// times 16.
	if have, want := float64(rows["after"].Nowait.Tried), rows["after"].IOPS*0.05; have < want-64 || have > want+200 {
		t.Errorf("%.0f requests tried, about %.0f made", have, want)
	}
	each := func(row string, c sched.Counter) float64 { return rows[row].Nowait.Each(c.String()) }
	for _, c := range []struct {
		without string
		counter sched.Counter
		least   float64 // more of each request than with all patches
	}{
		{"before", sched.CountSearches, 1}, {"before", sched.CountPaths, 1.5}, {"before", sched.CountLeafHeld, 0.5}, {"before", sched.CountMayBlock, 1.5},
		{"no D1", sched.CountMayBlock, 0.5}, {"no D2", sched.CountSearches, 1}, {"no D3", sched.CountPaths, 0.2}, {"no D4", sched.CountPaths, 0.2},
		{"no D5", sched.CountLeafHeld, 0.2}, {"no D6", sched.CountMayBlock, 0.2}, {"no D7", sched.CountMayBlock, 0.2},
	} {
		if have, all := each(c.without, c.counter), each("after", c.counter); have < all+c.least {
			t.Errorf("%s: %.2f %v, with all patches %.2f; want %.1f more", c.without, have, c.counter, all, c.least)
		}
	}
	// Without D1 a request waits for the range that another one has; with it the same request is
	// EAGAIN.
	slept := func(row string) (n int64) {
		for place, v := range rows[row].Nowait.Slept {
			if strings.HasSuffix(place, " in lock_extent") {
				n += v
			}
		}
		return n
	}
	if slept("before") == 0 || slept("no D1") == 0 || slept("after") != 0 {
		t.Errorf("sleeps in lock_extent: before %d, without D1 %d, after %d; want some, some, 0", slept("before"), slept("no D1"), slept("after"))
	}
	if n := rows["after"].Nowait; n.Again["lock_extent: another task has the range locked"] == 0 {
		t.Errorf("no request found its range locked: %v", n.Again)
	}
}
