package fsync

import (
	"sync/atomic"

	"btrlab/internal/data/inode"
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// labSync is an fsync whose steps a lab orders. It commits: there is no log.
type labSync struct {
	iopath.FileLocks
	env  *iopath.Env
	ip   *inode.Inode
	seen *atomic.Uint64
	err  error
}

func byLab(t *sched.Task, env *iopath.Env, ip *inode.Inode, seen *atomic.Uint64, lab iopath.FilePolicy) error {
	o := &labSync{FileLocks: iopath.LocksOf(ip), env: env, ip: ip, seen: seen}
	lab.Fsync(t, o)
	return o.err
}

func (o *labSync) keep(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *labSync) Start(t *sched.Task) { o.keep(startOrderedOps(t, o.env, o.ip)) }

func (o *labSync) Flush(t *sched.Task) { o.keep(flushAndWait(t, o.env, o.ip)) }

func (o *labSync) Commit(t *sched.Task) {
	if o.keep(o.ip.Pages.CheckError(t, o.seen)); o.err == nil {
		o.err = commitFor(t, o.env, o.ip)
	}
}
