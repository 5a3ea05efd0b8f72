package fio

import (
	"sync/atomic"
	"testing"

	"btrlab/internal/sched"
)

// allocations counts the calls that lay a file out, and stops the run in the second one.
type allocations struct {
	nullTarget
	calls []int64
	stop  *atomic.Bool
}

func (a *allocations) Fallocate(_ *sched.Task, _ uint32, off, n int64) error {
	a.calls = append(a.calls, off, n)
	if len(a.calls) == 4 && a.stop != nil {
		a.stop.Store(true)
	}
	return nil
}

// A file of many terabytes is allocated in pieces, between which a stop is heard; a smaller one in
// one call.
func TestFallocateStops(t *testing.T) {
	stop := &atomic.Bool{}
	for _, c := range []struct {
		want  int64
		stop  *atomic.Bool
		calls int
	}{{fallocateMost, nil, 1}, {fallocateMost + 1, nil, 9}, {64 * fallocateMost, stop, 2}} {
		a := &allocations{stop: c.stop}
		k := &worker{opt: &Options{Stop: c.stop}}
		if err := k.fallocate(&sched.Task{}, a, 0, c.want); err != nil || len(a.calls) != 2*c.calls {
			t.Errorf("%d bytes: %d calls, %v, want %d", c.want, len(a.calls)/2, err, c.calls)
		}
		if n := len(a.calls); c.stop == nil && a.calls[n-2]+a.calls[n-1] != c.want {
			t.Errorf("%d bytes: the last call is %v", c.want, a.calls[n-2:])
		}
	}
}
