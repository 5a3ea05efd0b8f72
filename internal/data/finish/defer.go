package finish

import (
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/sched"
)

// The end of a bio may not sleep. What of a direct I/O's end may sleep is queued here, as the end
// of an ordered extent is:
//
//	Prepare      the submitter     the workers, if this is the first such request
//	Defer        the bio's end     queued
//	Run          a worker

// Deferred is the end of a direct I/O that may sleep. Models dio->aio.work.
type Deferred interface {
	Run(t *sched.Task)
}

// Stage is a queue of deferred ends, each with workers of its own: an end may wait for those of the
// stages before it, never for one of its own or of a later stage.
type Stage uint8

// The stages. Model: btrfs_end_io_wq() for CheckRead, s_dio_done_wq for the other two. Difference:
// Linux adds workers when all of a queue sleep, so it needs no second queue for fsync.
const (
	CheckRead Stage = iota // checksums of what was read: of a bad sector it reads the other copies
	// removes pages: waits for a page that a reader has locked, who waits for the range of a read
	EndWrite
	SyncWrite // fsync: waits for i_rwsem, whose holder may wait for i_dio_count
	stages
)

var stageNames = [stages]string{"dio-read", "dio-write", "dio-sync"}

// Prepare makes the workers of a stage, if it has none: before the first Defer, by a task that may
// sleep. Models sb_init_dio_done_wq().
func (f *Finisher) Prepare(t *sched.Task, s Stage) {
	if f.deferred[s].Load() != nil {
		return
	}
	f.mu.Lock(t)
	if f.deferred[s].Load() == nil {
		f.deferred[s].Store(workqueue.New(t, stageNames[s], workqueue.Config{Workers: f.cfg.Workers}, func(t *sched.Task, d Deferred) { d.Run(t) }))
	}
	f.mu.Unlock(t)
}

// Defer queues w. The workers of the stage owe ev, unless it is nil, from now on (sched.WaitGraph),
// and Run ends that. It never sleeps.
//
// Preconditions: Prepare(s) has returned.
func (f *Finisher) Defer(t *sched.Task, s Stage, w *workqueue.Work[Deferred], ev any) {
	q := f.deferred[s].Load()
	if ev != nil {
		t.Delegate(ev, q)
	}
	q.Queue(t, w)
}

// closeDeferred ends the workers.
func (f *Finisher) closeDeferred(t *sched.Task) {
	for s := range f.deferred {
		if q := f.deferred[s].Swap(nil); q != nil {
			q.Close(t)
		}
	}
}
