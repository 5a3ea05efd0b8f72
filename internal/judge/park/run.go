package park

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Run is a set of tasks in a machine, parked or not.
type Run struct {
	m     *Machine
	tasks []parkedTask
	look  int // request of the look that has not been answered, or 0
	stop  chan stopped
}

type stopped struct {
	cpu         int
	interrupted bool
	err         error
}

type parkedTask struct {
	held   bool   // its processor stands still
	at     string // function at whose entry it is parked; "" if it sleeps there
	target []string
	gates  int // that it has passed or stands at
}

// Gate is the name of the place before a call of a task, and after its last one.
const Gate = "gate"

// ErrHeld means that a task did not come to where it was to be parked, since it sleeps and nothing
// that runs will wake it.
var ErrHeld = errors.New("held")

// Held is an ErrHeld: what the task sleeps in.
type Held struct {
	Task  int      `json:"task"`
	Stack []string `json:"stack"` // functions, the innermost first
}

func (h *Held) Error() string {
	return fmt.Sprintf("task %d sleeps in %s", h.Task, strings.Join(h.Stack, " < "))
}

// Is says that a Held is an ErrHeld.
func (h *Held) Is(err error) bool { return err == ErrHeld }

// Start starts tasks, each of which is parked at the gate before its first call.
func (m *Machine) Start(ctx context.Context, tasks [][]Call) (*Run, error) {
	if len(tasks) > MaxTasks {
		return nil, fmt.Errorf("%d tasks: a machine has processors for %d", len(tasks), MaxTasks)
	}
	r := &Run{m: m, tasks: make([]parkedTask, len(tasks)), stop: make(chan stopped, 1)}
	if err := m.halt(ctx); err != nil {
		return nil, err
	}
	for i := range r.tasks {
		r.tasks[i].target = []string{Gate}
	}
	if err := m.breakAt(gateFunction, len(tasks)); err != nil {
		return nil, err
	}
	rq := request{Do: "start", Tasks: tasks}
	if err := r.say(ctx, &rq); err != nil {
		return nil, err
	}
	for answered := false; !answered || slices.ContainsFunc(r.tasks, func(t parkedTask) bool { return !t.held }); {
		r.resume(ctx)
		select {
		case s := <-r.stop:
			if err := r.stopped(ctx, s); err != nil {
				return nil, err
			}
		case rp, open := <-m.replies:
			if _, err := m.judged(rp, open); err != nil {
				return nil, err
			}
			answered = answered || rp.ID == rq.ID
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return r, r.halt(ctx)
}

// resume lets all processors go on but those of parked tasks.
func (r *Run) resume(ctx context.Context) {
	if r.m.running {
		return
	}
	var cpus []int
	for cpu := range 1 + MaxTasks {
		if cpu == 0 || cpu > len(r.tasks) || !r.tasks[cpu-1].held {
			cpus = append(cpus, cpu)
		}
	}
	r.m.running = true
	err := r.m.stub.Resume(cpus)
	go func() {
		if err != nil {
			r.stop <- stopped{err: err}
			return
		}
		s, err := r.m.stub.Wait(ctx)
		r.stop <- stopped{s.CPU, s.Interrupted, err}
	}()
}

// halt stops the machine, if it runs.
func (r *Run) halt(ctx context.Context) error {
	for r.m.running {
		if err := r.m.stub.Interrupt(); err != nil {
			return err
		}
		if err := r.stopped(ctx, <-r.stop); err != nil {
			return err
		}
	}
	return nil
}

// stopped looks who stopped where: a task at its target is parked, whoever else is at a breakpoint
// goes on. A stop that nobody has come to a breakpoint for says nothing.
func (r *Run) stopped(ctx context.Context, s stopped) error {
	r.m.running = false
	if s.err != nil || s.interrupted {
		return s.err
	}
	regs, err := r.m.stub.Registers(s.cpu)
	if err != nil {
		return err
	}
	if r.m.broken[regs.RIP] == 0 {
		return nil
	}
	if s.cpu > 0 && s.cpu <= len(r.tasks) {
		t := &r.tasks[s.cpu-1]
		if t.held {
			return nil
		}
		name := r.m.at(regs.RIP)
		if name == Gate {
			t.gates++
		}
		if slices.Contains(t.target, name) {
			t.held, t.at = true, name
			return nil
		}
	}
	return r.m.stub.Step(ctx, s.cpu)
}

// at is the function at an address, or the gate.
func (m *Machine) at(addr uint64) string {
	for name, a := range m.symbols {
		if a == addr {
			if name == gateFunction {
				return Gate
			}
			return name
		}
	}
	return ""
}

// breakAt adds to how often a breakpoint at a function is wanted.
func (m *Machine) breakAt(name string, more int) error {
	if name == Gate {
		name = gateFunction
	}
	addr := m.symbols[name]
	if addr == 0 {
		return fmt.Errorf("%w: %s", ErrNoFunction, name)
	}
	before := m.broken[addr]
	m.broken[addr] += more
	switch {
	case before == 0 && more > 0:
		return m.stub.Break(addr)
	case m.broken[addr] == 0:
		delete(m.broken, addr)
		return m.stub.Clear(addr)
	}
	return nil
}

// At is where a task is parked, or "" if it sleeps, and how many gates it has come to.
func (r *Run) At(task int) (place string, gates int) {
	t := &r.tasks[task]
	return t.at, t.gates
}

// Advance lets a parked task go on until it comes to one of the places, where it is parked. The
// other tasks stay. The error is a Held if the task sleeps, and nobody who may run wakes it: it is
// parked in its sleep then, and does not take a lock that another task lets go of until it goes on.
func (r *Run) Advance(ctx context.Context, task int, places ...string) error {
	t := &r.tasks[task]
	if err := r.aim(task, places); err != nil {
		return err
	}
	if err := r.letGo(ctx, task); err != nil {
		return err
	}
	var last State
	for {
		if t.held {
			return nil
		}
		r.resume(ctx)
		if r.look == 0 {
			var held []int
			for i := range r.tasks {
				if r.tasks[i].held {
					held = append(held, 1+i)
				}
			}
			rq := request{Do: "look", Task: task, Held: held}
			if err := r.m.say(&rq); err != nil {
				return err
			}
			r.look = rq.ID
		}
		select {
		case s := <-r.stop:
			if err := r.stopped(ctx, s); err != nil {
				return err
			}
		case rp, open := <-r.m.replies:
			if rp.ID == r.look {
				r.look = 0
			}
			x, err := r.m.judged(rp, open)
			if err != nil {
				return err
			}
			if x.State == nil || rp.ID != r.m.asked {
				continue
			}
			last = *x.State
			if x.State.Letter == "Z" && !t.held {
				return fmt.Errorf("task %d has ended before %s", task, strings.Join(places, " or "))
			}
			if !x.State.Quiet {
				continue
			}
			if err := r.halt(ctx); err != nil {
				return err
			}
			if t.held {
				continue
			}
			t.held, t.at = true, ""
			return &Held{Task: task, Stack: x.State.Stack}
		case <-ctx.Done():
			return fmt.Errorf("task %d on its way to %s, last seen %+v: %w", task, strings.Join(places, " or "), last, ctx.Err())
		}
	}
}

// say asks the agent for something while the machine runs: of what comes to the port of one that
// stands still, qemu may not tell the guest.
func (r *Run) say(ctx context.Context, rq *request) error {
	r.resume(ctx)
	return r.m.say(rq)
}

// letGo lets a task's processor go on, from a breakpoint if it stands at one.
func (r *Run) letGo(ctx context.Context, task int) error {
	t := &r.tasks[task]
	at := t.at
	if !t.held || at == "" {
		t.held = false
		return nil
	}
	t.held, t.at = false, ""
	return r.m.stub.Step(ctx, 1+task)
}

// aim sets where a task is to be parked.
func (r *Run) aim(task int, places []string) error {
	t := &r.tasks[task]
	for _, p := range places {
		if err := r.m.breakAt(p, 1); err != nil {
			return err
		}
	}
	for _, p := range t.target {
		if err := r.m.breakAt(p, -1); err != nil {
			return err
		}
	}
	t.target = slices.Clone(places)
	return nil
}

// End lets all tasks go on to their ends, and gives the results of their calls. Each task has come
// to the gate after its last call, or will.
func (r *Run) End(ctx context.Context) ([][]Result, error) {
	for i := range r.tasks {
		if err := r.aim(i, nil); err != nil {
			return nil, err
		}
	}
	for i := range r.tasks {
		if err := r.letGo(ctx, i); err != nil {
			return nil, err
		}
	}
	rp, err := r.m.ask(ctx, &request{Do: "results"})
	if err != nil {
		return nil, err
	}
	return rp.Results, nil
}
