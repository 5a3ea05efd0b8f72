package lock

import (
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// Under a Simulator a lock is the simulator's: it knows CPUs, spinning and handing over. The
// methods here tell it the kind of lock and keep lockdep and the wait statistics.

func (k *core) simLock(sim sched.Simulator, c *lockdep.Class) sched.SimLock {
	d := k.state()
	if d.sim == nil {
		d.sim = sim.NewLock(c.Kind, c.ID)
		d.sim.SetHandoff(!k.unfair)
	}
	return d.sim
}

func (k *core) lockSim(t *sched.Task, sim sched.Simulator, sub uint64, id any, mode lockdep.Mode) {
	c := classOf(k.class)
	lockdep.Acquire(t, c, sub, id, mode)
	if since, waited := k.simLock(sim, c).Acquire(t, mode == lockdep.Read); waited {
		t.Waited(c.ID, c.Name, since)
	}
}

func (k *core) tryLockSim(t *sched.Task, sim sched.Simulator, sub uint64, id any, mode lockdep.Mode) bool {
	c := classOf(k.class)
	if !k.simLock(sim, c).Try(t, mode == lockdep.Read) {
		return false
	}
	lockdep.Acquire(t, c, sub, id, mode|lockdep.Try)
	return true
}

func (k *core) unlockSim(t *sched.Task, id any, mode lockdep.Mode) {
	c := classOf(k.class)
	lockdep.Release(t, c, id)
	if k.det == nil || k.det.sim == nil {
		panic("lock: unlock of a " + c.Name + " that is not locked")
	}
	k.det.sim.Release(t, mode == lockdep.Read)
}
