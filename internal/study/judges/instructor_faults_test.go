package judges

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/study/grade"
	"btrlab/internal/testing/need"
	"btrlab/labs/kit"
)

// The solutions of the labs that have a second half.

func lockingSolution() Locking {
	inside := func(pos, n, isize uint64) bool { return n <= isize && pos <= isize-n }
	return Locking{CanUnlock: inside, Write: func(t *kit.Task, w *kit.LockedWrite) {
		copied := func() bool {
			if !inside(w.Place(t), w.Len(), w.Size(t)) {
				return false
			}
			w.Begin(t)
			w.Unlock(t)
			w.Copy(t)
			w.End(t)
			return true
		}
		if w.Share(t); copied() {
			return
		}
		w.Unlock(t)
		if w.Lock(t); copied() {
			return
		}
		w.Copy(t)
		w.Unlock(t)
	}}
}

func nowaitSolution(t *kit.Task, x *kit.NowaitExtent) error {
	if !x.TryRange(t) {
		return kit.EAGAIN
	}
	err := x.Reserve(t, kit.NoFlush)
	if err != nil {
		x.UnlockRange(t)
		if errors.Is(err, kit.ENOSPC) || errors.Is(err, kit.EDQUOT) {
			err = kit.EAGAIN
		}
		return err
	}
	if err = x.Place(t); err == nil {
		x.Start(t)
	} else {
		x.Release(t)
	}
	x.UnlockRange(t)
	return err
}

func itemSolution(t *kit.Task, x *kit.LogItem) (err error) {
	x.Prepare(t)
	if err = x.Sums(t); err != nil {
		return err
	}
	placed := false
	if x.Again() {
		if placed, err = x.Drop(t); err != nil {
			return err
		}
		if !placed {
			x.Release(t)
		}
	}
	if !placed {
		if err = x.Insert(t); err != nil {
			return err
		}
	}
	x.Copy(t)
	x.Release(t)
	return nil
}

func sectorSolution(t *kit.Task, w *kit.SectorWrite) {
	send := func() {
		sent := w.Submit(t)
		if sent {
			w.Wait(t)
		}
		if w.Unlock(t); !sent {
			w.Cache(t)
		}
	}
	if w.Share(t); w.Inside(t) && w.Look(t) == kit.Written {
		send()
		return
	}
	w.Unlock(t)
	if w.Alone(t); !w.Inside(t) {
		w.Unlock(t)
		w.Cache(t)
		return
	}
	w.Drain(t)
	send()
}

// lineLock is the lock of lab 13's solution: one line of requests.
type lineLock struct {
	mu     kit.Mutex
	cond   kit.Cond
	places kit.Var[[]turn]
	next   kit.Var[int]
}

type turn struct {
	number int
	kit.Range
}

func newLineLock() kit.RangeLocker {
	l := &lineLock{}
	l.mu.Init()
	l.cond.Init()
	return l
}

func (l *lineLock) Lock(t *kit.Task, start, end uint64) {
	l.mu.Lock(t)
	mine := turn{l.next.Load(t), kit.Range{Start: start, End: end}}
	l.next.Store(t, mine.number+1)
	l.places.Store(t, append(l.places.Load(t), mine))
	for slices.ContainsFunc(l.places.Load(t), func(x turn) bool { return x.number < mine.number && x.Overlaps(mine.Range) }) {
		l.cond.Wait(t, &l.mu)
	}
	l.mu.Unlock(t)
}

func (l *lineLock) Unlock(t *kit.Task, start, end uint64) {
	l.mu.Lock(t)
	all := l.places.Load(t)
	i := slices.IndexFunc(all, func(x turn) bool { return x.Range == kit.Range{Start: start, End: end} })
	l.places.Store(t, slices.Delete(all, i, i+1))
	l.cond.Broadcast(t)
	l.mu.Unlock(t)
}

func copiedWrite(t *kit.Task, w *kit.WaitedWrite) error {
	if err := w.Reserve(t); err != nil {
		return err
	}
	if err := w.Lock(t); err != nil {
		return err
	}
	w.Drain(t)
	if err := w.LockPages(t); err != nil {
		w.Unlock(t)
		return err
	}
	w.LockRange(t)
	w.Copy(t)
	w.UnlockPages(t)
	w.Unlock(t)
	w.Throttle(t)
	return nil
}

func copiedDevice(t *kit.Task, r *kit.DirtyRun) {
	r.Copy(t)
	r.Unlock(t)
	r.Sum(t)
	r.Submit(t)
}

// halves are solutions with the answers of the solution's file.
func halves(t *testing.T) map[int]Lab {
	t.Helper()
	s := func(n int) *Second {
		return &Second{Answers: func() map[string]string { return secondAnswers(t, n) }}
	}
	locking := lockingSolution()
	locking.Second = s(3)
	served := faulty{}.lab()
	served.Second = s(16)
	return map[int]Lab{3: locking, 6: Waits{Write: waiting{}.write, Second: s(6)}, 7: Nowait{Extent: nowaitSolution, Second: s(7)},
		9: LogItem{Put: itemSolution, Second: s(9)}, 10: Sectors{Write: sectorSolution, Second: s(10)},
		13: FairLock{RangeLock: RangeLock{New: newLineLock}, Second: s(13)}, 14: Stable{Write: copiedWrite, Device: copiedDevice, Second: s(14)}, 16: served}
}

func secondFile(t *testing.T, n int) string {
	about := lab(t, n).About()
	return filepath.Join(about.Dir(root(t)), "instructor", "_solution", about.File)
}

var answerLine = regexp.MustCompile(`(?m)^\s*"([a-z-]+)":\s*"(.*)",`)

// secondAnswers are those of the solution.
func secondAnswers(t *testing.T, n int) map[string]string {
	b, err := os.ReadFile(secondFile(t, n))
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, x := range answerLine.FindAllStringSubmatch(string(b), -1) {
		m[x[1]] = x[2]
	}
	return m
}

// planted are the questions about faults that are planted in a whole lab.
func planted[L Lab](l L, faults []fault[L], rows func(L) []Workload) (all []*twist) {
	for _, f := range faults {
		all = append(all, &twist{name: f.name, rows: func() []Workload {
			return slices.DeleteFunc(rows(f.plant(l)), func(w Workload) bool { return w.scenario == nil && !w.asked })
		}})
	}
	return all
}

// twists are the questions of a lab with what they ask.
func twists(t *testing.T, l Lab) (all []*twist) {
	t.Helper()
	switch x := l.(type) {
	case Locking:
		for _, f := range lockFaults {
			y := x
			y.plant = f.plant
			all = append(all, &twist{name: f.name, rows: y.rows})
		}
	case Waits:
		for _, f := range waitFaults {
			y := x
			y.plant = f.plant
			all = append(all, &twist{name: f.name, rows: y.rows})
		}
	case Nowait:
		for _, f := range nowaitFaults {
			y := x
			y.plant = f.plant
			all = append(all, &twist{name: f.name, rows: y.rows})
		}
	case LogItem:
		for _, f := range logFaults {
			all = append(all, &twist{name: f.name, rows: x.planted(f.plant).rows})
		}
	case FairLock:
		return planted(x, fairFaults, func(l FairLock) []Workload {
			return slices.DeleteFunc(l.rows(), func(w Workload) bool { return !w.asked })
		})
	case Stable:
		return planted(x, stableFaults, Stable.rows)
	case Disk:
		return planted(x, diskFaults, func(l Disk) []Workload {
			return slices.DeleteFunc(l.rows(), func(w Workload) bool { return l.plant.sleepsTwice && w.name == "flush-shared" })
		})
	case Sectors:
		for _, f := range sectorFaults {
			y := x
			y.plant = f.plant
			all = append(all, &twist{name: f.name, rows: func() []Workload {
				return slices.DeleteFunc(y.rows(), func(w Workload) bool { return w.name == "sectors-beyond" })
			}})
		}
	}
	return all
}

// estimatesOf are a lab's questions with a number.
func estimatesOf(l Lab) []*estimate {
	x, ok := l.(interface{ estimates() []*estimate })
	if !ok {
		return nil
	}
	return x.estimates()
}

var only = flag.Int("lab", 0, "with -rewrite: the only lab")

// TestRewriteFaults writes the answers of the solutions when the engine's steps have moved.
func TestRewriteFaults(t *testing.T) {
	if !*rewrite {
		t.Skip("only with -rewrite")
	}
	j := some(0)
	for n, l := range halves(t) {
		if *only != 0 && n != *only {
			continue
		}
		b, err := os.ReadFile(secondFile(t, n))
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		set := func(name, answer string) {
			t.Logf("lab %d, %s: %s", n, name, answer)
			text = regexp.MustCompile(fmt.Sprintf(`(?m)^(\s*%q:\s*)".*",$`, name)).ReplaceAllString(text, fmt.Sprintf("${1}%q,", answer))
		}
		for _, x := range twists(t, l) {
			answer := Never
			for _, w := range x.rows() {
				var r grade.Row
				if w.scenario == nil && !w.asked || answer != Never {
					continue
				}
				in := w.beside()
				in.limit = 20_000
				if err := in.explore(j, &r); err != nil {
					t.Fatal(err)
				}
				if r.Violated {
					answer = w.name + "=" + r.Schedule
				}
			}
			set(x.name, answer)
		}
		for _, x := range estimatesOf(l) {
			have, err := x.measure()
			if err != nil {
				t.Fatal(err)
			}
			set(x.name, strconv.FormatFloat(have, 'g', 3, 64))
		}
		if err := os.WriteFile(secondFile(t, n), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// secondRows judges the questions of a lab under answers, with the rows before them kept.
func secondRows(t *testing.T, l Lab, answers map[string]string, names ...string) (rows []grade.Row) {
	t.Helper()
	rd := l.(reader)
	if _, wrong := rd.read(); wrong != nil {
		t.Fatal(wrong)
	}
	enough := 300
	if _, ok := l.(FairLock); ok {
		enough = 8_000 // three preemptions among three tasks
	}
	j := some(enough)
	j.done = []grade.Row{}
	said := rd.said()
	clear(said)
	maps.Copy(said, answers)
	for _, w := range l.Workloads() {
		if w.judge == nil {
			j.done = append(j.done, grade.Row{Name: w.name, Pass: true})
			continue
		}
		if names != nil && !slices.Contains(names, w.name) {
			continue
		}
		r := grade.Row{Name: w.name, Max: w.points}
		if err := w.judge(j, &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// TestSecondHalves: the answers of the solutions have all points; the schedule that a search of the
// row prints, the workload alone, never where something tells and numbers that are far off do not.
func TestSecondHalves(t *testing.T) {
	need.Long(t)
	for n, l := range halves(t) {
		right := secondAnswers(t, n)
		broken := 0
		for _, r := range secondRows(t, l, right) {
			if !r.Pass {
				t.Errorf("lab %d, %s = %q: %s", n, r.Name, right[r.Name], r.Result)
			}
		}
		for _, x := range twists(t, l) {
			name, _, shown := strings.Cut(right[x.name], "=")
			if !shown {
				continue
			}
			broken++
			for answer, want := range map[string]string{name: "half the points; no schedule is given", Never: "it can be ", "?": NoAnswer, "nowhere=1:1": `no workload "nowhere", want one of `} {
				r := secondRows(t, l, map[string]string{x.name: answer}, x.name)[0]
				if r.Pass || !strings.Contains(r.Result, want) {
					t.Errorf("lab %d, %s = %q: %v %q, want %q", n, x.name, answer, r.Pass, r.Result, want)
				}
			}
		}
		if broken == 0 {
			t.Errorf("lab %d: no fault is told by any workload", n)
		}
	}
	for n, l := range halves(t) {
		for _, x := range estimatesOf(l) {
			for answer, want := range map[string]string{"100000": "off by more than ", "many": `"many" is no number`, "NaN": "off by more than ", "?": NoAnswer} {
				if r := secondRows(t, l, map[string]string{x.name: answer}, x.name)[0]; r.Pass || !strings.HasPrefix(r.Result, want) {
					t.Errorf("lab %d, %s = %s: %v %q", n, x.name, answer, r.Pass, r.Result)
				}
			}
		}
	}
}

// TestSecondBeside: the task more of the questions breaks no solution by itself.
func TestSecondBeside(t *testing.T) {
	need.Long(t)
	for n, l := range halves(t) {
		for _, w := range l.Workloads() {
			var r grade.Row
			if w.scenario == nil && !w.asked || w.judge != nil || w.name == "sectors-beyond" {
				continue
			}
			if w.beside().explore(some(300), &r) != nil || !r.Pass {
				t.Errorf("lab %d, %s: %s", n, w.name, r.Result)
			}
		}
	}
}
