package ctree

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// TestConcurrent has many tasks insert, delete, change and search in one tree, while others walk it
// in both directions and transactions commit, each while the next one already changes the tree.
// Lockdep checks every lock.
//
// Writers have keys of their own, woven into each other's, so that each knows what it must find;
// every sixteenth key is permanent, and a walk that misses one has lost its way in a split or
// balance.
func TestConcurrent(t *testing.T) {
	for _, tc := range []struct {
		name           string
		ptrs, cache    int
		writers, scans int
		ops, size      int
	}{
		{"tall", 12, 4000, 6, 2, 1500, 300},
		{"tiny cache", 12, 64, 4, 2, 700, 400},
		{"wide", 0, 4000, 6, 2, 2500, 60},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if testing.Short() {
				tc.ops /= 4
			}
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			b := newBed(t, 4096, tc.cache)
			b.ptrs = tc.ptrs
			b.limitPtrs()
			const span = 4000
			all := model{}
			for i := uint64(0); i < span; i += 16 {
				must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 50)))
				all[k(i)] = string(fill(i, 50))
			}
			// A handle on the transaction is a read lock; the commit takes the write lock to have
			// the writers out.
			var handles sync.RWMutex
			var writersLeft atomic.Int32
			writersLeft.Store(int32(tc.writers))
			// One commit for every so many operations.
			var done atomic.Int32
			commitNow := make(chan struct{}, 1)
			var tasks []*sched.Task
			models := make([]model, tc.writers)
			for w := range tc.writers {
				tasks = append(tasks, b.task.Go(fmt.Sprintf("writer%d", w), func(task *sched.Task) {
					defer func() {
						if writersLeft.Add(-1) == 0 {
							close(commitNow)
						}
					}()
					rng := rand.New(rand.NewPCG(seed, uint64(w)))
					m := model{}
					models[w] = m
					for range tc.ops {
						handles.RLock()
						err := concurrentOp(task, b, rng, m, uint64(w), uint64(tc.writers), span, tc.size)
						lockdep.AssertNone(task)
						handles.RUnlock()
						if err != nil {
							t.Error(err)
							return
						}
						if done.Add(1)%40 == 0 {
							select {
							case commitNow <- struct{}{}:
							default:
							}
						}
					}
				}))
			}
			for s := range tc.scans {
				tasks = append(tasks, b.task.Go(fmt.Sprintf("scan%d", s), func(task *sched.Task) {
					for writersLeft.Load() > 0 {
						if err := scan(task, b, span, s%2 == 1); err != nil {
							t.Error(err)
							return
						}
						lockdep.AssertNone(task)
					}
				}))
			}
			tasks = append(tasks, b.task.Go("committer", func(task *sched.Task) {
				for range commitNow {
					handles.Lock()
					old := b.tr
					b.f.Seal(task, old.Dirty)
					b.store.mu.Lock()
					pinned := b.pinned
					b.pinned = nil
					b.store.mu.Unlock()
					b.tr = &Trans{ID: old.ID + 1, Dirty: NewDirtySet()}
					handles.Unlock()
					if err := b.f.WriteOut(task, old.Dirty, b.store); err != nil {
						t.Error(err)
						return
					}
					b.store.mu.Lock()
					b.free = append(b.free, pinned...)
					b.store.mu.Unlock()
				}
			}))
			for _, task := range tasks {
				b.task.Join(task)
			}
			for _, m := range models {
				for key, v := range m {
					all[key] = v
				}
			}
			b.compare(all)
			b.noRefs()
			b.commit(nil)
			b.reopen(tc.cache)
			b.compare(all)
			_, level, _ := b.root.Pointer()
			t.Logf("%d items, height %d, %d transactions", len(all), level+1, b.tr.ID)
		})
	}
}

// concurrentOp is one operation of writer w on a key of its own.
func concurrentOp(task *sched.Task, b *bed, rng *rand.Rand, m model, w, writers, span uint64, size int) error {
	i := rng.Uint64N(span/writers)*writers + w
	if i%16 == 0 {
		return nil
	}
	key := k(i)
	old, have := m[key]
	var p Path
	defer p.Release(task)
	switch rng.IntN(6) {
	case 0, 1:
		d := fill(rng.Uint64(), rng.IntN(size))
		err := b.f.InsertItem(task, b.tr, b.root, key, d)
		if have && err != errno.EEXIST || !have && err != nil {
			return fmt.Errorf("insert %v: %v, exists %v", key, err, have)
		}
		if !have {
			m[key] = string(d)
		}
	case 2, 3:
		found, err := b.f.SearchSlot(task, b.tr, b.root, key, &p, -1, true)
		if err != nil || found != have {
			return fmt.Errorf("search %v to delete: found %v, want %v: %v", key, found, have, err)
		}
		if found {
			delete(m, key)
			return b.f.DelItems(task, b.tr, b.root, &p, p.Slot(), 1)
		}
	case 4:
		found, err := b.f.SearchSlot(task, b.tr, b.root, key, &p, 0, true)
		if err != nil || found != have {
			return fmt.Errorf("search %v to change: found %v, want %v: %v", key, found, have, err)
		}
		if found {
			if string(p.Item()) != old {
				return fmt.Errorf("%v: %d bytes are not what was written", key, len(p.Item()))
			}
			d := fill(rng.Uint64(), len(old))
			copy(p.Item(), d)
			m[key] = string(d)
		}
	case 5:
		found, err := b.f.SearchSlot(task, nil, b.root, key, &p, 0, false)
		if err != nil || found != have || found && string(p.Item()) != old {
			return fmt.Errorf("search %v: found %v, want %v: %v", key, found, have, err)
		}
	}
	return nil
}

// scan walks the whole tree: keys ascend, or descend, and every permanent key comes by.
func scan(task *sched.Task, b *bed, span uint64, back bool) error {
	var p Path
	defer p.Release(task)
	var more bool
	var err error
	want := uint64(0)
	if back {
		want = (span - 1) / 16 * 16
		more, err = b.f.SearchBackward(task, b.root, format.MaxKey, &p)
	} else {
		more, err = b.f.SearchForward(task, b.root, format.Key{}, &p)
	}
	var last format.Key
	seen := 0
	for n := 0; more && err == nil; n++ {
		key := p.Key()
		if n > 0 && (!back && !last.Less(key) || back && !key.Less(last)) {
			return fmt.Errorf("scan: %v after %v", key, last)
		}
		last = key
		if key == k(want) {
			if string(p.Item()) != string(fill(want, 50)) {
				return fmt.Errorf("scan: permanent item %v changed", key)
			}
			seen++
			if back {
				want -= 16
			} else {
				want += 16
			}
		}
		if back {
			more, err = b.f.PrevItem(task, b.root, &p)
		} else {
			more, err = b.f.NextItem(task, b.root, &p)
		}
	}
	if err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	if seen != int((span+15)/16) {
		return fmt.Errorf("scan: %d permanent items, want %d; next would be %v (back %v)", seen, (span+15)/16, k(want), back)
	}
	return nil
}
