package pagecache

import (
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// search goes through the schedules of prog: all, or the first limit if that is not 0.
func search(tt *testing.T, limit int, prog func(w *explore.World)) {
	tt.Helper()
	r := explore.Run(explore.Config{MaxSteps: 2000, Schedules: limit}, prog)
	if r.Verdict == explore.Violated || limit == 0 && r.Verdict != explore.Exhausted {
		tt.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
	}
	tt.Logf("%d schedules", r.Schedules)
}

// write makes page index of m hold b.
func write(t *sched.Task, m *Mapping, index uint64, b byte) {
	p := m.Grab(t, index)
	p.WaitWriteback(t)
	d := p.Edit(t)
	for i := range 8 {
		d[i] = b
	}
	p.SetUptodate()
	m.SetDirty(t, p)
	p.UnlockPut(t)
}

// writeBack brings page index of m to a device, which reads the page at the start of its transfer
// and at the end. Nothing but writeback keeps the page in place meanwhile.
func writeBack(t *sched.Task, m *Mapping, index uint64) error {
	p := m.Lock(t, index)
	if p == nil {
		return nil
	}
	p.WaitWriteback(t)
	if !p.Dirty() {
		p.UnlockPut(t)
		return nil
	}
	m.StartWriteback(t, p)
	m.ClearDirty(t, p)
	p.UnlockPut(t)
	first := p.View(t)[0]
	m.look(t) // others may run
	var err error
	if last := p.View(t)[0]; first != last {
		err = fmt.Errorf("page %d went from %#x to %#x under writeback", index, first, last)
	}
	t.Discharge(p)
	m.EndWriteback(t, p)
	return err
}

// Two tasks meet at one page in every order: one writes, writes back, truncates or evicts, and so
// does the other. Nobody changes a page that the device reads, a page that is written is in its
// file, and at the end tags, flags and counts fit.
func TestPageSchedules(tt *testing.T) {
	type op = func(t *sched.Task, c *Cache, m *Mapping) error
	ops := []struct {
		name string
		do   op
	}{
		{"write", func(t *sched.Task, c *Cache, m *Mapping) error { write(t, m, 0, 2); return nil }},
		{"writeback", func(t *sched.Task, c *Cache, m *Mapping) error { return writeBack(t, m, 0) }},
		{"truncate", func(t *sched.Task, c *Cache, m *Mapping) error { m.Truncate(t, 0, MaxFileEnd); return nil }},
		{"drop", func(t *sched.Task, c *Cache, m *Mapping) error { c.DropClean(t); return nil }},
	}
	for i, a := range ops {
		for _, b := range ops[i:] {
			tt.Run(a.name+"-"+b.name, func(tt *testing.T) {
				search(tt, 0, func(w *explore.World) {
					c, m := newMapping(0, &recorder{})
					write(w.Task(), m, 0, 1)
					var errs [2]error
					w.Go("a", func(t *sched.Task) { w.Call(t); errs[0] = a.do(t, c, m) })
					w.Go("b", func(t *sched.Task) { w.Call(t); errs[1] = b.do(t, c, m) })
					w.Finally(func(t *sched.Task) error {
						for _, err := range errs {
							if err != nil {
								return err
							}
						}
						n := int64(0)
						if p := m.Get(t, 0); p != nil && p.Dirty() {
							n = 1
							p.Put(t)
						} else if p != nil {
							p.Put(t)
						}
						if d := m.DirtyPages(t); d != n || c.BDI.Dirty.Load() != n || m.WritebackPages(t) != 0 || c.BDI.Writeback.Load() != 0 {
							return fmt.Errorf("%d dirty pages by the mapping, %d by the bdi, %d by the page", d, c.BDI.Dirty.Load(), n)
						}
						m.Truncate(t, 0, MaxFileEnd)
						m.CheckEmpty()
						if c.Bytes() != 0 {
							return fmt.Errorf("%d bytes in an empty cache", c.Bytes())
						}
						return nil
					})
				})
			})
		}
	}
}

// A mapping that has been truncated is empty at once, for the inode goes next, even while an
// eviction takes its last page out.
func TestEmptySchedules(tt *testing.T) {
	search(tt, 0, func(w *explore.World) {
		c, m := newMapping(0, &recorder{})
		write(w.Task(), m, 0, 1)
		_ = writeBack(w.Task(), m, 0)
		w.Go("inode goes", func(t *sched.Task) {
			w.Call(t)
			m.Truncate(t, 0, MaxFileEnd)
			m.CheckEmpty()
		})
		w.Go("drop", func(t *sched.Task) { w.Call(t); c.DropClean(t) })
	})
}

// A page that a task refers to stays. That it does is shared by the tasks, so every search tries
// the drops before and after the step in which a reader lets the page go. Searches that count on
// the order of dependent steps did not know of the reference, and called the scenario
// reader-writeback exhausted with two of seven schedules.
func TestReferenceSchedules(tt *testing.T) {
	var all map[[2]int]bool
	for _, method := range []explore.Method{explore.Naive, explore.Bound, explore.DPOR, explore.State} {
		dropped, seen := [2]int{}, map[[2]int]bool{}
		r := explore.Run(explore.Config{Method: method, Plain: true, Done: func(int, *explore.End) { seen[dropped] = true }}, func(w *explore.World) {
			c, m := newMapping(0, &recorder{})
			write(w.Task(), m, 0, 1)
			_ = writeBack(w.Task(), m, 0)
			var own explore.Atomic[int]
			p := m.Get(w.Task(), 0)
			w.Go("reader", func(t *sched.Task) {
				own.Store(t, 1)
				p.Put(t)
			})
			w.Go("drop", func(t *sched.Task) { w.Call(t); dropped = [2]int{c.DropClean(t), c.DropClean(t)} })
		})
		if r.Verdict != explore.Exhausted {
			tt.Errorf("%s: %s: %s", method, r.Bound, r.Violation)
		}
		if method == explore.Naive {
			all = seen
		}
		if !maps.Equal(seen, all) || len(all) != 3 {
			tt.Errorf("%s: two drops free %v pages, in every order %v", method, seen, all)
		}
	}
}

// A page that is evicted after its writeback comes back in another file: the device has read the
// old ones before, and the explorer knows it. Two random schedules of package writeback in 2,500
// found an eviction that looked at the flag and did not say so.
func TestReuseSchedules(tt *testing.T) {
	search(tt, 0, func(w *explore.World) {
		c, m := newMapping(0, &recorder{})
		other := new(Mapping)
		other.Init(c, &recorder{})
		write(w.Task(), m, 0, 1)
		w.Go("writeback", func(t *sched.Task) { w.Call(t); _ = writeBack(t, m, 0) })
		w.Go("reuse", func(t *sched.Task) {
			w.Call(t)
			if c.DropClean(t) == 1 {
				p := other.Grab(t, 0)
				p.Edit(t)[0] = 2 // as a read fills a new page, which has no writeback to wait for
				p.SetUptodate()
				p.UnlockPut(t)
			}
		})
	})
}

// TestErrorSchedules: an error of writeback meets two fsyncs of one open file. One of them tells
// it, or the next one does, and never both; a sync of the file system afterwards does not tell it
// again.
func TestErrorSchedules(tt *testing.T) {
	search(tt, 0, func(w *explore.World) {
		c, m := newMapping(0, nil)
		var since atomic.Uint64
		var told [2]error
		w.Go("writeback", func(t *sched.Task) { w.Call(t); m.SetError(t, errors.New("broken")) })
		for i := range told {
			w.Go("fsync", func(t *sched.Task) { w.Call(t); told[i] = m.CheckError(t, &since) })
		}
		w.Finally(func(t *sched.Task) error {
			n := 0
			for _, err := range append(told[:], m.CheckError(t, &since)) {
				if err != nil {
					n++
				}
			}
			if err := c.TakeError(t); n != 1 || err != nil {
				return fmt.Errorf("told %d times by fsync, and %v by sync, want once and nil", n, err)
			}
			return nil
		})
	})
}

// A wait for a range of pages ends when all that were under writeback when it began are not any
// more.
func TestWaitRangeSchedules(tt *testing.T) {
	search(tt, 2000, func(w *explore.World) {
		_, m := newMapping(0, nil)
		indexes := []uint64{0, 200}
		var pages []*Page
		for _, i := range indexes {
			write(w.Task(), m, i, 1)
			pages = append(pages, m.Get(w.Task(), i))
		}
		var bad error
		w.Go("writeback", func(t *sched.Task) {
			w.Call(t)
			for _, p := range pages {
				p.Lock(t)
				m.StartWriteback(t, p)
				m.ClearDirty(t, p)
				p.Unlock(t)
			}
			for _, p := range pages {
				t.Discharge(p)
				m.EndWriteback(t, p)
			}
		})
		w.Go("wait", func(t *sched.Task) {
			w.Call(t)
			var was []uint64
			for _, i := range indexes {
				if _, ok := m.NextWriteback(t, i, i+1); ok {
					was = append(was, i)
				}
			}
			m.WaitWriteback(t, 0, 201)
			for _, i := range was {
				if _, ok := m.NextWriteback(t, i, i+1); ok {
					bad = fmt.Errorf("the wait is over and page %d is under writeback", i)
				}
			}
		})
		w.Check(func() error { return bad })
	})
}

// A writer over the hard limit goes on when enough pages are clean again, whether they were written
// or truncated away.
func TestThrottledWakes(tt *testing.T) {
	const hard = 16 // pages
	for _, c := range []struct {
		name string
		do   func(t *sched.Task, m *Mapping)
	}{
		{"truncate", func(t *sched.Task, m *Mapping) { m.Truncate(t, 0, 8*PageSize) }},
		{"written", func(t *sched.Task, m *Mapping) {
			for i := range uint64(4) {
				_ = writeBack(t, m, i)
			}
		}},
	} {
		tt.Run(c.name, func(tt *testing.T) {
			search(tt, 0, func(w *explore.World) {
				cache := NewCache(0, 4*PageSize, hard*PageSize)
				m := new(Mapping)
				m.Init(cache, nil)
				for i := range uint64(hard + 2) {
					write(w.Task(), m, i, 1)
				}
				w.Go("writer", func(t *sched.Task) {
					w.Call(t)
					t.Dirty.Pages = defaultPollPages
					cache.BDI.BalanceDirty(t)
				})
				w.Go(c.name, func(t *sched.Task) { w.Call(t); c.do(t, m) })
				w.Check(func() error {
					if cache.BDI.Waiting() {
						return fmt.Errorf("a writer waits with %d dirty pages", cache.BDI.Dirty.Load())
					}
					return nil
				})
			})
		})
	}
	// Pages under writeback count as dirty ones do.
	t := sched.NewTask("test")
	cache := NewCache(0, 4*PageSize, hard*PageSize)
	m := new(Mapping)
	m.Init(cache, nil)
	for i := range uint64(hard) {
		write(t, m, i, 1)
		p := m.Lock(t, i)
		m.StartWriteback(t, p)
		m.ClearDirty(t, p)
		p.UnlockPut(t)
	}
	t.Dirty.Pages = defaultPollPages
	if err := cache.BDI.TryBalanceDirty(t); err == nil {
		tt.Error("with as many pages under writeback as the hard limit, a writer may go on")
	}
}
