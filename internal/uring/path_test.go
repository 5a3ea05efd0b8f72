package uring

import (
	"errors"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
)

// TestPath: a ring with a Path asks it for reads and writes, and keeps what does not depend on it.
func TestPath(t *testing.T) {
	var err error // of the last Try
	path := &Path{
		Submit: func(t *sched.Task, h Handle) {
			var n int
			n, err = h.Try(t)
			h.Advance(n)
			switch {
			case errors.Is(err, errno.EIOCBQUEUED):
			case !h.Nowait() && (h.Left() > 0 && n > 0 || errors.Is(err, errno.EAGAIN)):
				h.Punt(t)
			default:
				h.Complete(t, h.Done(), err)
			}
		},
		Work: func(t *sched.Task, h Handle) {
			for h.Left() > 0 {
				n, err := h.Transfer(t)
				if h.Advance(n); err != nil {
					h.Complete(t, h.Done(), err)
					return
				}
			}
			h.Complete(t, h.Done(), nil)
		},
	}
	const nowait = kiocb.Nowait
	write := func(flags kiocb.Flags) SQE {
		return SQE{Op: Write, Pos: 4, Buf: make([]byte, 8), Flags: flags, UserData: 7}
	}
	async := write(0)
	async.Async = true
	for _, c := range []struct {
		name  string
		file  func(f *fakeFile)
		sqe   SQE
		calls []string
		res   int
		stats Stats
	}{
		{"inline", nil, write(0), []string{"write nowait 8 by test"}, 8, Stats{Inline: 1}},
		{"EAGAIN", func(f *fakeFile) { f.again = 1 }, write(0), []string{"write nowait 8 by test", "write 8 by iou-wrk-0"}, 8, Stats{Punted: 1}},
		{"EAGAIN of RWF_NOWAIT", func(f *fakeFile) { f.again = 1 }, write(nowait), []string{"write nowait 8 by test"}, -int(errno.EAGAIN), Stats{Inline: 1}},
		{"the gate", func(f *fakeFile) { f.modes = kiocb.ModeNowait }, write(0), []string{"write 8 by iou-wrk-0"}, 8, Stats{Punted: 1}},
		{"no RWF_NOWAIT", func(f *fakeFile) { f.modes = 0 }, write(nowait), nil, -int(errno.EOPNOTSUPP), Stats{Inline: 1}},
		{"EOPNOTSUPP of an attempt", func(f *fakeFile) { f.fail, f.failAt = errno.EOPNOTSUPP, 4 }, write(0),
			[]string{"write nowait 8 by test", "write 8 by iou-wrk-0"}, -int(errno.EOPNOTSUPP), Stats{Punted: 1}},
		{"short", func(f *fakeFile) { f.part = 3 }, write(0),
			[]string{"write nowait 8 by test", "write 5 by iou-wrk-0", "write 2 by iou-wrk-0"}, 8, Stats{Punted: 1, Short: 1}},
		{"an error beside a count", func(f *fakeFile) { f.part, f.fail, f.failAt = 3, errno.ENOSPC, 7 }, write(0),
			[]string{"write nowait 8 by test", "write 5 by iou-wrk-0"}, -int(errno.ENOSPC), Stats{Punted: 1, Short: 1}},
		{"force_async", nil, async, []string{"write 8 by iou-wrk-0"}, 8, Stats{Punted: 1}},
		{"fsync is the ring's", nil, SQE{Op: Fsync}, []string{"fsync 0 by iou-wrk-0"}, 0, Stats{Punted: 1}},
		{"nop, too", nil, SQE{Op: Nop}, nil, 0, Stats{Inline: 1}},
	} {
		k := sched.NewTask("test")
		f := newFile()
		if c.file != nil {
			c.file(f)
		}
		r := newRing(t, k, Config{Entries: 1, Path: path})
		c.sqe.File = f
		put(r, c.sqe)
		got := all(k, r, 1)
		c.stats.Submitted = 1
		if len(got) != 1 || got[0].Res != c.res || (got[0].Err != nil) != (c.res < 0) {
			t.Errorf("%s: completions %v, want one with %d", c.name, got, c.res)
		}
		if s := r.Stats(k); s != c.stats {
			t.Errorf("%s: have %+v want %+v", c.name, s, c.stats)
		}
		same(t, c.name, f.calls, c.calls)
		r.Close(k)
	}
	k := sched.NewTask("test")
	f := newFile()
	f.device = func(t *sched.Task, rq kiocb.Request, p []byte) { rq.Done.Complete(t, len(p), nil) }
	r := newRing(t, k, Config{Entries: 1, Path: path})
	e := write(kiocb.Direct)
	e.File = f
	put(r, e)
	if got := all(k, r, 1); len(got) != 1 || got[0].Res != 8 || !errors.Is(err, errno.EIOCBQUEUED) {
		t.Errorf("queued: completions %v after %v, want one with 8", got, err)
	}
	if s, want := r.Stats(k), (Stats{Submitted: 1, Queued: 1}); s != want {
		t.Errorf("queued: have %+v want %+v", s, want)
	}
	r.Close(k)
}
