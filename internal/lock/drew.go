package lock

import (
	"sync/atomic"

	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// drewShards is the number of counts that a DREW's writers share; a power of two.
const drewShards = 8

// DREW is a lock that many writers hold at once, or many readers, but never a writer and a reader.
// Writers only try, so they never wait; a reader keeps new writers out and waits for those inside.
// A writer touches a count that few other tasks touch.
//
// Models struct btrfs_drew_lock, which is a root's snapshot_lock: writers overwrite data in place,
// readers make a snapshot. Difference: no writer waits.
type DREW struct {
	class   *lockdep.Class
	readers atomic.Int32
	writers [drewShards]struct {
		n atomic.Int64
		_ [56]byte
	}
	q WaitQueue
}

// Init gives the lock its class.
func (d *DREW) Init(c *lockdep.Class) {
	d.class = c
	d.q.Init(c)
}

// Objects calls f with what a Stepper knows the lock by.
func (d *DREW) Objects(f func(*sched.Obj)) { d.q.Objects(f) }

// enter is the scheduling point. A Stepper sees the counts and the wait as one object.
func (d *DREW) enter(t *sched.Task) {
	rt := t.Runtime()
	if rt == nil {
		return
	}
	if st := t.Stepper(); st != nil && st.Aborting() {
		return
	}
	t.Next = sched.Op{Kind: sched.PointAtomic, Class: classOf(d.class).ID, Use: sched.Writes, Obj: &d.q.obj, ID: d}
	rt.Enter(t)
}

func (d *DREW) shard(t *sched.Task) *atomic.Int64 { return &d.writers[t.ID%drewShards].n }

// TryWrite makes t a writer unless there is a reader. Models btrfs_drew_try_write_lock().
func (d *DREW) TryWrite(t *sched.Task) bool {
	d.enter(t)
	traced(t, "btrfs_drew_try_write_lock")
	n := d.shard(t)
	// First count, then look: a reader counts itself first, so that one of the two sees the other.
	n.Add(1)
	if d.readers.Load() != 0 {
		n.Add(-1)
		d.q.Wake(t)
		return false
	}
	lockdep.Acquire(t, classOf(d.class), 0, d, lockdep.Read|lockdep.Try)
	t.Owe(d)
	return true
}

// WriteUnlock ends TryWrite, by the same task. Models btrfs_drew_write_unlock().
func (d *DREW) WriteUnlock(t *sched.Task) {
	d.enter(t)
	traced(t, "btrfs_drew_write_unlock")
	lockdep.Release(t, classOf(d.class), d)
	t.Discharge(d)
	d.leave(t)
}

func (d *DREW) leave(t *sched.Task) {
	d.shard(t).Add(-1)
	if d.readers.Load() != 0 {
		d.q.Wake(t)
	}
}

// Disown lets t go on while its place as a writer stays taken: the device has what it writes.
// WriteUnlockDisowned gives the place back.
func (d *DREW) Disown(t *sched.Task) {
	lockdep.Release(t, classOf(d.class), d)
	t.Discharge(d)
}

// WriteUnlockDisowned ends TryWrite after Disown, on any task. It never sleeps.
func (d *DREW) WriteUnlockDisowned(t *sched.Task) {
	d.enter(t)
	traced(t, "btrfs_drew_write_unlock")
	d.leave(t)
}

// ReadLock makes t a reader; it sleeps while there are writers. Models btrfs_drew_read_lock().
func (d *DREW) ReadLock(t *sched.Task) {
	d.enter(t)
	traced(t, "btrfs_drew_read_lock")
	d.readers.Add(1)
	d.q.WaitFor(t, d, func() bool { return d.Writers() == 0 })
	lockdep.Acquire(t, classOf(d.class), 0, d, lockdep.Write)
}

// ReadUnlock ends ReadLock. Models btrfs_drew_read_unlock().
func (d *DREW) ReadUnlock(t *sched.Task) {
	d.enter(t)
	traced(t, "btrfs_drew_read_unlock")
	lockdep.Release(t, classOf(d.class), d)
	if d.readers.Add(-1) < 0 {
		panic("lock: DREW has fewer than no readers")
	}
}

// traced tells a step, by the kernel's function.
func traced(t *sched.Task, name string) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: name})
	}
}

// Writers is the number of writers. While tasks come and go it may count one that has gone, never
// miss one that stays. A single count may be negative: a writer that was disowned leaves by another
// task's.
func (d *DREW) Writers() int64 {
	sum := int64(0)
	for i := range d.writers {
		sum += d.writers[i].n.Load()
	}
	return sum
}
