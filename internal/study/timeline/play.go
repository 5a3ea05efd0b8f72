package timeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// Play is an execution in which a person chooses the task that goes on. It keeps a whole recorded
// execution and a place in it: the steps before the place were chosen, those after it are how it
// would go on. A choice that differs replays the prefix with one more deviation; taking one back
// only moves the place. The steps in which tasks start show nothing and are not for choosing: the
// place is never before them.
type Play struct {
	run   func(schedule string) (*scenario.Trace, error)
	tr    *scenario.Trace
	at    int
	first int // the first step that is not a start
}

// NewPlay begins at the start of the given schedule. run replays one.
func NewPlay(schedule string, run func(schedule string) (*scenario.Trace, error)) (*Play, error) {
	p := &Play{run: run}
	tr, err := p.replay(schedule)
	if err != nil {
		return nil, err
	}
	p.tr = tr
	for p.first < len(tr.Steps) && tr.Steps[p.first].Kind == "start" {
		p.first++
	}
	p.at = p.first
	return p, nil
}

func (p *Play) replay(schedule string) (*scenario.Trace, error) {
	tr, err := p.run(schedule)
	if err != nil {
		return nil, err
	}
	if tr.Kind == explore.KindMisfit {
		return nil, errors.New(tr.Violation.String())
	}
	if len(tr.Steps) < p.at {
		return nil, fmt.Errorf("schedule %q: have %d steps, want %d and more", schedule, len(tr.Steps), p.at)
	}
	return tr, nil
}

// Trace is the execution as it goes on from here by default or was before Undo.
func (p *Play) Trace() *scenario.Trace { return p.tr }

// At is the number of steps done.
func (p *Play) At() int { return p.at }

// Now is the present moment.
func (p *Play) Now() Moment { return At(p.tr, p.at) }

// Over says that no step is left.
func (p *Play) Over() bool { return p.at == len(p.tr.Steps) }

// Can says whether task can do a step now.
func (p *Play) Can(task int) bool {
	return !p.Over() && task >= 0 && task < len(p.tr.Tasks) && p.tr.Steps[p.at].Enabled>>task&1 != 0
}

// Choice says whether the next step of task takes one of n values, what it is called, and which
// comes by itself. n is 0 for other steps.
func (p *Play) Choice(task int) (name string, n, val int) {
	next := nextOf(p.tr, p.at, task)
	if next < 0 || p.tr.Steps[next].NVal == 0 {
		return "", 0, 0
	}
	s := &p.tr.Steps[next]
	return s.What.Object, s.NVal, s.Val
}

// Choose does one step of task; of a choice it takes the value that comes by itself.
func (p *Play) Choose(task int) error {
	if !p.Can(task) {
		return fmt.Errorf("task %d cannot run now", task)
	}
	if p.tr.Steps[p.at].Task != task {
		if err := p.deviate(task, -1); err != nil {
			return err
		}
	}
	p.at++
	return nil
}

// Take does the next step of task, which is a choice, with a value.
func (p *Play) Take(task, val int) error {
	_, n, _ := p.Choice(task)
	if !p.Can(task) || val < 0 || val >= n {
		return fmt.Errorf("task %d cannot take %d of %d values now", task, val, n)
	}
	if s := &p.tr.Steps[p.at]; s.Task != task || s.Val != val {
		if err := p.deviate(task, val); err != nil {
			return err
		}
	}
	p.at++
	return nil
}

// deviate makes the next step one of task, with a value when val is not -1.
func (p *Play) deviate(task, val int) error {
	tr, err := p.replay(with(p.Schedule(), p.at, task, val))
	if err != nil {
		return err
	}
	if p.at == len(tr.Steps) || tr.Steps[p.at].Task != task || val >= 0 && tr.Steps[p.at].Val != val {
		return fmt.Errorf("task %d cannot run now", task)
	}
	p.tr = tr
	return nil
}

// RunOn does steps of task until it cannot go on, stands at a choice, or an operation of it
// returns; at least one.
func (p *Play) RunOn(task int) error {
	for {
		if err := p.Choose(task); err != nil {
			return err
		}
		if _, n, _ := p.Choice(task); n > 0 || !p.Can(task) || p.returned() {
			return nil
		}
	}
}

// returned says whether the last step ended an operation.
func (p *Play) returned() bool {
	return slices.ContainsFunc(p.tr.Steps[p.at-1].Notes, func(n scenario.Note) bool { return n.Event == scenario.Returns })
}

// Next does the step that comes by itself: the one taken back last, or the default.
func (p *Play) Next() bool {
	if p.Over() {
		return false
	}
	p.at++
	return true
}

// Finish does all of them.
func (p *Play) Finish() { p.at = len(p.tr.Steps) }

// Undo takes the last step back.
func (p *Play) Undo() bool {
	if p.at == p.first {
		return false
	}
	p.at--
	return true
}

// Restart takes all of them back.
func (p *Play) Restart() { p.at = p.first }

// Schedule is the schedule of the steps done; after them it goes on by default.
func (p *Play) Schedule() string {
	var l []string
	for d := range strings.SplitSeq(p.tr.Schedule, ",") {
		var step int
		if _, err := fmt.Sscanf(d, "%d", &step); err == nil && step < p.at {
			l = append(l, d)
		}
	}
	return strings.Join(l, ",")
}

// with adds a deviation to a schedule; a value of -1 is none.
func with(schedule string, step, task, val int) string {
	d := fmt.Sprintf("%d:%d", step, task)
	if val >= 0 {
		d += fmt.Sprintf("=%d", val)
	}
	if schedule == "" {
		return d
	}
	return schedule + "," + d
}
