package ordered

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

func newTree() (*Pool, *Tree) {
	p, tr := new(Pool), new(Tree)
	p.Init()
	tr.Init(p)
	return p, tr
}

// A file written from its start to its end has its extents in ascending order. The tree is a treap:
// with priorities that are all alike it would be a list, and each write would walk over all extents
// before it.
func TestDepth(tt *testing.T) {
	t := sched.NewTask("test")
	_, tr := newTree()
	const n, bs = 4096, 4096
	for i := range uint64(n) {
		e := tr.Add(t, nil, Regular, i*bs, bs, 1<<30)
		t.Discharge(e)
	}
	var depth func(e *Extent) int
	depth = func(e *Extent) int {
		if e == nil {
			return 0
		}
		return 1 + max(depth(e.left_), depth(e.right_))
	}
	if d := depth(tr.root); d < 12 || d > 60 {
		tt.Errorf("%d extents lie up to %d deep, want about 30", n, d)
	}
}

// Random adds and removes against a model that knows each block.
func TestModel(tt *testing.T) {
	t := sched.NewTask("test")
	const blocks, bs = 300, 4096
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		pool, tr := newTree()
		var model [blocks]*Extent
		for range 2000 {
			a := rng.IntN(blocks)
			if e := model[a]; e != nil {
				tr.Remove(t, e)
				for i := range model {
					if model[i] == e {
						model[i] = nil
					}
				}
				e.Put(t)
			} else {
				b := a
				for b < blocks && model[b] == nil && b < a+5 {
					b++
				}
				e := tr.Add(t, nil, Regular, uint64(a)*bs, uint64(b-a)*bs, 1<<30)
				for i := a; i < b; i++ {
					model[i] = e
				}
			}
			s := rng.IntN(blocks)
			n := 1 + rng.IntN(blocks-s)
			var want *Extent
			for _, e := range model[s : s+n] {
				if e != nil {
					want = e
					break
				}
			}
			got := tr.First(t, uint64(s)*bs, uint64(s+n)*bs)
			if got != want {
				tt.Fatalf("seed %d: first of [%d, %d) is %v, want %v", seed, s, s+n, got, want)
			}
			if got != nil {
				got.Put(t)
			}
		}
		for i := range model {
			if e := model[i]; e != nil {
				tr.Remove(t, e)
				for j := range model {
					if model[j] == e {
						model[j] = nil
					}
				}
				e.Put(t)
			}
		}
		tr.CheckEmpty(t)
		if n, b := pool.InFlight(); n != 0 || b != 0 || pool.oldest != nil || pool.newest != nil {
			tt.Fatalf("seed %d: in flight %d extents, %d bytes", seed, n, b)
		}
	}
}

// An extent over another one is refused, wherever in the tree the two have their places.
func TestOverlap(tt *testing.T) {
	t := sched.NewTask("test")
	const bs = 4096
	for seed := range uint32(100) {
		for _, over := range [][2]uint64{{9, 11}, {10, 11}, {11, 12}, {11, 13}, {15, 25}, {0, 60}} {
			_, tr := newTree()
			tr.rng += seed
			for _, at := range []uint64{10, 30, 20, 0, 50} {
				tr.Add(t, nil, Nocow, at*bs, 2*bs, 1<<30)
			}
			func() {
				defer func() {
					if recover() == nil {
						tt.Errorf("seed %d: blocks %d are added over others", seed, over)
					}
				}()
				tr.Add(t, nil, Nocow, over[0]*bs, (over[1]-over[0])*bs, 1<<30)
			}()
		}
	}
}

// The last bio's end is told apart, whatever the order, and the first error stays.
func TestDone(tt *testing.T) {
	t := sched.NewTask("test")
	_, tr := newTree()
	e := tr.Add(t, nil, Regular, 0, 12288, 1<<30)
	bad := errors.New("bad")
	if e.Done(t, 4096, nil) || e.Done(t, 4096, bad) || !e.Done(t, 4096, errors.New("worse")) {
		tt.Fatal("last bio not told apart")
	}
	if e.Err() != bad {
		tt.Fatalf("error %v", e.Err())
	}
	tr.Remove(t, e)
	if !e.Finished() {
		tt.Fatal("removed and not finished")
	}
	e.Put(t)
}

// Waiters wake when the extent is removed; WaitRange waits for all that overlap, WaitAll for all
// that are there.
func TestWait(tt *testing.T) {
	t := sched.NewTask("test")
	pool, tr := newTree()
	var es []*Extent
	var done [10]atomic.Bool
	for i := range uint64(10) {
		es = append(es, tr.Add(t, nil, Nocow, i<<20, 4096, 1<<30))
	}
	started := make(chan struct{}, 2)
	check := func(what string, from, to int) {
		for i := from; i < to; i++ {
			if !done[i].Load() {
				panic(fmt.Sprintf("%s returned before extent %d was finished", what, i))
			}
		}
	}
	a := t.Go("range", func(t *sched.Task) {
		e := tr.First(t, 3<<20, 6<<20)
		started <- struct{}{}
		e.Wait(t)
		e.Put(t)
		check("Wait", 3, 4)
		if err := tr.WaitRange(t, 3<<20, 6<<20); err != nil {
			panic(err)
		}
		check("WaitRange", 3, 6)
	})
	b := t.Go("all", func(t *sched.Task) {
		started <- struct{}{}
		pool.WaitAll(t)
		check("WaitAll", 0, 10)
	})
	<-started
	<-started
	for i, e := range es {
		done[i].Store(true)
		tr.Remove(t, e)
		e.Put(t)
	}
	t.Join(a)
	t.Join(b)
	tr.CheckEmpty(t)
	e := tr.Add(t, nil, Nocow, 0, 4096, 1<<30)
	e.Fail(errors.New("bad"))
	c := t.Go("range", func(t *sched.Task) {
		f := tr.First(t, 0, 1)
		started <- struct{}{}
		f.Wait(t)
		if f.Err() == nil {
			panic("no error")
		}
		f.Put(t)
	})
	<-started
	tr.Remove(t, e)
	e.Put(t)
	t.Join(c)
}

// explored goes through all schedules of prog.
func explored(tt *testing.T, prog func(w *explore.World)) {
	tt.Helper()
	r := explore.Run(explore.Config{MaxSteps: 2000}, prog)
	if r.Verdict != explore.Exhausted {
		tt.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
	}
	tt.Logf("%d schedules", r.Schedules)
}

// In whatever order extents finish, and whatever is made meanwhile, a wait ends when all are
// finished that were there when it began: WaitRange those of its range, WaitAll all.
func TestWaitSchedules(tt *testing.T) {
	for _, c := range []struct {
		name  string
		first int // what the wait is for: extents [first, 3)
		wait  func(t *sched.Task, p *Pool, tr *Tree) error
	}{
		{"range", 1, func(t *sched.Task, p *Pool, tr *Tree) error { return tr.WaitRange(t, 4096, 3*4096) }},
		{"all", 0, func(t *sched.Task, p *Pool, tr *Tree) error { p.WaitAll(t); return nil }},
	} {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}} {
			tt.Run(fmt.Sprint(c.name, order), func(tt *testing.T) {
				explored(tt, func(w *explore.World) {
					pool, tr := newTree()
					var es []*Extent
					for i := range uint64(3) {
						es = append(es, tr.Add(w.Task(), nil, Nocow, i*4096, 4096, 1<<30))
					}
					var items [3]bool // in the trees: completion calls Remove next
					var bad error
					w.Go("wait", func(t *sched.Task) {
						w.Call(t)
						if err := c.wait(t, pool, tr); err != nil {
							bad = err
						}
						for i := c.first; i < len(items); i++ {
							if !items[i] {
								bad = fmt.Errorf("the wait is over and the items of extent %d are not in the trees", i)
							}
						}
					})
					w.Go("finish", func(t *sched.Task) {
						w.Call(t)
						late := tr.Add(t, nil, Nocow, 1<<20, 4096, 1<<30)
						for _, i := range order {
							items[i] = true
							tr.Remove(t, es[i])
						}
						tr.Remove(t, late)
						late.Put(t)
					})
					w.Finally(func(t *sched.Task) error {
						for _, e := range es {
							e.Put(t)
						}
						tr.CheckEmpty(t)
						return bad
					})
				})
			})
		}
	}
}

// The storage of an extent goes to another write with its last reference, which its count orders
// after all that the others did with it: no schedule has a data race between a log that reads the
// checksums of the extent and the write that sets its own in the same storage.
func TestReuseSchedules(tt *testing.T) {
	reused := false
	explored(tt, func(w *explore.World) {
		_, tr := newTree()
		e := tr.Add(w.Task(), nil, Regular, 0, 4096, 1<<30)
		e.SetSums(w.Task(), []byte{1})
		w.Go("log", func(t *sched.Task) {
			if e := tr.First(t, 0, 4096); e != nil {
				e.Checksums(t)
				e.Put(t)
			}
		})
		w.Go("finish", func(t *sched.Task) {
			tr.Remove(t, e)
			e.Put(t)
			n := tr.Add(t, nil, Regular, 1<<20, 4096, 1<<31)
			reused = reused || n == e
			n.SetSums(t, []byte{2})
			tr.Remove(t, n)
			n.Put(t)
		})
	})
	if !reused {
		tt.Error("no write got the storage of the first")
	}
}

// BenchmarkAddRemove measures a direct overwrite's use of the tree, with others in flight at random
// places: nothing is ordered there, now it is, and the oldest is finished.
func BenchmarkAddRemove(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	t := sched.NewTask("bench")
	for _, n := range []int{32, 1024} {
		b.Run(fmt.Sprintf("flying=%d", n), func(b *testing.B) {
			_, tr := newTree()
			r := rand.New(rand.NewPCG(1, 1))
			ring := make([]*Extent, n)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				off := r.Uint64N(1<<20) << 12
				if e := tr.First(t, off, off+4096); e != nil {
					e.Put(t)
					continue
				}
				if e := ring[i]; e != nil {
					tr.Remove(t, e)
					e.Put(t)
				}
				ring[i] = tr.Add(t, nil, Nocow, off, 4096, 1<<30)
				i = (i + 1) % n
			}
		})
	}
}
