package uring

import (
	"fmt"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// judge collects the completions of a program and says what is wrong with them.
type judge struct {
	got map[uint64]CQE
	seq []uint64
}

func (j *judge) take(list []CQE) {
	for _, e := range list {
		if _, twice := j.got[e.UserData]; twice {
			panic(fmt.Sprintf("request %d has two completions", e.UserData))
		}
		j.got[e.UserData] = e
		j.seq = append(j.seq, e.UserData)
	}
}

func (j *judge) want(user uint64, res int) {
	if e, ok := j.got[user]; !ok || e.Res != res {
		panic(fmt.Sprintf("request %d has %v (%v), want %d", user, e, ok, res))
	}
}

// reap takes n completions, in as many calls as it needs.
func (j *judge) reap(t *sched.Task, r *Ring, n int) {
	buf := make([]CQE, n)
	for len(j.seq) < n {
		r.Wait(t, n-len(j.seq))
		j.take(buf[:r.Reap(t, buf)])
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestInEveryOrder: whatever the order of a submitter, its workers, a device and other writers,
// each request has one completion with the count that it asked for, no task waits for ever, no data
// races, and the bytes are those of whole writes.
func TestInEveryOrder(t *testing.T) {
	write := func(f *fakeFile, user uint64, at int, c byte) SQE {
		return SQE{Op: Write, File: f, Pos: uint64(at), Buf: []byte{c, c, c, c}, UserData: user}
	}
	async := func(e SQE) SQE { e.Async = true; return e }
	for _, c := range []struct {
		name string
		prog func(w *explore.World)
	}{
		{"inline and punted writes of one file beside a writer", func(w *explore.World) {
			f := newFile()
			w.Go("ring", func(t *sched.Task) {
				r := must(New(t, Config{Entries: 4}))
				j := judge{got: map[uint64]CQE{}}
				put(r, write(f, 1, 0, 'a'))
				put(r, async(write(f, 2, 0, 'b')))
				put(r, write(f, 3, 4, 'c'))
				must(r.Submit(t))
				j.reap(t, r, 3)
				for user := range uint64(3) {
					j.want(user+1, 4)
				}
				r.Close(t)
			})
			w.Go("other", func(t *sched.Task) {
				must(f.WriteIter(t, kiocb.Request{}, iopath.Source{Buf: []byte("dddd")}))
			})
			w.Check(func() error {
				for _, b := range []string{"aaaa", "bbbb", "dddd"} {
					if string(f.data[:8]) == b+"cccc" {
						return nil
					}
				}
				return fmt.Errorf("the file has %q", f.data[:8])
			})
		}},
		{"punted writes of one inode end in their order", func(w *explore.World) {
			f := newFile()
			w.Go("ring", func(t *sched.Task) {
				r := must(New(t, Config{Entries: 4, Workers: 2}))
				j := judge{got: map[uint64]CQE{}}
				for i := range uint64(3) {
					put(r, async(write(f, i, 0, 'a'+byte(i))))
				}
				must(r.Submit(t))
				j.reap(t, r, 3)
				if fmt.Sprint(j.seq) != "[0 1 2]" || string(f.data[:4]) != "cccc" {
					panic(fmt.Sprintf("order %v, the file has %q", j.seq, f.data[:4]))
				}
				r.Close(t)
			})
		}},
		{"two workers, and short writes", func(w *explore.World) {
			a, b := newFile(), newFile()
			a.part, b.ino = 3, 258
			w.Go("ring", func(t *sched.Task) {
				r := must(New(t, Config{Entries: 4, Workers: 2}))
				j := judge{got: map[uint64]CQE{}}
				put(r, write(a, 1, 0, 'a'))
				put(r, async(write(b, 2, 0, 'b')))
				must(r.Submit(t))
				j.reap(t, r, 2)
				j.want(1, 4)
				j.want(2, 4)
				r.Close(t)
			})
		}},
		{"a full completion queue and another task that takes them", func(w *explore.World) {
			f := newFile()
			r := must(New(w.Task(), Config{Entries: 2, CQEntries: 2}))
			j := judge{got: map[uint64]CQE{}}
			reap := func(t *sched.Task) {
				buf := make([]CQE, 1)
				for len(j.seq) < 4 {
					r.Wait(t, 1)
					n := r.Reap(t, buf)
					if j.take(buf[:n]); n == 0 {
						t.Enter(sched.PointYield, 0, nil) // the other task has them
					}
				}
			}
			w.Go("ring", func(t *sched.Task) {
				for i := range uint64(4) {
					put(r, async(write(f, i, 0, 'a')))
					if i%2 == 1 {
						must(r.Submit(t))
					}
				}
				other := t.Go("other", reap)
				reap(t)
				t.Join(other)
				r.Close(t)
			})
		}},
		{"cancel", func(w *explore.World) {
			f := newFile()
			w.Go("ring", func(t *sched.Task) {
				r := must(New(t, Config{Entries: 8}))
				j := judge{got: map[uint64]CQE{}}
				put(r, async(write(f, 1, 0, 'a')))
				put(r, async(write(f, 2, 4, 'b')))
				put(r, SQE{Op: Cancel, Target: 1, UserData: 11})
				put(r, SQE{Op: Cancel, Target: 2, UserData: 12})
				must(r.Submit(t))
				j.reap(t, r, 4)
				for i := range uint64(2) {
					e, answer := j.got[1+i], j.got[11+i]
					gone := e.Err == errno.ECANCELED && f.data[4*i] == 0
					whole := e.Res == 4 && f.data[4*i] == 'a'+byte(i)
					if !gone && !whole || gone != (answer.Res == 0) {
						panic(fmt.Sprintf("request %d: %v, its cancel %v, the file has %q", 1+i, e, answer, f.data[:8]))
					}
				}
				r.Close(t)
			})
		}},
		{"close", func(w *explore.World) {
			f := newFile()
			w.Go("ring", func(t *sched.Task) {
				r := must(New(t, Config{Entries: 4}))
				j := judge{got: map[uint64]CQE{}}
				for i := range uint64(3) {
					put(r, async(write(f, i, 4*int(i), 'a')))
				}
				must(r.Submit(t))
				r.Close(t)
				buf := make([]CQE, 4)
				j.take(buf[:r.Reap(t, buf)])
				for i := range uint64(3) {
					if e, ok := j.got[i]; !ok || (e.Err == errno.ECANCELED) != (f.data[4*i] == 0) {
						panic(fmt.Sprintf("request %d: %v (%v), the file has %q", i, e, ok, f.data[:12]))
					}
				}
			})
		}},
		{"two tasks wait, one of them for fewer", func(w *explore.World) {
			f := newFile()
			var ends []kiocb.Completion
			f.device = func(t *sched.Task, rq kiocb.Request, p []byte) { ends = append(ends, rq.Done) }
			w.Go("ring", func(t *sched.Task) {
				r := must(New(t, Config{Entries: 4}))
				j := judge{got: map[uint64]CQE{}}
				for i := range uint64(3) {
					e := write(f, i, 0, 'a')
					e.Flags = kiocb.Direct
					put(r, e)
				}
				must(r.Submit(t))
				waits := func(n int) *sched.Task {
					return t.Go(fmt.Sprint("waits for ", n), func(t *sched.Task) { r.Wait(t, n) })
				}
				three, one, two := waits(3), waits(1), waits(2)
				ends[0].Complete(t, 4, nil)
				t.Join(one)
				ends[1].Complete(t, 4, nil)
				t.Join(two) // which was woken for the first completion, and waits again
				ends[2].Complete(t, 4, nil)
				t.Join(three)
				j.reap(t, r, 3)
				r.Close(t)
			})
		}},
		{"queued by a device", func(w *explore.World) {
			f := newFile()
			f.device = func(t *sched.Task, rq kiocb.Request, p []byte) {
				t.Go("device", func(t *sched.Task) { rq.Done.Complete(t, len(p), nil) })
			}
			w.Go("ring", func(t *sched.Task) {
				r := must(New(t, Config{Entries: 4}))
				j := judge{got: map[uint64]CQE{}}
				for i := range uint64(2) {
					e := write(f, i, 0, 'a')
					e.Flags, e.Async = kiocb.Direct, i == 1
					put(r, e)
				}
				must(r.Submit(t))
				j.reap(t, r, 2)
				j.want(0, 4)
				j.want(1, 4)
				r.Close(t)
			})
		}},
		{"one completion at a time while others are in flight", func(w *explore.World) {
			f := newFile()
			var fly []kiocb.Completion
			f.device = func(_ *sched.Task, rq kiocb.Request, _ []byte) { fly = append(fly, rq.Done) }
			w.Go("ring", func(t *sched.Task) {
				r := must(New(t, Config{Entries: 4}))
				j := judge{got: map[uint64]CQE{}}
				for i := range uint64(3) {
					e := write(f, i, 0, 'a')
					e.Flags = kiocb.Direct
					put(r, e)
				}
				must(r.Submit(t))
				for i := range 3 {
					t.Go("device", func(t *sched.Task) { fly[i].Complete(t, 4, nil) })
					j.reap(t, r, 1+i)
				}
				r.Close(t)
			})
		}},
		{"what Submit ends wakes a task that waits while another request is in flight", func(w *explore.World) {
			f := newFile()
			var fly kiocb.Completion
			f.device = func(_ *sched.Task, rq kiocb.Request, _ []byte) { fly = rq.Done }
			w.Go("ring", func(t *sched.Task) {
				r := must(New(t, Config{Entries: 4}))
				j := judge{got: map[uint64]CQE{}}
				e := write(f, 0, 0, 'a')
				e.Flags = kiocb.Direct
				put(r, e)
				must(r.Submit(t))
				other := t.Go("other", func(t *sched.Task) { j.reap(t, r, 1) })
				put(r, SQE{Op: Nop, UserData: 1})
				must(r.Submit(t))
				t.Join(other)
				j.want(1, 0)
				fly.Complete(t, 4, nil)
				r.Close(t)
			})
		}},
	} {
		r := explore.Run(explore.Config{Preemptions: 2, Schedules: 3000}, c.prog)
		if r.Verdict == explore.Violated {
			t.Errorf("%s: schedule %q: %v", c.name, r.Schedule, r.Violation)
		}
		t.Logf("%s: %v after %d schedules", c.name, r.Verdict, r.Schedules)
	}
}
