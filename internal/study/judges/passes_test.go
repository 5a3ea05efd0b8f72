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
	s := RangeLock{New: func() kit.RangeLocker { return nothing{} }}
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
	// The other one is wrong for short ranges only: writes are kept.
	for name, s := range map[string]RangeLock{"nothing": s,
		"forgetful": {New: func() kit.RangeLocker { return forgetful{rangelock.New()} }}} {
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
		last := rows[len(rows)-1]
		kept := rows[slices.IndexFunc(rows, func(r grade.Row) bool { return r.Name == "truncate-into" })]
		if violated == 0 || last.Pass || last.Score != 0 || !strings.HasPrefix(last.Result, "not measured") {
			t.Errorf("%s: %d of %d rows are violated, and %s has %g points: %s", name, violated, len(rows), last.Name, last.Score, last.Result)
		}
		if name == "forgetful" && !kept.Pass {
			t.Errorf("%s: %s is not kept: %s", name, kept.Name, kept.Result)
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
		ok, text, err := excluding(RangeLock{New: tt.lock}.make, stress)
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

// TestHalve: a lock that a row shows to hold a byte twice is none: it has half of what its rows
// come to, whichever row that is, and each says why. A deadlock is another matter.
func TestHalve(t *testing.T) {
	for _, tt := range []struct {
		kind   explore.Kind
		halves bool
	}{{overlaps, true}, {explore.KindOracle, true}, {explore.KindDeadlock, false}, {explore.OK, false}} {
		rows := []grade.Row{{Name: "lock-touching", Max: 60, Score: 60, Pass: true}, {Name: "virtual-time", Max: 30, Score: 30, Pass: true}, {Name: "lock-stress", Max: 10, Kind: tt.kind}}
		count(RangeLock{}, rows)
		if have := scored(rows); have != map[bool]float64{true: 45, false: 90}[tt.halves] || (rows[0].Halved == "lock-stress shows that the lock does not exclude") != tt.halves {
			t.Errorf("%s: have %g points, %q", tt.kind, have, rows[0].Halved)
		}
	}
}

// TestElsewhere: code that is right where the examples are and nowhere else is found out, by
// offset, by length and by how many there are, in every lab whose code is told such numbers; the
// other labs say why not.
func TestElsewhere(t *testing.T) {
	for _, l := range All {
		n := 0
		for _, w := range everywhere(l) {
			n += len(w.far)
		}
		own := slices.ContainsFunc(l.Workloads(), func(w Workload) bool { return strings.HasSuffix(w.name, places[0].name) })
		if blind := l.About().Blind; (blind == "") != (n > 0 || own) {
			t.Errorf("lab %d: %d workloads elsewhere, and it says %q", l.About().N, n, blind)
		}
	}
	near := func(free func(start, end uint64) bool) func() kit.RangeLocker {
		return func() kit.RangeLocker { return partly{rangelock.New(), free} }
	}
	const at = 1 << 20
	for name, l := range map[string]Lab{
		"offset": RangeLock{New: near(func(start, end uint64) bool { return start >= at })},
		"end":    FairLock{RangeLock: RangeLock{New: near(func(start, end uint64) bool { return end >= 4<<30 && end < 1<<41 })}},
		"length": RangeLock{New: near(func(start, end uint64) bool { return end-start > 48 && end-start < 4096 })},
	} {
		rows := everywhere(l)
		w := rows[slices.IndexFunc(rows, func(w Workload) bool { return w.name == "lock-nested" })]
		r := grade.Row{Name: w.name, Max: 1}
		if err := w.search(some(0), &r); err != nil || r.Pass || r.Kind != overlaps || r.Workload == "" {
			t.Errorf("%s: %+v, %v", name, r, err)
			continue
		}
		if !Searched(l, r.Workload) || Searched(l, r.Workload+"0") || Searched(l, "virtual-time") {
			t.Errorf("%s: %s cannot be replayed, or what is none can", name, r.Workload)
		}
		again := Judge(l, &sandbox.Run{Only: r.Workload, Schedule: r.Schedule})
		if len(again) != 1 || again[0].Pass || again[0].Kind != overlaps {
			t.Errorf("%s: %s=%s is not replayed: %+v", name, r.Workload, r.Schedule, again)
		}
	}
}

// TestCrowd: a lock that forgets the ninth of those who hold something is found by a measured row.
func TestCrowd(t *testing.T) {
	_, text, err := excluding(RangeLock{New: func() kit.RangeLocker { return &forgetsMany{RangeLocker: rangelock.New(), most: 60} }}.make, stress)
	if err == nil || !strings.HasPrefix(err.Error(), "violated (exclusion)") {
		t.Errorf("have %q %v", text, err)
	}
}

// partly is a range lock that takes what is not free only.
type partly struct {
	kit.RangeLocker
	free func(start, end uint64) bool
}

func (l partly) Lock(t *kit.Task, start, end uint64) {
	if !l.free(start, end) {
		l.RangeLocker.Lock(t, start, end)
	}
}

func (l partly) Unlock(t *kit.Task, start, end uint64) {
	if !l.free(start, end) {
		l.RangeLocker.Unlock(t, start, end)
	}
}

// forgetsMany is a range lock that takes nothing while many ask.
type forgetsMany struct {
	kit.RangeLocker
	asking, most int
	not          map[[2]uint64]int
}

func (l *forgetsMany) Lock(t *kit.Task, start, end uint64) {
	if l.asking >= l.most {
		if l.not == nil {
			l.not = map[[2]uint64]int{}
		}
		l.not[[2]uint64{start, end}]++
		return
	}
	l.asking++
	l.RangeLocker.Lock(t, start, end)
}

func (l *forgetsMany) Unlock(t *kit.Task, start, end uint64) {
	if l.not[[2]uint64{start, end}] > 0 {
		l.not[[2]uint64{start, end}]--
		return
	}
	l.asking--
	l.RangeLocker.Unlock(t, start, end)
}

// TestTailExcludes: a lock that gives all of the range of row tail to everybody waits for nobody.
func TestTailExcludes(t *testing.T) {
	l := FairLock{RangeLock: RangeLock{New: func() kit.RangeLocker {
		return partly{rangelock.New(), func(start, end uint64) bool { return start == 0 && end == (tailTasks-1)*4096 }}
	}}}
	for _, w := range l.Workloads() {
		if w.name != "tail" {
			continue
		}
		if r := w.row(some(0)); r.Pass || r.Kind != overlaps || r.Score != 0 {
			t.Errorf("%+v", r)
		}
	}
	if ok, text, err := tail(l.make); !ok || err != nil { // else nobody would be tempted
		t.Errorf("%q %v", text, err)
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
		for _, r := range l {
			if r.Pass && r.Score < r.Max && !strings.HasPrefix(r.Result, "right, and ") {
				t.Errorf("%v: row %s does not say why it has %g of %g points: %q", tt.said, r.Name, r.Score, r.Max, r.Result)
			}
		}
	}
}
