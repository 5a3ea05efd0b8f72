package vtime

import (
	"slices"

	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// The steps of a rw_semaphore, and which task gets it next. A sleeping mutex is one without
// readers.
//
//	a writer comes      the lock is free and not promised: take it, although others are queued (stealing)
//	                    its owner runs, or readers have it: spin, first come first served (the osq)
//	                    else: queue, try once more, sleep
//	a spinner           takes the lock when it becomes free; queues when the owner stops running, when another task wants its
//	                    CPU, or when readers have kept the lock for rspin
//	a reader comes      nobody writes and nothing is promised: join the readers if nobody is queued, steal a free lock
//	                    else: queue and sleep until the lock is granted
//	the lock is let go  promised: the heir gets it. A reader is first in the queue: all queued readers get it.
//	                    Else the first spinner takes it, and the first of the queue is woken to try as well
//	a queued writer     that is woken too late and has waited for Machine.Handoff becomes the heir (RWSEM_FLAG_HANDOFF): nobody
//	                    else gets the lock now. While the owner runs the heir spins, so the lock changes hands without a
//	                    wake-up; it sleeps when the owner does
//
// So a queue of sleepers costs the lock no idle time as long as the owners run: while one is being
// woken others steal, and once it is up and may insist, it spins.
//
// Model: kernel/locking/rwsem.c of Linux 5.11 to 6.18 (rwsem_down_write_slowpath,
// rwsem_optimistic_spin, rwsem_spin_on_owner, rwsem_try_write_lock, rwsem_down_read_slowpath,
// rwsem_mark_wake, rwsem_wake). A lock with SetHandoff(false) is one of Linux before 5.3, and all
// are with Machine.Handoff < 0: no promise, and the first of the queue is not woken while somebody
// spins. Differences: the first of the osq learns of a
// free lock one cache line later, and never loses it to a task that came meanwhile; a mutex
// promises the lock after the same time as a rwsem, where Linux does so the first time that a woken
// waiter comes too late.

// readerBatch is how many readers get the lock at once. Models MAX_READERS_WAKEUP.
const readerBatch = 256

// rspin is how long, in nanoseconds, the first spinner watches n readers before it gives up. Models
// rwsem_rspin_threshold().
func rspin(n int) int64 { return int64(20+min(n, 30)) * 500 }

type rwsem struct {
	w       *World
	owner   *task // the writer
	readers int
	queue   []*task // sleeping waiters; task.wait has the details
	spin    fifo    // writers that spin before they queue, in the order they came
	class   sched.ClassID
	cpu     int32 // that wrote the lock last
	bit     bool  // a page lock: nobody spins, nothing is promised
	unfair  bool  // nothing is promised: Linux before 5.3

	heir      *task // the first of the queue, to whom the lock is promised
	heirSpins bool
	// readersNext promises the lock to the first of the queue, a reader.
	readersNext bool
	// noSpin says that a writer has watched readers in vain: nobody spins until the last of them
	// has gone.
	noSpin bool
}

// waiter is a task's place in a queue.
type waiter struct {
	since   int64 // arrival
	spun    int64 // begin of the spin
	on      *rwsem
	at      int64 // when the lock was granted
	read    bool
	granted bool
	woken   bool
}

func (l *rwsem) fair() bool     { return !l.bit && !l.unfair && l.w.handoff > 0 }
func (l *rwsem) promised() bool { return l.heir != nil || l.readersNext }
func (l *rwsem) free() bool     { return l.owner == nil && l.readers == 0 }

// open reports whether a task that is not queued may take the lock now.
func (l *rwsem) open(read bool) bool {
	if l.owner != nil || l.promised() {
		return false
	}
	return l.readers == 0 || read && len(l.queue) == 0
}

func (l *rwsem) take(k *task, read bool) {
	if !read {
		l.owner = k
		return
	}
	if l.readers++; l.readers > 1 {
		return
	}
	if len(l.queue) > 0 && l.queue[0].wait.read {
		l.grantReaders() // a reader that steals the lock also admits the readers queued before it
	}
	l.watchReaders()
}

// SetHandoff says whether the lock is promised to a waiter at all.
func (l *rwsem) SetHandoff(on bool) { l.unfair = !on }

// Acquire gets the lock.
func (l *rwsem) Acquire(t *sched.Task, read bool) (since int64, waited bool) {
	w := l.w
	k := w.of(t)
	w.touch(k, &l.cpu)
	w.settle(k)
	if !l.open(read) {
		t.Unplug() // the owner may wait for what k holds back
		w.settle(k)
	}
	if l.open(read) {
		if len(l.queue) > 0 {
			w.stats.Stolen++
		}
		l.take(k, read)
		return 0, false
	}
	since = w.now
	k.class = l.class
	k.wait = waiter{since: since, on: l, read: read}
	switch {
	case read:
		l.sleep(k)
	case l.spinnable():
		l.startSpin(k)
		l.spin.push(k)
		if l.spin.n == 1 {
			l.watchReaders()
		}
		k.yield(struct{}{}) // until the lock is its own, or stopSpin has queued it and it was woken
	default:
		l.sleep(k)
	}
	for !k.wait.granted {
		if l.free() && !l.readersNext && (l.heir == nil || l.heir == k) {
			l.dequeue(k)
			l.take(k, read)
			l.cpu = int32(k.cpu)
			break
		}
		if l.fair() && !l.promised() && l.queue[0] == k && w.now-since >= w.handoff {
			l.heir = k
		}
		k.wait.woken = false
		if l.heir == k && l.owner != nil && l.spinnable() {
			l.heirSpins = true
			l.startSpin(k)
			k.yield(struct{}{})
			continue
		}
		k.state = queued
		w.leaveCPU(k)
		k.yield(struct{}{})
	}
	return since, true
}

// spinnable reports whether a writer spins on whoever has the lock. Models
// rwsem_can_spin_on_owner().
func (l *rwsem) spinnable() bool {
	if l.bit || l.w.m.NoSpin || l.w.waiting > 0 {
		return false
	}
	if l.owner != nil {
		return l.owner.onCPU()
	}
	return !l.noSpin
}

// sleep queues k, which is on a CPU, and returns when it has been woken.
func (l *rwsem) sleep(k *task) {
	k.state = queued
	l.queue = append(l.queue, k)
	l.w.leaveCPU(k)
	k.yield(struct{}{})
}

func (l *rwsem) dequeue(k *task) {
	i := slices.Index(l.queue, k)
	l.queue = slices.Delete(l.queue, i, i+1)
	if l.heir == k {
		l.heir = nil
		l.w.stats.Handoffs++
	}
}

// startSpin makes k, which is on a CPU, a spinner.
func (l *rwsem) startSpin(k *task) {
	k.state = spinning
	k.wait.spun = l.w.now
	if !slices.Contains(l.w.contended, l) {
		l.w.contended = append(l.w.contended, l)
	}
}

// endSpin accounts for what k has spun. The caller has taken it out of the spinners.
func (l *rwsem) endSpin(k *task) {
	w := l.w
	if l.spin.n == 0 && !l.heirSpins {
		w.contended = slices.DeleteFunc(w.contended, func(o *rwsem) bool { return o == l })
	}
	k.up() // the timer of watchReaders, if it is set
	spun := w.now - k.wait.spun
	w.stats.Spun += spun
	k.quiet -= spun
	if w.m.Watch != nil {
		w.m.Watch.Spun(k.t, k.cpu, k.wait.spun, w.now)
	}
}

// stopSpin puts one spinner to sleep: the first that is not queued yet, or else the heir.
func (l *rwsem) stopSpin() {
	var k *task
	if l.spin.n > 0 {
		k = l.spin.pop()
		l.endSpin(k)
		l.queue = append(l.queue, k)
		l.watchReaders()
	} else {
		k = l.stopHeir()
	}
	k.state = queued
	l.w.leaveCPU(k)
}

func (l *rwsem) stopHeir() *task {
	l.heirSpins = false
	l.endSpin(l.heir)
	return l.heir
}

// ownerLeft puts all spinners to sleep: the writer that they watch has left its CPU.
func (l *rwsem) ownerLeft() {
	for l.spin.n > 0 || l.heirSpins {
		l.stopSpin()
	}
}

// watchReaders starts the time after which the first spinner gives up on readers.
func (l *rwsem) watchReaders() {
	if l.readers > 0 && l.spin.n > 0 {
		k := l.spin.first()
		k.up()
		l.w.push(l.w.now+rspin(l.readers), k, true)
	}
}

// spunOut is the end of that time: no writer spins any more.
func (l *rwsem) spunOut() {
	l.noSpin = true
	for l.spin.n > 0 {
		l.stopSpin()
	}
}

// Try gets the lock if it is free and, unless it is a bit, nobody is queued for it.
func (l *rwsem) Try(t *sched.Task, read bool) bool {
	k := l.w.of(t)
	l.w.touch(k, &l.cpu)
	if !l.open(read) || !l.bit && len(l.queue) > 0 {
		return false
	}
	l.take(k, read)
	return true
}

// Release lets the lock go.
func (l *rwsem) Release(t *sched.Task, read bool) {
	w := l.w
	k := w.of(t)
	if len(l.queue) > 0 || !l.bit {
		w.settle(k)
	}
	if read {
		if l.readers == 0 {
			panic("lock: RUnlock of an RWSem not locked for reading")
		}
		if l.readers--; l.readers > 0 {
			return
		}
		l.noSpin = false
	} else {
		if l.owner == nil {
			panic("lock: Unlock of a lock that is not locked")
		}
		l.owner = nil
	}
	l.pass()
}

// pass finds the next owner of the lock, which is free.
func (l *rwsem) pass() {
	if l.heirSpins && !l.disturbed(l.heir) {
		k := l.stopHeir()
		l.dequeue(k)
		l.handTo(k)
		return
	}
	if l.heir != nil {
		l.wakeFirst()
		return
	}
	if len(l.queue) > 0 && l.queue[0].wait.read {
		l.readersNext = l.readersNext || l.fair() && l.w.now-l.queue[0].wait.since >= l.w.handoff
		if l.readersNext || l.spin.n == 0 {
			l.grantReaders()
			l.watchReaders()
			return
		}
	}
	for l.spin.n > 0 && l.disturbed(l.spin.first()) {
	}
	taken := l.spin.n > 0
	if taken {
		k := l.spin.pop()
		l.endSpin(k)
		l.handTo(k)
	}
	switch {
	case len(l.queue) == 0:
	case !l.queue[0].wait.read:
		if !taken || l.fair() {
			l.wakeFirst()
		}
	case !taken: // noise has taken the spinners that came before the readers
		l.grantReaders()
	}
}

// disturbed puts a spinner to sleep if noise took its CPU while it spun. It is asked late, when the
// lock becomes free: until then the spinner could not have done anything else.
func (l *rwsem) disturbed(k *task) bool {
	w := l.w
	if k.quiet > w.now-k.wait.spun {
		return false
	}
	w.stats.Hits++
	if l.heir == k {
		l.stopHeir()
		k.state = queued
		w.leaveCPU(k)
	} else {
		l.stopSpin()
	}
	k.quiet = w.nextQuiet()
	return true
}

// handTo gives the free lock to k, which spins.
func (l *rwsem) handTo(k *task) {
	k.state = running
	k.wait.granted, k.wait.at = true, l.w.Now()
	l.owner, l.cpu = k, int32(k.cpu)
	l.w.push(l.w.now+l.w.price(cost.Line, 1), k, false)
}

// wakeFirst wakes the first of the queue, which then tries to get the lock.
func (l *rwsem) wakeFirst() {
	if k := l.queue[0]; !k.wait.woken {
		k.wait.woken = true
		l.w.wake(k)
	}
}

// grantReaders lets the queued readers in, whether writers are queued before them or not.
func (l *rwsem) grantReaders() {
	if l.readersNext {
		l.readersNext = false
		l.w.stats.Handoffs++
	}
	for i := 0; i < len(l.queue) && l.readers < readerBatch; {
		k := l.queue[i]
		if !k.wait.read {
			i++
			continue
		}
		l.queue = slices.Delete(l.queue, i, i+1)
		l.readers++
		k.wait.granted, k.wait.at = true, l.w.Now()
		l.w.wake(k)
	}
}
