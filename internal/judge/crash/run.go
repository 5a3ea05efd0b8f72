package crash

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Counterexample is a crash state that loses what was promised.
type Counterexample struct {
	State State
	Loss  *Loss
}

// Search judges the states on several tasks, and stops at a loss, once stop says so, or at an
// error. It returns the loss of the earliest state that was found, nil if there is none, and how
// many states were judged. Stop and progress may be nil; both are called from any task.
func (r *Recording) Search(t *sched.Task, states []State, jobs int, stop func() bool, progress func(done int)) (*Counterexample, int, error) {
	var mu sync.Mutex
	next, done, at := 0, 0, -1
	var found *Counterexample
	var failed error
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(states) || found != nil || failed != nil || stop != nil && stop() {
			return 0, false
		}
		next++
		return next - 1, true
	}
	work := func(t *sched.Task) {
		for {
			i, ok := take()
			if !ok {
				return
			}
			loss, err := r.Judge(t, states[i])
			mu.Lock()
			done++
			n := done
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("crash state %s: %w", states[i], err))
			} else if loss != nil && (at < 0 || i < at) {
				at, found = i, &Counterexample{states[i], loss}
			}
			mu.Unlock()
			if progress != nil {
				progress(n)
			}
		}
	}
	var tasks []*sched.Task
	for range jobs - 1 {
		tasks = append(tasks, t.Go("crash", work))
	}
	work(t)
	for _, x := range tasks {
		t.Join(x)
	}
	return found, done, failed
}

// Shrink gives lost writes back, as many as it can so that something is still lost, and torn ones
// as a whole. It returns the state that is left.
func (r *Recording) Shrink(t *sched.Task, c *Counterexample) (*Counterexample, error) {
	try := func(s State) (bool, error) {
		loss, err := r.Judge(t, s)
		if err != nil || loss == nil {
			return false, err
		}
		c = &Counterexample{s, loss}
		return true, nil
	}
	for i := 0; i < len(c.State.Torn); {
		s := c.State
		s.Torn = slices.Delete(slices.Clone(s.Torn), i, i+1)
		ok, err := try(s)
		if err != nil {
			return nil, err
		}
		if !ok {
			i++
		}
	}
	for n := max(1, len(c.State.Lost)); n > 0; n /= 2 {
		for i := 0; i < len(c.State.Lost); {
			s := c.State
			s.Lost = slices.Delete(slices.Clone(s.Lost), i, min(len(s.Lost), i+n))
			ok, err := try(s)
			if err != nil {
				return nil, err
			}
			if !ok {
				i += n
			}
		}
	}
	return c, nil
}

// rowsMax bounds the writes that Timeline shows.
const rowsMax = 40

// Timeline is the crash s as lines of text: the operations, and the writes that were pending, with
// what became of each.
func (r *Recording) Timeline(s State) []string {
	e := &r.epochs[s.Flush-1]
	var l []string
	for i := range e.begun {
		how := "returned"
		if i >= e.ended {
			how = "under way"
		}
		if i >= e.begun-rowsMax/4 {
			l = append(l, fmt.Sprintf("  %-9s %3d  %s", how, i+1, clip(r.Ops[i].Text, 62)))
		}
	}
	fate := map[int]string{}
	for _, n := range s.Lost {
		fate[n] = "LOST"
	}
	for _, x := range s.Torn {
		fate[x.Write] = "TORN"
	}
	hidden := 0
	for i, j := range e.pending {
		how := fate[i+1]
		if how == "" {
			if how = "there"; len(e.pending) > rowsMax {
				hidden++
				continue
			}
		}
		rec := &r.records[j]
		l = append(l, fmt.Sprintf("  %-9s %3d  %-40s %6d at %d", how, i+1, clip(r.describe(rec), 40), len(rec.Data), rec.Off))
	}
	if hidden > 0 {
		l = append(l, fmt.Sprintf("  there          %d other writes", hidden))
	}
	where := fmt.Sprintf("flush %d, which has not ended", s.Flush)
	if s.Flush == len(r.epochs) {
		where = "the end"
	}
	return append(l, "  power off at "+where)
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n-3] + "..."
	}
	return s
}

// describe says what a write is.
func (r *Recording) describe(rec *dm.Record) string {
	switch kindOf(rec, &r.sb) {
	case kindSuper:
		var s format.Super
		s.Decode(rec.Data)
		return fmt.Sprintf("superblock of generation %d", s.Generation)
	case kindTree:
		n := format.Node(rec.Data)
		return fmt.Sprintf("block %d of tree %d, level %d", n.Bytenr(), int64(n.Owner()), n.Level())
	}
	return "data"
}
