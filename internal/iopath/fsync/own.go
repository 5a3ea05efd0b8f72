package fsync

import (
	"sync/atomic"

	"btrlab/internal/data/inode"
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// ownSync is an fsync between the steps of a policy for the file. It commits: there is no log.
type ownSync struct {
	iopath.FileLocks
	env  *iopath.Env
	ip   *inode.Inode
	seen *atomic.Uint64
	err  error
}

func syncBy(t *sched.Task, env *iopath.Env, ip *inode.Inode, seen *atomic.Uint64, own iopath.FilePolicy) error {
	o := &ownSync{FileLocks: iopath.LocksOf(ip), env: env, ip: ip, seen: seen}
	own.Fsync(t, o)
	return o.err
}

func (o *ownSync) keep(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *ownSync) Start(t *sched.Task) { o.keep(startOrderedOps(t, o.env, o.ip)) }

func (o *ownSync) Flush(t *sched.Task) { o.keep(flushAndWait(t, o.env, o.ip)) }

func (o *ownSync) Commit(t *sched.Task) {
	if o.keep(o.ip.Pages.CheckError(t, o.seen)); o.err == nil {
		o.err = commitFor(t, o.env, o.ip)
	}
}
