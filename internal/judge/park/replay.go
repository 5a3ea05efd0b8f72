package park

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// Ending is how an execution ended.
type Ending struct {
	Size  int64         `json:"size"` // of the file, in bytes
	Bytes []oracle.Seen `json:"bytes"`
	// Errors are those of the operations, in order of their numbers; nil is none.
	Errors []string `json:"errors"`
}

// Replayed is a schedule of a scenario that Linux was led through.
type Replayed struct {
	Scenario string `json:"scenario"`
	Policy   string `json:"policy"`
	Schedule string `json:"schedule"`
	Release  string `json:"release"` // of the kernel
	// As is the schedule and the policy that were asked for, where a run of the same order stands
	// for them.
	As    string `json:"as,omitempty"`
	Steps []Step `json:"steps"`
	// Refused says why Linux does not take the steps in this order; "" if it does.
	Refused string `json:"refused,omitempty"`
	// Held is the task that does not go on then, and what it waits in.
	Held *Held `json:"held,omitempty"`
	// Notes are what went otherwise on the way: a wait that Linux does not have, a step that does
	// not come.
	Notes         []string `json:"notes,omitempty"`
	Engine, Linux Ending
	// Differences are those of the ends, if the schedule was not refused.
	Differences []string `json:"differences,omitempty"`
	// Violation is what the engine does not come to an end for: a NOWAIT request that sleeps, a
	// deadlock, or an error that an operation must not have. Broken says how Linux does the same,
	// of each task that does; it is empty if Linux does not. There are no differences then, and
	// after a deadlock no end of Linux.
	Violation string   `json:"violation,omitempty"`
	Broken    []string `json:"broken,omitempty"`
}

// Lost reports whether an error is the machine's, which has hung or ended: on a new one the same
// schedule may come to its end.
func Lost(err error) bool {
	return err != nil && !errors.Is(err, ErrNoCall) && !errors.Is(err, ErrNoEnd) && !errors.Is(err, ErrNoFunction)
}

// Replay leads a kernel through a schedule of a scenario, as the engine runs it under a policy, and
// compares the ends; or, where the engine breaks before its end, asks whether Linux does so too.
// Disk is the path of the machine's disk. A machine whose tasks wait for each other is of no use
// any more: Close it.
func Replay(ctx context.Context, m *Machine, disk string, s *scenario.Scenario, p *policy.Policy, schedule string) (*Replayed, error) {
	l, err := NewPlan(s, p, schedule, func(f string) bool { return m.symbols[f] != 0 })
	if err != nil {
		return nil, err
	}
	x := &Replayed{Scenario: s.Name, Policy: p.Name, Schedule: l.Trace.Schedule, Release: m.Release, Violation: l.Trace.Violation.What,
		Steps: l.Steps, Engine: l.Engine}
	r, err := start(ctx, m, disk, s, l)
	if err != nil {
		return nil, err
	}
	ways := make([]way, len(l.Tasks))
	for i := range ways {
		ways[i].gates = 1 // that before its first call
	}
	for i := range x.Steps {
		if err := x.take(ctx, r, &x.Steps[i], &ways[x.Steps[i].Task]); err != nil {
			return nil, err
		}
		if x.Refused != "" {
			break
		}
	}
	kind := l.Trace.Kind
	if len(l.Victims) > 0 && x.Refused == "" {
		if err := x.press(ctx, r, l.Victims); err != nil {
			return nil, err
		}
		if kind == explore.KindDeadlock && len(x.Broken) == len(l.Victims) {
			return x, nil
		}
	}
	if kind == explore.KindDeadlock {
		x.Broken = nil // one of them goes on, and lets the others go
	}
	if err := x.end(ctx, r, s.File.At); err != nil {
		return nil, err
	}
	switch {
	case x.Refused != "":
	case kind == explore.OK:
		x.Differences = differences(&x.Engine, &x.Linux)
	case kind == explore.KindOracle:
		for i, e := range x.Engine.Errors {
			if l := x.Linux.Errors[i]; l != "" && strings.Contains(e, l) {
				x.Broken = append(x.Broken, fmt.Sprintf("operation %d: %s", i+1, l))
			}
		}
	}
	return x, m.Unmount(ctx)
}

// start mounts the scenario's disk and starts the tasks with their calls.
func start(ctx context.Context, m *Machine, disk string, s *scenario.Scenario, l *Plan) (*Run, error) {
	if err := Prepare(disk, s); err != nil {
		return nil, err
	}
	setup, err := m.Mount(ctx, "", l.Setup)
	if err != nil {
		return nil, err
	}
	for i, y := range setup {
		if y.Errno != 0 {
			return nil, fmt.Errorf("scenario %s: call %d before the tasks: %w", s.Name, i+1, errno.Errno(y.Errno))
		}
	}
	return m.Start(ctx, l.Tasks)
}

// end lets all tasks go on to their ends, and sets that of Linux. The scenario's file begins at a
// byte of the file.
func (x *Replayed) end(ctx context.Context, r *Run, at int64) error {
	results, err := r.End(ctx)
	if err != nil {
		return err
	}
	b, err := r.m.ReadFile(ctx, scenario.FileName)
	if err != nil {
		return err
	}
	x.Linux = Ending{Size: int64(len(b)) - at, Bytes: oracle.Unpaint(nil, b[at:], 0, oracle.ID(len(x.Engine.Errors)))}
	for i := range results {
		for _, y := range results[i] {
			text := ""
			if y.Errno != 0 {
				text = errno.Errno(y.Errno).Error()
			}
			x.Linux.Errors = append(x.Linux.Errors, text)
		}
	}
	return nil
}

// Prepare makes a file, which no machine has mounted, the disk that a scenario begins with.
func Prepare(path string, s *scenario.Scenario) (err error) {
	dev, err := s.Disk()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := errors.Join(f.Truncate(0), f.Truncate(dev.Size())); err != nil {
		return err
	}
	return blockdev.CopyTo(sched.NewTask("copy"), dev, f)
}

// way is how far a task has come.
type way struct {
	gates int  // that its places until now have
	early bool // it stands at the first place of its next turn, for it did not wait before that
}

// take lets a task go on to where a step says.
func (x *Replayed) take(ctx context.Context, r *Run, s *Step, w *way) error {
	for i, place := range s.Places {
		last := i == len(s.Places)-1
		if place == Gate && !(s.Waits && last) {
			w.gates++
		}
		at, come := r.At(s.Task)
		switch {
		case w.early:
			w.early = false
			continue
		case place == Gate && !(s.Waits && last) && come >= w.gates:
			continue // an operation that returned early has brought it here
		case at == Gate && come > w.gates:
			s.Said = "has returned without " + place
			x.Notes = append(x.Notes, fmt.Sprintf("task %d returns without %s", s.Task, place))
			continue
		}
		err := r.Advance(ctx, s.Task, place, Gate)
		var held *Held
		if errors.As(err, &held) {
			s.Said = "waits in " + strings.Join(held.Stack[:min(2, len(held.Stack))], ", from ")
			if !s.Waits || !last {
				x.Held = held
				x.Refused = fmt.Sprintf("task %d does not come to %s: it waits in %s", s.Task, place, strings.Join(held.Stack, " < "))
			}
			return nil
		}
		if err != nil {
			return err
		}
		if at, _ = r.At(s.Task); at == Gate {
			s.Said = "has returned"
		} else {
			s.Said = "stands at " + at
		}
	}
	if s.Waits {
		w.early = true
		x.Notes = append(x.Notes, fmt.Sprintf("task %d does not wait before %s", s.Task, s.Before))
	}
	return nil
}

// press lets the tasks go on that stand where the engine's break. A NOWAIT request must neither
// sleep nor come to a function that does; of tasks that wait for each other, none comes to its end.
func (x *Replayed) press(ctx context.Context, r *Run, victims []Victim) error {
	places := []string{Gate}
	if strings.Contains(x.Violation, "NOWAIT") {
		for _, f := range Sleepers {
			if r.m.symbols[f] != 0 {
				places = append(places, f)
			}
		}
	}
	for _, v := range victims {
		task := v.Task
		if _, come := r.At(task); come > 1+v.Op {
			continue // its operation has returned
		}
		err := r.Advance(ctx, task, places...)
		var held *Held
		switch at, _ := r.At(task); {
		case errors.As(err, &held):
			x.Broken = append(x.Broken, held.Error())
		case err != nil:
			return err
		case at != Gate:
			x.Broken = append(x.Broken, fmt.Sprintf("task %d comes to %s", task, at))
		}
	}
	return nil
}

// differences are those of two ends, in words. Of an error the engine's text has more than Linux's.
func differences(engine, linux *Ending) []string {
	var list []string
	if engine.Size != linux.Size {
		list = append(list, fmt.Sprintf("the file is %d bytes long here and %d in Linux", engine.Size, linux.Size))
	}
	if !slices.Equal(engine.Bytes, linux.Bytes) {
		list = append(list, fmt.Sprintf("the bytes are %v here and %v in Linux", engine.Bytes, linux.Bytes))
	}
	for i := range engine.Errors {
		if e, l := engine.Errors[i], linux.Errors[i]; (e == "") != (l == "") || !strings.Contains(e, l) {
			list = append(list, fmt.Sprintf("operation %d: %q here and %q in Linux", i+1, e, l))
		}
	}
	return list
}
