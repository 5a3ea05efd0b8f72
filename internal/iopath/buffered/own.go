package buffered

import (
	"errors"

	"btrlab/internal/data/fileread"
	"btrlab/internal/data/inode"
	"btrlab/internal/iopath"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched"
)

// ownWrite is a write between the steps of a policy for the file.
type ownWrite struct {
	iopath.FileLocks
	*write
	sized bool // cap is chosen
	err   error
}

// by lets a policy for the file carry out the write. What a batch does, and in which order, is the plan's.
func (w *write) by(t *sched.Task, own iopath.FilePolicy) error {
	if err := w.env.Bare(t, w.ip); err != nil {
		return err
	}
	mine := *w // w stays on its task's stack: others allocate nothing
	mine.pl.Lock, mine.pl.DIOBegin, mine.pl.Prewait, mine.bare = policy.LockNone, false, false, true
	o := &ownWrite{FileLocks: iopath.LocksOf(w.ip), write: &mine}
	own.Write(t, o)
	w.pos, w.done = mine.pos, mine.done
	return o.err
}

func (o *ownWrite) Range(t *sched.Task) (start, end uint64) {
	start = o.pos - uint64(o.done)
	if o.append && o.cap == 0 {
		start = o.ip.Size(t)
	}
	return start, start + uint64(len(o.src.Buf))
}

func (o *ownWrite) Appends() bool { return o.append }

func (o *ownWrite) Prewait(t *sched.Task) {
	_, end := o.Range(t)
	o.prewait(t, end)
}

// Begin has what the plans do between the lock and the copy loop.
func (o *ownWrite) Begin(t *sched.Task) bool {
	o.isize = o.ip.Size(t)
	if o.append {
		o.pos = o.isize
	}
	if o.err = o.drainDirect(t); o.err == nil {
		o.err = o.checkWrite(t)
	}
	o.cap = policy.BatchMaxPages
	return o.err == nil
}

func (o *ownWrite) Batch(t *sched.Task, pages int) bool {
	if pages = max(1, min(pages, policy.BatchMaxPages)); !o.sized {
		o.pl.BatchPages, o.sized = pages, true
		o.cap = o.batchPages(t)
	}
	o.cap = min(o.cap, pages)
	if o.err == nil {
		o.err = o.batch(t)
	}
	return o.err == nil && o.done < len(o.src.Buf)
}

func (o *ownWrite) Balance(t *sched.Task) { _ = o.balanceDirty(t) } // an error is for those that do not sleep

// ownRead is a read between the steps of a policy for the file.
type ownRead struct {
	iopath.FileLocks
	env *iopath.Env
	ip  *inode.Inode
	pos uint64
	p   []byte
	ra  *fileread.State
	n   int
	err error
}

func readBy(t *sched.Task, env *iopath.Env, ip *inode.Inode, pos uint64, p []byte, ra *fileread.State, own iopath.FilePolicy) (int, error) {
	o := &ownRead{FileLocks: iopath.LocksOf(ip), env: env, ip: ip, pos: pos, p: p, ra: ra}
	own.Read(t, o)
	return o.n, o.err
}

func (o *ownRead) Range(*sched.Task) (start, end uint64) { return o.pos, o.pos + uint64(len(o.p)) }

func (o *ownRead) Copy(t *sched.Task) {
	n, err := read(t, o.env, o.ip, o.pos, false, o.p, o.ra)
	o.n, o.err = n, errors.Join(o.err, err)
}
