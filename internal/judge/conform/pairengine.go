package conform

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// later is a device each of whose transfers is made by a task of its own, some time after Submit.
type later struct{ *blockdev.Memory }

// Submit starts the task.
func (d later) Submit(t *sched.Task, b *blockdev.Bio) {
	t.Go("disk", func(t *sched.Task) {
		t.Enter(sched.PointDevice, blockdev.WaitClass.ID, d.Memory)
		d.Memory.Submit(t, b)
	})
}

// guide lets the engine's tasks go on so that they make the steps of a trace: it decides which task
// runs, and holds each step that is made against those that the trace has of the task.
//
// Steps of different tasks that do not depend on each other may come in another order than in the
// trace: a step fits if it is the first that is left of its task, and nothing that is left before
// it depends on it.
type guide struct {
	want  []PairStep
	drop  map[string]bool // steps that are not compared: see single
	made  []bool
	tasks [2]*sched.Task
	on    bool
	first int // the first step of want that was not made
	wrong string
	rng   *rand.Rand
}

// lane is that of a task.
func (g *guide) lane(t *sched.Task) Lane {
	switch t {
	case g.tasks[0]:
		return Caller
	case g.tasks[1]:
		return Second
	}
	return Elsewhere
}

func (g *guide) trace(t *sched.Task, e sched.TraceEvent) {
	if !g.on || g.wrong != "" {
		return
	}
	ev, ok := abstract(g.lane(t), e)
	if !ok {
		return
	}
	for _, s := range pairSteps(&ev) {
		if !g.drop[s.String()] {
			g.take(&s)
		}
	}
}

// take holds a step of the engine against the trace.
func (g *guide) take(s *PairStep) {
	for i := g.first; i < len(g.want); i++ {
		w := &g.want[i]
		switch {
		case g.made[i]:
		case w.Lane != s.Lane && w.depends(s):
			g.wrong = fmt.Sprintf("%s comes before %s", s, w)
			return
		case w.Lane == s.Lane && w.text() != s.text():
			g.wrong = fmt.Sprintf("%s, where the kernel has %s", s, w)
			return
		case w.Lane == s.Lane:
			g.made[i] = true
			for g.first < len(g.want) && g.made[g.first] {
				g.first++
			}
			return
		}
	}
	g.wrong = fmt.Sprintf("%s, where the kernel has no step more", s)
}

// Pick lets the task go on whose step the trace has next. Where it must wait, workers go on, and
// then the other task.
func (g *guide) Pick(d explore.Decision) int {
	if !g.on || g.wrong != "" || g.tasks[0] == nil || g.tasks[1] == nil {
		return d.Default
	}
	next := Elsewhere
	if g.first < len(g.want) {
		next = g.want[g.first].Lane
	}
	number := func(l Lane) int {
		if l == Second {
			return int(g.tasks[1].ID)
		}
		return int(g.tasks[0].ID)
	}
	if next != Elsewhere && slices.Contains(d.Enabled, number(next)) {
		return number(next)
	}
	var others, callers []int
	for _, task := range d.Enabled {
		if task == number(Caller) || task == number(Second) {
			callers = append(callers, task)
		} else {
			others = append(others, task)
		}
	}
	if slices.Contains(others, d.Last) && g.rng.IntN(4) > 0 {
		return d.Last
	}
	if len(others) > 0 {
		return others[g.rng.IntN(len(others))]
	}
	return callers[g.rng.IntN(len(callers))]
}

// pairEngine runs a pair, or with one of its operations empty the other one alone, on a copy of the
// image, as g picks; other tasks make their steps in the order of the runtime where g has none. The
// steps of events are all that were made.
func pairEngine(image *blockdev.Memory, p *Pair, pol string, g *guide) (events []Event, err error) {
	set, err := policy.Parse(pol)
	if err != nil {
		return nil, err
	}
	x := explore.Once(explore.OnceConfig{Strategy: g, Off: explore.CheckLeftovers}, func(t *sched.Task) {
		err = func() (err error) {
			t.SetTracer(func(t *sched.Task, e sched.TraceEvent) {
				if ev, ok := abstract(g.lane(t), e); ok && g.on {
					events = append(events, ev)
				}
				g.trace(t, e)
			})
			f, err := fs.Open(t, []blockdev.Device{later{image.Snapshot()}}, fs.Options{Policy: &set, EndioWorkers: 1})
			if err != nil {
				return err
			}
			m := &engine{t: t, fs: f, files: map[string]*fs.File{}}
			defer func() { err = errors.Join(err, m.end()) }()
			if err := setUp(m, p.op()); err != nil {
				return err
			}
			if _, err := m.open("f"); err != nil {
				return err
			}
			g.on = true
			defer func() { g.on = false }()
			errs := make([]error, 2)
			for i, do := range []string{p.First, p.Other} {
				own := *m
				g.tasks[i] = t.Go([]string{"first", "other"}[i], func(t *sched.Task) {
					own.t = t
					errs[i] = script(&own, do)
				})
			}
			t.Join(g.tasks[0])
			t.Join(g.tasks[1])
			t.Sleep(time.Second) // everything else that can run does
			return errors.Join(errs...)
		}()
	})
	if x.Verdict != explore.OK {
		err = errors.Join(err, fmt.Errorf("%v: %s", x.Verdict, x.Violation))
	}
	return events, err
}

// single are the steps that are not compared: those that one of the two operations, done alone, has
// on one side more often than on the other. They are differences of one task, which the table of
// operations has.
func (r *PairRun) single(image *blockdev.Memory, pol string) (drop map[string]bool, err error) {
	drop = map[string]bool{}
	for i, kernel := range r.Alone {
		events, err := pairEngine(image, r.Pair.only(i), pol, &guide{rng: rand.New(rand.NewPCG(1, 1))})
		if err != nil {
			return nil, fmt.Errorf("%s, alone: %w", r.Pair.Name, err)
		}
		count := map[string]int{}
		for _, s := range kernel {
			count[s.String()]++
		}
		for _, s := range stepsOf(events) {
			count[s.String()]--
		}
		for s, n := range count {
			if n != 0 {
				drop[s] = true
			}
		}
	}
	return drop, nil
}

// guidedTries is how often a trace is tried before it counts as one that no schedule makes. What
// is drawn is which worker goes on where the trace does not say.
const guidedTries = 10

// accepts looks for a schedule of the engine that makes the steps of a trace, and of those in drop
// any. If none is found, why is what the try that came farthest did wrong.
func accepts(image *blockdev.Memory, p *Pair, pol string, want []PairStep, drop map[string]bool) (ok bool, why string, err error) {
	most := -1
	for try := range uint64(guidedTries) {
		g := &guide{want: want, drop: drop, made: make([]bool, len(want)), rng: rand.New(rand.NewPCG(try, 1))}
		if _, err := pairEngine(image, p, pol, g); err != nil {
			return false, "", err
		}
		if g.wrong == "" && g.first == len(want) {
			return true, "", nil
		}
		if g.first > most {
			most, why = g.first, g.wrong
			if why == "" {
				why = fmt.Sprintf("the engine ends without %s", &want[g.first])
			}
		}
	}
	return false, why, nil
}
