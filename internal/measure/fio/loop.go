package fio

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// pick is the next request. The files can be used up before ioSize bytes are (bssplit, io_size >
// size): then they start over, as fio's do. With zipf a file that is used up starts over alone.
func (k *worker) pick() (p *part, dir int, off int64, n int) {
	for ok := false; !ok; {
		if p = k.next(); p == nil {
			k.reset()
			continue
		}
		dir = p.gen.direction()
		if off, n, ok = p.gen.next(dir); ok {
			break
		}
		if p.done = true; k.job.Service.kind == zipfFile {
			p.gen.reset()
			p.done = false
		}
	}
	if left := k.ioSize - k.passBytes; int64(n) > left && left >= p.gen.unit {
		n = int(left - left%p.gen.unit)
	}
	k.passBytes += int64(n)
	k.passIOs++
	return p, dir, off, n
}

// fill makes p the data of write number k.number at off of at, and gives the stamper's name of the
// write.
func (k *worker) fill(p []byte, at *part, off int64) (write uint64) {
	switch {
	case k.stamp != nil:
		return k.stamp.Stamp(p, off)
	case k.job.Verify:
		k.rescramble(p, off)
		sealUnits(p, off, int(at.gen.unit), k.num, k.number)
		for b := (off - at.gen.start) / at.gen.unit; at.lastWrite != nil && b < (off-at.gen.start+int64(len(p)))/at.gen.unit; b++ {
			at.lastWrite[b] = k.number
		}
	default:
		k.rescramble(p, off)
	}
	return 0
}

// rescramble makes no two writes alike at the price of a few stores, as fio's scramble_buffers
// does.
func (k *worker) rescramble(p []byte, off int64) {
	x := uint64(off) ^ k.number<<40
	for len(p) >= 512 {
		p[500], p[501], p[502], p[503] = byte(x), byte(x>>8), byte(x>>16), byte(x>>24)
		p[504], p[505], p[506], p[507] = byte(x>>32), byte(x>>40), byte(x>>48), byte(x>>56)
		p = p[512:]
	}
}

// opNames label the waits of a request, by direction.
var opNames = [2]string{"read", "write"}

// unit is one request, from the moment it is made until its latencies are noted. Models fio's
// struct io_u.
type unit struct {
	tag   uint32
	mem   [2][]byte // by direction
	part  *part
	dir   int
	whole []byte
	left  []byte // of whole, what is not done
	off   int64  // of left
	again bool   // a part was done
	noted bool   // the stamper knows its end

	start  int64  // Now when it was made
	issued int64  // Now when it had been submitted
	write  uint64 // the stamper's number of the write
	err    error
}

// loop is the life of a worker: it returns the time when it ended.
//
// Models fio backend.c:do_io().
func (k *worker) loop(t *sched.Task) int64 {
	now := k.start
	for k.failed == nil && k.due(now) {
		if k.flow != nil {
			if now = k.share(t, now); !k.due(now) {
				break
			}
		}
		p, dir, off, n := k.pick()
		if step := k.step(dir, n); step > 0 {
			if k.rateNext[dir] > now {
				now = k.drain(t, now) // a sleep must not count as the latency of what has ended
				t.Sleep(time.Duration(max(0, min(k.rateNext[dir], k.end)-now)))
				if now = t.Now(); now >= k.end {
					break
				}
			}
			k.rateNext[dir] += step
		}
		u := k.free[len(k.free)-1]
		k.free = k.free[:len(k.free)-1]
		u.part, u.dir, u.off, u.whole, u.err, u.again, u.noted = p, dir, off, u.mem[dir][:n], nil, false, false
		u.left = u.whole
		if dir == DirWrite {
			k.number++
			u.write = k.fill(u.whole, p, off)
		}
		if t.Op != opNames[dir] {
			t.Doing(opNames[dir])
		}
		t.Spend(cost.Issue, 1)
		u.start = t.Now()
		if k.queue == nil {
			now = k.call(t, u)
		} else {
			now = k.issue(t, u)
		}
		k.observe(t, now)
		if dir == DirWrite && k.failed == nil && k.syncDue() {
			k.fsync(t, p)
			now = t.Now()
		}
		if k.sinceIdle++; k.job.Think > 0 && k.sinceIdle >= k.job.ThinkBlocks {
			k.sinceIdle = 0
			now = k.drain(t, now)
			t.Sleep(time.Duration(min(int64(k.job.Think), max(0, k.end-now))))
			now = t.Now()
		}
	}
	return k.drain(t, now)
}

// step is the time in ns that the rate gives a request of n bytes; 0 without a rate.
func (k *worker) step(dir, n int) int64 {
	step := k.rateStep[dir]
	if r := k.job.Rate[dir]; r > 0 {
		step = int64(float64(n) * float64(time.Second) / float64(r))
	}
	if step > 0 && k.job.Poisson {
		u := (float64(k.pauses.next()>>11) + 0.5) / (1 << 53)
		step = int64(-math.Log(u) * float64(step))
	}
	return step
}

// call does u by system calls of its own, as many as it needs. Models engines/sync.c.
func (k *worker) call(t *sched.Task, u *unit) (now int64) {
	flags := k.job.flags()
	for n, err := k.syscall(t, u, flags); !k.ended(t, u, n, err); {
		n, err = k.syscall(t, u, flags)
	}
	now = t.Now()
	u.issued = u.start
	k.res.Depth[0]++
	k.res.Submit[1]++
	k.res.Complete[1]++
	k.done(u, now)
	return now
}

// syscall moves what is left of u, or a part of it.
func (k *worker) syscall(t *sched.Task, u *unit, flags kiocb.Flags) (int, error) {
	f, direct, write := u.part, flags&kiocb.Direct != 0, u.dir == DirWrite
	switch {
	case k.job.Engine == FTruncate:
		if err := f.target.Truncate(t, u.off); err != nil {
			return 0, err
		}
		return len(u.left), nil
	case flags&(kiocb.Nowait|kiocb.DSync) != 0: // preadv2, pwritev2, or an open file that says so
		rq := kiocb.Request{Pos: uint64(u.off), Flags: flags}
		if write {
			return f.iter.WriteIter(t, rq, iopath.Source{Buf: u.left})
		}
		return f.iter.ReadIter(t, rq, u.left)
	case write && direct:
		return f.direct.WriteDirect(t, u.left, u.off)
	case write:
		return f.target.WriteAt(t, u.left, u.off)
	case direct:
		return f.direct.ReadDirect(t, u.left, u.off)
	}
	return f.target.ReadAt(t, u.left, u.off)
}

// ended takes note of n bytes that were moved, and reports whether u is over, at all or with an
// error. Of a short one without an error the rest is to be done.
func (k *worker) ended(t *sched.Task, u *unit, n int, err error) bool {
	at := u.off
	u.left, u.off = u.left[n:], u.off+int64(n)
	switch {
	case len(u.left) == 0: // io.EOF may come with the last byte
		return true
	case err == nil && n > 0:
		k.dir(u).Short++
		u.again = true
		return false
	case errors.Is(err, io.EOF), err == nil && u.dir == DirRead:
		err = fmt.Errorf("read at %d of %d bytes: end of file, size %d", at, len(u.whole), u.part.target.Size(t))
	case err == nil:
		err = errno.EIO
	}
	u.err = err
	return true
}

// issue puts u into the queue, and makes room when iodepth requests are in flight. Models
// td_io_queue() and the end of do_io().
func (k *worker) issue(t *sched.Task, u *unit) (now int64) {
	k.fly++
	k.prep(t, u)
	now = u.start
	if len(k.batch) >= k.job.batch() {
		now = k.commit(t)
	}
	for full := k.fly == len(k.units); full && k.failed == nil && (k.fly == len(k.units) || k.fly > k.job.low()); {
		now = k.reap(t, now, k.job.BatchMin, k.job.BatchMax)
	}
	return now
}

func (k *worker) prep(t *sched.Task, u *unit) {
	if err := k.queue.Prep(t, u.part.of, u.dir, u.left, u.off, u.tag); err != nil {
		k.fail(err)
	}
	k.batch = append(k.batch, u)
}

func (k *worker) fail(err error) {
	if k.failed == nil {
		k.failed = err
	}
}

func (k *worker) dir(u *unit) *stats.Dir {
	if u.dir == DirRead {
		return &k.res.Read
	}
	return &k.res.Write
}

// commit submits the batch. Models td_io_commit() and fio_libaio_queued().
func (k *worker) commit(t *sched.Task) (now int64) {
	n := len(k.batch)
	err := k.queue.Submit(t)
	now = t.Now()
	if err != nil {
		k.fail(fmt.Errorf("submit: %w", err))
	}
	k.res.Submit[stats.BatchLevel(n)]++
	for _, u := range k.batch {
		if !u.again {
			k.res.Depth[stats.DepthLevel(k.fly)]++
			k.dir(u).Slat.Add(now - u.start)
			if k.logs != nil {
				k.logs.submitted(u, now)
			}
		}
		u.issued = now
		if k.overs != nil && k.overs.Over(u.tag) {
			k.note(u, now)
		}
	}
	k.batch = k.batch[:0]
	return now
}

// reap waits for at least atLeast requests and ends up to most, or as many when most is less. Of
// what was moved in part the rest goes into the queue again. now is the last reading of the clock.
// It is the end of those that had ended by then: fio reads the clock once more. Models
// wait_for_completions() and io_u_queued_complete().
func (k *worker) reap(t *sched.Task, now int64, atLeast, most int) int64 {
	if len(k.batch) > 0 {
		now = k.commit(t)
	}
	atLeast = max(1, min(atLeast, k.fly))
	looked, err := k.queue.Wait(t, atLeast)
	if err != nil {
		k.fail(fmt.Errorf("wait for requests: %w", err))
		k.fly = 0 // nobody knows
		return t.Now()
	}
	if !looked || t.Simulator() != nil { // there a reading costs nothing, and a look takes its time
		now = t.Now()
	}
	got := 0
	for got < max(most, atLeast) {
		tag, n, err, ok := k.queue.Reap(t)
		if !ok {
			break
		}
		got++
		if u := &k.units[tag]; k.ended(t, u, n, err) {
			k.fly--
			k.done(u, now)
		} else {
			k.prep(t, u)
		}
	}
	k.res.Complete[stats.BatchLevel(got)]++
	return now
}

// drain waits for all requests in flight.
func (k *worker) drain(t *sched.Task, now int64) int64 {
	for k.fly > 0 {
		now = k.reap(t, now, k.fly, k.fly)
	}
	return now
}

// note tells the stamper that u's write ended at now at the latest.
func (k *worker) note(u *unit, now int64) {
	if u.dir == DirWrite && k.stamp != nil && !u.noted {
		u.noted = true
		k.stamp.Done(u.write, u.start, now, u.err)
	}
}

// done is the end of u, as the task sees it at time now.
func (k *worker) done(u *unit, now int64) {
	k.note(u, now)
	if k.opt.Request != nil {
		k.opt.Request(u.start, now)
	}
	k.free = append(k.free, u)
	if u.err == nil && u.dir == DirRead && k.job.Verify && !k.job.Write {
		u.err = k.checkUnits(u.whole, u.off-int64(len(u.whole)))
	}
	switch {
	case u.err != nil && k.job.ignores(u.dir, u.err):
		k.res.Ignore(numberOf(u.err))
		return
	case u.err != nil && u.dir == DirWrite && k.job.FillDevice && errors.Is(u.err, errno.ENOSPC):
		k.full = true
		return
	case u.err != nil:
		k.fail(u.err)
		return
	}
	s := k.dir(u)
	s.IOs++
	s.Bytes += uint64(len(u.whole))
	s.Clat.Add(now - u.issued)
	s.Lat.Add(now - u.start)
	if k.logs != nil {
		k.logs.done(u, now)
	}
}

func (k *worker) fsync(t *sched.Task, p *part) {
	t.Doing("fsync")
	start := t.Now()
	if err := p.target.Fsync(t); err != nil {
		k.failed = fmt.Errorf("fsync: %w", err)
		return
	}
	k.res.Sync.Add(t.Now() - start)
}

// syncDue counts a write and reports whether fsync=N or fdatasync=N asks for a sync after it. With
// both each counts for itself, and one sync is both's.
func (k *worker) syncDue() bool {
	k.written++
	every := func(n int) bool { return n > 0 && k.written%n == 0 }
	return every(k.job.Fsync) || every(k.job.Fdatasync)
}
