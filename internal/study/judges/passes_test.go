package judges

import (
	"slices"
	"strings"
	"testing"

	"btrlab/internal/iopath"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	rangelock "btrlab/labs/05-range-lock"
	"btrlab/labs/kit"
)

// TestGoesOn: a process takes the rows of its ledger as they are, judges the others, and keeps the
// rule that a ratio counts only where nothing is violated, whichever process has seen the
// violation.
func TestGoesOn(t *testing.T) {
	var before []grade.Row
	for _, w := range starters[5].Workloads() {
		before = append(before, grade.Row{Name: w.name, Asks: w.asks, Max: w.points, Pass: true, Score: w.points, Result: "of an earlier process"})
	}
	last := len(before) - 1
	var at []string
	run := &sandbox.Run{Before: before[:last], Keep: func(done []grade.Row, name string) { at = append(at, name) }}
	before[3].Pass, before[3].Score, before[3].Result = false, 0, "stopped"
	rows := Judge(RangeLock{}, run)
	if len(rows) != len(before) || rows[0].Result != "of an earlier process" || rows[3].Result != "stopped" || rows[last].Result != "not measured: a workload is violated" {
		t.Errorf("%+v", rows)
	}
	if !slices.Equal(at, []string{"virtual-time"}) {
		t.Errorf("judged %q, want what was left", at)
	}
}

// nothing is a range lock that locks nothing: wrong, and as fast as can be.
type nothing struct{}

func (nothing) Lock(*kit.Task, uint64, uint64) {}

func (nothing) Unlock(*kit.Task, uint64, uint64) {}

// forgetful is a range lock that is right for ranges of a block or more, and locks nothing below.
type forgetful struct{ kit.RangeLocker }

func (l forgetful) Lock(t *kit.Task, start, end uint64) {
	if end-start >= 4096 {
		l.RangeLocker.Lock(t, start, end)
	}
}

func (l forgetful) Unlock(t *kit.Task, start, end uint64) {
	if end-start >= 4096 {
		l.RangeLocker.Unlock(t, start, end)
	}
}

// scored are the points of rows as Judge has counted them.
func scored(rows []grade.Row) (sum float64) {
	for _, r := range rows {
		sum += r.Score
	}
	return sum
}

// TestNoRatioOfTheWrong: correctness comes before any ratio. A lock that locks nothing lets
// disjoint writes run as fast as they can; if that counted, a student would have points for a lock
// that is none.
func TestNoRatioOfTheWrong(t *testing.T) {
	s := RangeLock{func() kit.RangeLocker { return nothing{} }}
	ok, text, err := speedup("locked", minRatio,
		func() (int64, error) { return disjoint("locked", iopath.Lab{}, nil) },
		func() (int64, error) {
			return disjoint("range-lock", iopath.Lab{RangeLock: s.make}, nil)
		})
	if err != nil || !ok {
		t.Fatalf("without a lock the ratio is %s %v: too slow to tempt anybody", text, err)
	}
	// What was measured says that it is wrong, too.
	if ok, _, err := race(s.make); ok || err == nil || !strings.Contains(err.Error(), "violated (oracle): when requests met") {
		t.Errorf("without a lock requests do not mix in the measured file: %v", err)
	}
	// The other one is wrong in the first rows only: the last one before the ratio is kept.
	for name, s := range map[string]RangeLock{"nothing": s,
		"forgetful": {func() kit.RangeLocker { return forgetful{rangelock.New()} }}} {
		rows := Judge(s, &sandbox.Run{})
		violated := 0
		for _, r := range rows {
			if r.Violated {
				violated++
			}
		}
		if sum := scored(rows); name == "nothing" && sum != 0 {
			t.Errorf("no lock at all has %g points: %+v", sum, rows)
		}
		last, before := rows[len(rows)-1], rows[len(rows)-2]
		if violated == 0 || last.Pass || last.Score != 0 || !strings.HasPrefix(last.Result, "not measured") {
			t.Errorf("%s: %d of %d rows are violated, and %s has %g points: %s", name, violated, len(rows), last.Name, last.Score, last.Result)
		}
		if name == "forgetful" && !before.Pass {
			t.Errorf("%s: %s is not kept: %s", name, before.Name, before.Result)
		}
	}
}

// handshake is a program that goes wrong only when its two tasks take turns: each step of one
// waits, without a lock, for one of the other, and gives up if it comes too early. So its shortest
// bad schedule has as many preemptions as there are turns.
func handshake(turns int) func(w *explore.World) {
	return func(w *explore.World) {
		var at explore.Atomic[int]
		at.Class = studentClass.ID
		for i, name := range []string{"even", "odd"} {
			w.Go(name, func(t *sched.Task) {
				for n := i; n <= turns; n += 2 {
					if at.Load(t) != n {
						return
					}
					if n == turns {
						panic("they have met")
					}
					at.Store(t, n+1)
				}
			})
		}
	}
}

// TestSecondPass: a search by preemptions, which finds the shortest schedule, stops at two. What
// needs more is found by the second pass, and a workload that neither pass has exhausted says what
// both have done.
func TestSecondPass(t *testing.T) {
	for _, turns := range []int{1, 2, 3, 4, 5} {
		var r grade.Row
		w := Workload{name: "handshake", program: handshake(turns)}
		if err := w.explore(some(0), &r); err != nil || r.Pass || !r.Violated {
			t.Errorf("%d turns: have pass=%v violated=%v %q %v, want violated", turns, r.Pass, r.Violated, r.Result, err)
		}
	}
	var r grade.Row
	w := Workload{name: "handshake", program: handshake(100), limit: 3}
	if err := w.explore(some(0), &r); err != nil || !r.Pass || r.Schedules != 6 || strings.Count(r.Result, "no violation in 3 schedules") != 2 {
		t.Errorf("two passes of three schedules: have %d schedules, %q, %v", r.Schedules, r.Result, err)
	}
}

// TestLockStress: in virtual time a range lock that is wrong for some ranges only lets a byte be
// held twice.
func TestLockStress(t *testing.T) {
	right := func() kit.RangeLocker { return rangelock.New() }
	for name, tt := range map[string]struct {
		lock func() kit.RangeLocker
		want string
	}{
		"right":     {right, ""},
		"nothing":   {func() kit.RangeLocker { return nothing{} }, "violated (exclusion): writer "},
		"forgetful": {func() kit.RangeLocker { return forgetful{right()} }, "violated (exclusion): writer "},
	} {
		ok, text, err := stress(RangeLock{tt.lock}.make)
		if ok != (tt.want == "") || (err == nil) != ok || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v %q %v, want %q", name, ok, text, err, tt.want)
		}
	}
}

// TestCount: rows that the starter passes count together with one that it fails.
func TestCount(t *testing.T) {
	for _, tt := range []struct {
		pass string // rows of lab 5
		want float64
	}{
		{"", 0},
		{"lock-identical", 0},
		{"lock-identical lock-nested", 0},
		{"lock-touching", 10},
		{"lock-touching lock-identical", 20},
		{"virtual-time lock-nested lock-identical", 30},
	} {
		rows := []grade.Row{{Name: "lock-identical", Max: 10}, {Name: "lock-nested", Max: 10}, {Name: "lock-touching", Max: 10}, {Name: "virtual-time", Max: 10}}
		for i := range rows {
			if rows[i].Pass = slices.Contains(strings.Fields(tt.pass), rows[i].Name); rows[i].Pass {
				rows[i].Score = rows[i].Max
			}
		}
		count(RangeLock{}, rows)
		if have := scored(rows); have != tt.want {
			t.Errorf("%q: have %g points, want %g", tt.pass, have, tt.want)
		}
	}
}

// TestGuesses: a wrong never takes the points of a right one, and of what nobody calls never
// nothing is taken.
func TestGuesses(t *testing.T) {
	rows := func() []grade.Row {
		return []grade.Row{{Name: "a", Pass: true, Score: 3, Max: 3}, {Name: "b", Pass: true, Score: 3, Max: 3}, {Name: "c", Max: 3}, {Name: "d", Pass: true, Score: 3, Max: 3}}
	}
	for _, tt := range []struct {
		said map[string]string
		want float64
	}{
		{map[string]string{"a": "never", "b": "never", "c": "4:1", "d": "2:0"}, 9},
		{map[string]string{"a": "never", "b": "never", "c": "never", "d": "2:0"}, 6},
		{map[string]string{"a": " Never", "b": "1:1", "c": "never", "d": "2:0"}, 6},
		{map[string]string{"a": "1:2", "b": "1:1", "c": "never", "d": "2:0"}, 9},
		{nil, 9},
	} {
		l := rows()
		if guesses(l, tt.said); scored(l) != tt.want {
			t.Errorf("%v: have %g points want %g: %+v", tt.said, scored(l), tt.want, l)
		}
	}
}
