package workqueue

import (
	"testing"

	"btrlab/internal/sched"
)

// A task that puts works off does them itself at its end; one that sleeps first leaves them to a
// worker.
func TestTaskWork(t *testing.T) {
	k := sched.NewTask("test")
	var by *sched.Task
	q := New(k, "own", Config{Workers: 1, Wake: 2}, func(t *sched.Task, _ int) { by = t })
	idle := func() {
		for ready := false; !ready; {
			q.mu.Lock(k)
			ready = q.idle == 1
			q.mu.Unlock(k)
		}
	}
	var w Work[int]
	idle()
	k.BeginTaskWork()
	q.Queue(k, &w)
	if by != nil {
		t.Error("done before the end of the request")
	}
	k.EndTaskWork()
	if by != k {
		t.Errorf("done by %v, want the task that queued it", by)
	}
	idle()
	k.BeginTaskWork()
	q.Queue(k, &w)
	q.Drain(k)
	if by == k || by == nil {
		t.Errorf("done by %v, want a worker: the task slept", by)
	}
	k.EndTaskWork()
	q.Close(k)
}
