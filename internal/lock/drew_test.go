package lock

import (
	"sync/atomic"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// Two writers and a reader of a DREW in every order: nobody is inside with the other kind, a writer
// never waits, and the reader's wait ends.
func TestDREWInEveryOrder(t *testing.T) {
	refused, let := 0, 0
	everyOrder(t, func(w *explore.World) {
		var d DREW
		d.Init(waitClass)
		var writers, readers explore.Atomic[int]
		for range 2 {
			w.Go("writer", func(t *sched.Task) {
				w.Call(t)
				if !d.TryWrite(t) {
					refused++
					return
				}
				let++
				writers.Store(t, 1)
				if readers.Load(t) != 0 {
					panic("a writer beside a reader")
				}
				d.WriteUnlock(t)
			})
		}
		w.Go("reader", func(t *sched.Task) {
			w.Call(t)
			d.ReadLock(t)
			if d.Writers() != 0 {
				panic("a reader beside a writer")
			}
			readers.Store(t, 1)
			readers.Store(t, 0)
			d.ReadUnlock(t)
		})
	})
	if refused == 0 || let == 0 {
		t.Errorf("writers were let in %d times and refused %d times, want both", let, refused)
	}
}

// The same with many tasks at once.
func TestDREW(t *testing.T) {
	main := sched.NewTask("test")
	var d DREW
	d.Init(waitClass)
	var inside, readers atomic.Int64
	var tasks []*sched.Task
	for range 6 {
		tasks = append(tasks, main.Go("writer", func(t *sched.Task) {
			for range 3000 {
				if d.TryWrite(t) {
					inside.Add(1)
					if readers.Load() != 0 {
						panic("a writer beside a reader")
					}
					inside.Add(-1)
					d.WriteUnlock(t)
				}
			}
		}))
	}
	for range 2 {
		tasks = append(tasks, main.Go("reader", func(t *sched.Task) {
			for range 300 {
				d.ReadLock(t)
				readers.Add(1)
				if inside.Load() != 0 {
					panic("a reader beside a writer")
				}
				readers.Add(-1)
				d.ReadUnlock(t)
			}
		}))
	}
	for _, x := range tasks {
		main.Join(x)
	}
	if n := d.Writers(); n != 0 {
		t.Errorf("%d writers are left", n)
	}
}
