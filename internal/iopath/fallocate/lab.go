package fallocate

import (
	"btrlab/internal/data/inode"
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// labChange is a fallocate whose steps a lab orders.
type labChange struct {
	iopath.FileLocks
	env      *iopath.Env
	ip       *inode.Inode
	mode     uint32
	off, end uint64
	err      error
}

func byLab(t *sched.Task, env *iopath.Env, ip *inode.Inode, mode uint32, off, end uint64, lab iopath.FilePolicy) error {
	if err := env.Bare(t, ip); err != nil {
		return err
	}
	o := &labChange{FileLocks: iopath.LocksOf(ip), env: env, ip: ip, mode: mode, off: off, end: end}
	lab.Fallocate(t, o)
	return o.err
}

func (o *labChange) Range(*sched.Task) (start, end uint64) { return o.off, o.end }

func (o *labChange) Punches() bool { return o.mode&(PunchHole|ZeroRange) != 0 }

func (o *labChange) Change(t *sched.Task) {
	var nothing bool
	if nothing, o.err = punchesNothing(t, o.env, o.ip, o.mode, o.off, o.end); nothing || o.err != nil {
		return
	}
	o.err = change(t, o.env, o.ip, o.mode, o.off, o.end-o.off, planOf(t, o.env, o.ip, o.off, o.end))
}
