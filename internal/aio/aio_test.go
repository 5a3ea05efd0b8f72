package aio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// file does buffered requests at once and queues direct ones.
type file struct {
	queued []kiocb.Request
	device func(t *sched.Task, rq kiocb.Request, n int)
	n      int // of a buffered request
	err    error
}

func (f *file) iter(t *sched.Task, rq kiocb.Request, p []byte) (int, error) {
	if rq.Flags&kiocb.Direct == 0 {
		return min(f.n, len(p)), f.err
	}
	if f.device != nil {
		f.device(t, rq, len(p))
	} else {
		f.queued = append(f.queued, rq)
	}
	return 0, errno.EIOCBQUEUED
}

func (f *file) ReadIter(t *sched.Task, rq kiocb.Request, p []byte) (int, error) {
	return f.iter(t, rq, p)
}

func (f *file) WriteIter(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error) {
	return f.iter(t, rq, src.Buf)
}

// iocbs makes n requests of 8 bytes.
func iocbs(f *file, n int, flags kiocb.Flags) []*IOCB {
	list := make([]*IOCB, n)
	for i := range list {
		list[i] = &IOCB{Write: i%2 == 0, File: f, Flags: flags, Buf: make([]byte, 8), Data: uint64(i)}
	}
	return list
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// text is the text of events.
func text(list []Event) string {
	s := ""
	for _, e := range list {
		s += fmt.Sprintf("%d:%d:%v ", e.IOCB.Data, e.N, e.Err)
	}
	return s
}

// A buffered request has its event when Submit returns; a direct one when the device says so, in
// the order in which they end. A part that was moved counts more than the error that stopped it,
// and the end of a file is no error.
func TestEvents(t *testing.T) {
	k := sched.NewTask("test")
	out := make([]Event, 8)
	for _, x := range []struct {
		n    int
		err  error
		want string
	}{{8, nil, "0:8:<nil> 1:8:<nil> "}, {3, errno.ENOSPC, "0:3:<nil> 1:3:<nil> "}, {8, io.EOF, "0:8:<nil> 1:8:<nil> "}, {0, io.EOF, "0:0:<nil> 1:0:<nil> "},
		{0, errno.EAGAIN, "0:0:resource temporarily unavailable 1:0:resource temporarily unavailable "}} {
		c := must(Setup(4))
		list := iocbs(&file{n: x.n, err: x.err}, 2, 0)
		if n, err := c.Submit(k, list); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if _, _, over := list[1].Ended(); !over {
			t.Error("a buffered request has not ended in Submit")
		}
		if have := text(out[:c.GetEvents(k, 2, out)]); have != x.want {
			t.Errorf("%d, %v: have %s want %s", x.n, x.err, have, x.want)
		}
		c.Destroy(k)
	}
	c := must(Setup(4))
	f := &file{n: 8}
	list := append(iocbs(f, 3, kiocb.Direct), iocbs(f, 1, 0)...)
	list[3].Data = 3
	must(c.Submit(k, list))
	if _, _, over := list[0].Ended(); over || len(f.queued) != 3 {
		t.Error("a queued request has ended in Submit")
	}
	if have := text(out[:c.GetEvents(k, 0, out)]); have != "3:8:<nil> " {
		t.Errorf("events at once: %s", have)
	}
	f.queued[2].Done.Complete(k, 8, nil)
	f.queued[0].Done.Complete(k, 0, errno.EIO)
	if have := text(out[:c.GetEvents(k, 2, out[:1])]); have != "2:8:<nil> " {
		t.Errorf("one of two events: %s", have)
	}
	f.queued[1].Done.Complete(k, 8, nil)
	if have := text(out[:c.GetEvents(k, 9, out)]); have != "0:0:input/output error 1:8:<nil> " {
		t.Errorf("the rest: %s", have)
	}
	c.Destroy(k)
}

// A context takes as many requests as it was made for until their events are taken.
func TestSlots(t *testing.T) {
	k := sched.NewTask("test")
	f := &file{n: 8}
	c := must(Setup(3))
	out := make([]Event, 2)
	if n, err := c.Submit(k, iocbs(f, 5, 0)); n != 3 || err != nil {
		t.Errorf("5 into 3: %d, %v", n, err)
	}
	for range 4 {
		if n, err := c.Submit(k, iocbs(f, 1, 0)); n != 0 || !errors.Is(err, errno.EAGAIN) {
			t.Errorf("into none: %d, %v", n, err)
		}
		if n := c.GetEvents(k, 1, out); n != 2 {
			t.Errorf("%d events, want 2", n)
		}
		if n, err := c.Submit(k, iocbs(f, 2, 0)); n != 2 || err != nil {
			t.Errorf("2 into 2: %d, %v", n, err)
		}
	}
	if _, err := Setup(0); !errors.Is(err, errno.EINVAL) {
		t.Error(err)
	}
}

// In every order of the devices and the task that waits, each request has one event and no wake-up
// is lost.
func TestInEveryOrder(t *testing.T) {
	for _, atLeast := range []int{0, 1, 2, 3} {
		r := explore.Run(explore.Config{Preemptions: 3, Schedules: 3000}, func(w *explore.World) {
			f := &file{device: func(t *sched.Task, rq kiocb.Request, n int) {
				t.Go("device", func(t *sched.Task) { rq.Done.Complete(t, n, nil) })
			}}
			w.Go("user", func(t *sched.Task) {
				c := must(Setup(3))
				must(c.Submit(t, iocbs(f, 3, kiocb.Direct)))
				out := make([]Event, 3)
				got := 0
				for n := 0; got < 3-atLeast; got += n {
					n = c.GetEvents(t, 1, out[got:])
				}
				n := c.GetEvents(t, 3-got, out[got:])
				seen := map[uint64]bool{}
				for _, e := range out[:got+n] {
					seen[e.IOCB.Data] = e.N == 8
				}
				if got+n != 3 || len(seen) != 3 {
					panic(fmt.Sprintf("%d and %d events: %s", got, n, text(out)))
				}
				must(c.Submit(t, iocbs(f, 2, kiocb.Direct)))
				c.Destroy(t)
				if c.queued != 0 {
					panic("a request is left after Destroy")
				}
			})
		})
		if r.Verdict == explore.Violated {
			t.Errorf("atLeast %d: schedule %q: %v", atLeast, r.Schedule, r.Violation)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	k := sched.NewTask("test")
	c := must(Setup(4))
	list, out := iocbs(&file{n: 8}, 4, 0), make([]Event, 4)
	if n := testing.AllocsPerRun(200, func() {
		c.Submit(k, list)
		c.GetEvents(k, 4, out)
	}); n != 0 {
		t.Errorf("%v allocations for 4 requests, want 0", n)
	}
}
