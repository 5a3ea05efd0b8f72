package setsize

import (
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/iopath"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// labTruncate is a truncate whose steps a lab orders.
type labTruncate struct {
	iopath.FileLocks
	env     *iopath.Env
	ip      *inode.Inode
	newSize uint64
	err     error
}

func byLab(t *sched.Task, env *iopath.Env, ip *inode.Inode, newSize uint64, lab iopath.FilePolicy) error {
	o := &labTruncate{FileLocks: iopath.LocksOf(ip), env: env, ip: ip, newSize: newSize}
	lab.Truncate(t, o)
	return o.err
}

func (o *labTruncate) NewSize() uint64 { return o.newSize }

// SetSize is the first step of SetSize's orders, or all of grow.
//
// Preconditions:
//   - ip is locked for writing.
func (o *labTruncate) SetSize(t *sched.Task) bool {
	o.ip.AssertLocked(t)
	old := o.ip.Size(t)
	plan := policy.ForSetsize(policy.Facts{ISize: old, NewSize: o.newSize}, o.env.Policy())
	if o.err = o.env.RemovePrivs(t, o.ip, false); o.err != nil {
		return false
	}
	o.ip.Touch(t, o.env.Now())
	switch {
	case o.newSize > old:
		o.err = grow(t, o.env, o.ip, old, o.newSize, plan)
		return false
	case o.newSize == old:
		return false
	}
	truncateSetsize(t, o.ip, o.newSize, plan.StableWait)
	return true
}

func (o *labTruncate) DropExtents(t *sched.Task) {
	if o.err = waitOrdered(t, o.env, o.ip); o.err == nil {
		o.err = truncateItems(t, o.env, o.ip, false)
	}
	if o.err != nil { // what is left of the file is what the tree says
		_ = o.ip.Ordered.WaitRange(t, 0, pagecache.MaxFileEnd)
		o.ip.SetSize(t, o.ip.DiskSize(t))
	}
}
