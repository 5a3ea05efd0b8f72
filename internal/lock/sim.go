package lock

import (
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// Under a Simulator a lock is the simulator's: it knows CPUs, spinning and handing over. What is here tells it the kind of
// lock and keeps lockdep and the wait statistics.

// kindOf is what the kernel has in the place of a lock of class c: leaves are spinlocks, a page lock is a bit.
func kindOf(c *lockdep.Class) sched.LockKind {
	switch {
	case c.Rank >= lockdep.RankLeaf:
		return sched.LockSpin
	case c.Rank == lockdep.RankPage:
		return sched.LockBit
	}
	return sched.LockSleep
}

func simOf(d **detState, sim sched.Simulator, c *lockdep.Class) sched.SimLock {
	if *d == nil {
		*d = &detState{}
	}
	if (*d).sim == nil {
		(*d).sim = sim.NewLock(kindOf(c), c.ID)
	}
	return (*d).sim
}

func acquireSim(t *sched.Task, l sched.SimLock, c *lockdep.Class, sub uint64, obj any, read bool) {
	lockdep.Acquire(t, c, sub, obj, read, false, false)
	if since, waited := l.Acquire(t, read); waited {
		t.Waited(c.ID, c.Name, since, 5)
	}
}

func tryAcquireSim(t *sched.Task, l sched.SimLock, c *lockdep.Class, sub uint64, obj any, read bool) bool {
	if !l.Try(t, read) {
		return false
	}
	lockdep.Acquire(t, c, sub, obj, read, true, false)
	return true
}

func releaseSim(t *sched.Task, d *detState, c *lockdep.Class, obj any, read bool) {
	lockdep.Release(t, c, obj)
	if d == nil || d.sim == nil {
		panic("lock: Unlock of a " + c.Name + " that is not locked")
	}
	d.sim.Release(t, read)
}

func (m *Mutex) lockSim(t *sched.Task, sim sched.Simulator, sub uint64) {
	c := classOf(m.class)
	acquireSim(t, simOf(&m.det, sim, c), c, sub, m, false)
}

func (m *Mutex) tryLockSim(t *sched.Task, sim sched.Simulator, sub uint64) bool {
	c := classOf(m.class)
	return tryAcquireSim(t, simOf(&m.det, sim, c), c, sub, m, false)
}

func (m *Mutex) unlockSim(t *sched.Task) { releaseSim(t, m.det, classOf(m.class), m, false) }

func (s *RWSem) lockSim(t *sched.Task, sim sched.Simulator, sub uint64, read bool) {
	c := classOf(s.class)
	acquireSim(t, simOf(&s.det, sim, c), c, sub, s, read)
}

func (s *RWSem) tryLockSim(t *sched.Task, sim sched.Simulator, sub uint64, read bool) bool {
	c := classOf(s.class)
	return tryAcquireSim(t, simOf(&s.det, sim, c), c, sub, s, read)
}

func (s *RWSem) unlockSim(t *sched.Task, read bool) {
	releaseSim(t, s.det, classOf(s.class), s, read)
}
