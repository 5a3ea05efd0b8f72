package ctree

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// TestSchedules runs writers and a walk one step at a time, switching at random at every lock,
// try-lock and read: more switches in worse places than goroutines ever see. A failure prints the
// seed; the same seed runs the same steps.
func TestSchedules(t *testing.T) {
	runs := 400
	if testing.Short() {
		runs = 40
	}
	first := rand.Uint64N(1 << 32)
	t.Logf("seeds from %d", first)
	for seed := first; seed < first+uint64(runs); seed++ {
		if schedule(t, seed); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func schedule(t *testing.T, seed uint64) {
	const writers = 3
	span, size, ops := uint64(600), 600, 60
	if seed%3 == 0 {
		// Few large items: every operation moves items between leaves.
		span, size, ops = 80, 1500, 30
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	cache := 2000
	if seed%2 == 0 {
		cache = 64 // blocks are evicted and read again while others change them
	}
	b := newBed(t, 4096, cache)
	b.ptrs = 12
	b.limitPtrs()
	all := model{}
	models := [writers]model{}
	for w := range models {
		models[w] = model{}
	}
	for i := range span {
		switch {
		case i%16 == 0:
			must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 50)))
			all[k(i)] = string(fill(i, 50))
		case rng.IntN(3) > 0:
			d := fill(i, rng.IntN(size))
			must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), d))
			models[i%writers][k(i)] = string(d)
		}
	}
	b.commit(nil)
	b.reopen(cache)
	r := explore.Once(explore.OnceConfig{Strategy: explore.RandomWalk(seed)},
		func(task *sched.Task) {
			for w := range uint64(writers) {
				task.Go(fmt.Sprint("writer", w), func(task *sched.Task) {
					rng := rand.New(rand.NewPCG(seed, w+1))
					for range ops {
						if err := concurrentOp(task, b, rng, models[w], w, writers, span, size); err != nil {
							t.Error(err)
						}
						lockdep.AssertNone(task)
					}
				})
			}
			for _, back := range []bool{false, true} {
				task.Go(fmt.Sprint("scan", back), func(task *sched.Task) {
					for range 3 {
						if err := scan(task, b, span, back); err != nil {
							t.Error(err)
						}
					}
					lockdep.AssertNone(task)
				})
			}
		})
	if seed%50 == 0 {
		t.Logf("seed %d: %d steps", seed, len(r.Steps))
	}
	if r.Verdict != explore.OK {
		t.Errorf("%v: %s", r.Verdict, r.Violation)
		return
	}
	for _, m := range models {
		for key, v := range m {
			all[key] = v
		}
	}
	b.compare(all)
	b.noRefs()
}

// TestWalkPreempted stops a walk at each of its steps, deletes an item there and inserts others so
// that leaves push items to their neighbours, and lets the walk go on: it must come by every item
// that was there all the time.
//
// The cases that btrfs_next_old_leaf() knows: the last item of the leaf the walk stands in is
// deleted, and a greater one is pushed into its place; or items are added after it.
func TestWalkPreempted(t *testing.T) {
	const items = 13
	plans := []struct {
		back  bool
		after []uint64 // keys after the victim's
		size  int
		two   bool // the item before the victim goes as well
	}{
		{false, []uint64{1, 13, 14, 25}, 400, false},
		{true, []uint64{1, 13, 14, 25}, 400, false},
		{false, []uint64{11}, 900, false}, // the next leaf's first item takes the victim's place
		{true, []uint64{11}, 900, false},
		{false, []uint64{31}, 900, true}, // its first two do
		{true, []uint64{31}, 900, true},
	}
	for _, plan := range plans {
		back := plan.back
		for victim := range uint64(items) {
			first := victim
			if plan.two && victim > 0 {
				first--
			}
			for step := 0; ; step++ {
				b := newBed(t, 4096, 100)
				for i := range uint64(items) {
					must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i*10), fill(i, 900)))
				}
				cut := &switchOnce{after: step, to: 2}
				var seen []format.Key
				r := explore.Once(explore.OnceConfig{Strategy: cut}, func(task *sched.Task) {
					task.Go("walk", func(task *sched.Task) {
						var p Path
						move, more, err := b.f.NextItem, false, error(nil)
						if back {
							move = b.f.PrevItem
							more, err = b.f.SearchBackward(task, b.root, format.MaxKey, &p)
						} else {
							more, err = b.f.SearchForward(task, b.root, format.Key{}, &p)
						}
						for more && err == nil {
							seen = append(seen, p.Key())
							more, err = move(task, b.root, &p)
						}
						p.Release(task)
						if err != nil {
							t.Error(err)
						}
					})
					task.Go("writer", func(task *sched.Task) {
						for i := first; i <= victim; i++ {
							var p Path
							if found, err := b.f.SearchSlot(task, b.tr, b.root, k(i*10), &p, -1, true); !found || err != nil {
								t.Error(found, err)
							}
							if err := b.f.DelItems(task, b.tr, b.root, &p, p.Slot(), 1); err != nil {
								t.Error(err)
							}
							p.Release(task)
						}
						for _, i := range plan.after {
							if err := b.f.InsertItem(task, b.tr, b.root, k(victim*10+i), fill(i, plan.size)); err != nil {
								t.Error(err)
							}
						}
					})
				})
				if r.Verdict != explore.OK {
					t.Fatalf("victim %d, schedule %q: %v: %s", victim, r.Schedule, r.Verdict, r.Violation)
				}
				missing := map[format.Key]bool{}
				for i := range uint64(items) {
					missing[k(i*10)] = i < first || i > victim
				}
				for i, key := range seen {
					if i > 0 && (!back && !seen[i-1].Less(key) || back && !key.Less(seen[i-1])) {
						t.Fatalf("victim %d, schedule %q, back %v: %v after %v", victim, r.Schedule, back, key, seen[i-1])
					}
					delete(missing, key)
				}
				for key, m := range missing {
					if m {
						t.Fatalf("victim %d, schedule %q, back %v: the walk missed %v: %v", victim, r.Schedule, back, key, seen)
					}
				}
				b.walk()
				b.noRefs()
				if !cut.done {
					if step < items {
						t.Fatalf("the walk has %d steps, want one for each item at least", step)
					}
					break
				}
			}
		}
	}
}

// TestSearchForwardPreempted: a search for a key that is larger than the last one of its leaf is
// stopped at each of its steps, and items come in before the key. What it finds is not before the
// key.
func TestSearchForwardPreempted(t *testing.T) {
	for _, items := range []uint64{4, 9} { // one leaf, and three
		for key := uint64(5); key < items*10; key += 10 {
			for step := 0; ; step++ {
				b := newBed(t, 4096, 100)
				for i := range items {
					must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i*10), fill(i, 900)))
				}
				cut := &switchOnce{after: step, to: 2}
				r := explore.Once(explore.OnceConfig{Strategy: cut}, func(task *sched.Task) {
					task.Go("search", func(task *sched.Task) {
						var p Path
						more, err := b.f.SearchForward(task, b.root, k(key), &p)
						want := key + 5
						switch {
						case err != nil:
							t.Error(err)
						case more && p.Key() != k(want), more != (want < items*10):
							t.Errorf("search for %d at step %d: have %v, %v want %d, if there is one of %d", key, step, p.Key(), more, want, items*10)
						}
						p.Release(task)
					})
					task.Go("writer", func(task *sched.Task) {
						for _, i := range []uint64{1, 2} {
							if err := b.f.InsertItem(task, b.tr, b.root, k(key-i), fill(i, 100)); err != nil {
								t.Error(err)
							}
						}
					})
				})
				if r.Verdict != explore.OK {
					t.Fatalf("key %d, schedule %q: %v: %s", key, r.Schedule, r.Verdict, r.Violation)
				}
				if !cut.done {
					break
				}
			}
		}
	}
}

// switchOnce lets task to run instead of another one, once: after so many steps at which it could
// have run.
type switchOnce struct {
	after, to int
	done      bool
}

func (s *switchOnce) Pick(d explore.Decision) int {
	if s.done || d.Default == s.to || !slices.Contains(d.Enabled, s.to) {
		return d.Default
	}
	if s.after--; s.after >= 0 {
		return d.Default
	}
	s.done = true
	return s.to
}

// A leaf is let go to make room for a duplicate, and another task changes the item meanwhile, at
// any step: the caller learns it (EAGAIN), or gets the copy of what it has read.
func TestDuplicateOfChangedItem(t *testing.T) {
	again := 0
	for step := 0; ; step++ {
		b := newBed(t, 4096, 100)
		for i := range uint64(4) {
			must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i*10), fill(i, 900)))
		}
		cut := &switchOnce{after: step, to: 2}
		r := explore.Once(explore.OnceConfig{Strategy: cut}, func(task *sched.Task) {
			task.Go("splitter", func(task *sched.Task) {
				var p Path
				if found, err := b.f.SearchSlot(task, b.tr, b.root, k(20), &p, 0, true); !found || err != nil {
					t.Error(found, err)
				}
				old := string(p.Item())
				switch err := b.f.DuplicateItem(task, b.tr, b.root, &p, k(21)); err {
				case nil:
					if string(p.Item()) != old {
						t.Error("the copy is of another item than the one that was read")
					}
				case errno.EAGAIN:
					again++
				default:
					t.Error(err)
				}
				p.Release(task)
			})
			task.Go("writer", func(task *sched.Task) {
				var p Path
				if found, err := b.f.SearchSlot(task, b.tr, b.root, k(20), &p, 0, true); !found || err != nil {
					t.Error(found, err)
				}
				copy(p.Item(), fill(77, 900))
				p.Release(task)
			})
		})
		if r.Verdict != explore.OK || t.Failed() {
			t.Fatalf("schedule %q: %v: %s", r.Schedule, r.Verdict, r.Violation)
		}
		b.walk()
		b.noRefs()
		if !cut.done {
			break
		}
	}
	if again == 0 {
		t.Error("at no step did the item change: the test shows nothing")
	}
}

// lateDevice ends every write on a task of its own.
type lateDevice struct {
	*store
	ended int
}

func (d *lateDevice) Submit(t *sched.Task, b *blockdev.Bio) {
	t.Go("device", func(t *sched.Task) {
		t.Enter(sched.PointDevice, blockdev.WaitClass.ID, d)
		d.ended++
		d.store.Submit(t, b)
	})
}

// A device ends its writes when it pleases: WriteOut returns when the last one has ended, in every
// order.
func TestWriteOutWaits(t *testing.T) {
	for seed := range uint64(20) {
		var order explore.Strategy // none: WriteOut goes on as long as it can
		if seed > 0 {
			order = explore.RandomWalk(seed)
		}
		b := newBed(t, 4096, 100)
		for i := range uint64(300) {
			must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 400)))
		}
		d := &lateDevice{store: b.store}
		r := explore.Once(explore.OnceConfig{Strategy: order}, func(task *sched.Task) {
			b.f.Seal(task, b.tr.Dirty)
			if err := b.f.WriteOut(task, b.tr.Dirty, d); err != nil {
				t.Error(err)
			}
			if d.bios != d.ended || d.bios < 2 || len(b.blocks) != b.tr.Dirty.Len(task) {
				t.Errorf("WriteOut returns with %d of %d blocks written, %d bios", len(b.blocks), b.tr.Dirty.Len(task), d.bios)
			}
		})
		if r.Verdict != explore.OK || t.Failed() {
			t.Fatalf("seed %d: %v: %s", seed, r.Verdict, r.Violation)
		}
	}
}

// The root of a tree is locked by a task that waits for us: a NOWAIT search answers, any other
// would wait for ever.
func TestNowaitRoot(t *testing.T) {
	b := newBed(t, 4096, 100)
	must(t, b.f.InsertItem(b.task, b.tr, b.root, k(1), fill(1, 100)))
	r := explore.Once(explore.OnceConfig{}, func(task *sched.Task) {
		var q Path
		if _, err := b.f.SearchSlot(task, b.tr, b.root, k(1), &q, 0, true); err != nil {
			t.Error(err)
		}
		task.Join(task.Go("reader", func(task *sched.Task) {
			p := Path{Nowait: true}
			if _, err := b.f.SearchSlot(task, nil, b.root, k(1), &p, 0, false); err != error(kiocb.AgainTree) || p.Nodes[0] != nil {
				t.Errorf("the root is locked: %v, want EAGAIN", err)
			}
		}))
		q.Release(task)
	})
	if r.Verdict != explore.OK {
		t.Errorf("%v: %s", r.Verdict, r.Violation)
	}
	b.noRefs()
}
