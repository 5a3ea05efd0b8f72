package extentio

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// account counts what an inode would: delalloc bytes, new bytes and delalloc states, by the hooks
// alone.
type account struct {
	bytes, states int64
}

func (a *account) SetDelalloc(_ *sched.Task, start, end uint64, set, old Bits) {
	if set&^old&Delalloc != 0 {
		a.bytes += int64(end - start)
		a.states++
	}
}

func (a *account) ClearDelalloc(_ *sched.Task, start, end uint64, clear, old Bits) {
	if clear&old&Delalloc != 0 {
		a.bytes -= int64(end - start)
		a.states--
	}
}

func (a *account) SplitDelalloc(_ *sched.Task, start, at, end uint64, _ Bits) {
	if !(start < at && at < end) {
		panic(fmt.Sprintf("split [%d,%d) at %d", start, end, at))
	}
	a.states++
}

func (a *account) MergeDelalloc(_ *sched.Task, start, at, end uint64, _ Bits) {
	if !(start < at && at < end) {
		panic(fmt.Sprintf("merge [%d,%d) at %d", start, end, at))
	}
	a.states--
}

// Random sets, clears, locks and unlocks against an array with one cell per byte: the same bits
// everywhere, the invariants hold, and the hooks have counted every delalloc byte and state.
func TestAgreesWithModel(t *testing.T) {
	for _, size := range []uint64{40, 3000, 10000} { // few states, some, many chunks of them
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			k := sched.NewTask("test")
			var x Tree
			var acc account
			x.Init(&acc)
			model := make([]Bits, size)
			rng := rand.New(rand.NewPCG(7, size))
			choice := []Bits{Delalloc, Delalloc, NoReserve, Delalloc | NoReserve}
			type rg struct{ s, e uint64 }
			var held []rg
			steps, maxChunks := 4000, 0
			for step := range steps {
				s := rng.Uint64N(size)
				e := s + 1 + rng.Uint64N(min(size-s, 1+size/uint64(1+rng.IntN(40))))
				if size == 10000 && step%100 != 99 {
					e = s + 1 + rng.Uint64N(min(size-s, 10))
				}
				b := choice[rng.IntN(len(choice))]
				switch rng.IntN(6) {
				case 0, 1:
					x.Set(k, s, e, b)
					for i := s; i < e; i++ {
						model[i] |= b
					}
				case 2:
					x.Clear(k, s, e, b|ClearDataResv)
					for i := s; i < e; i++ {
						model[i] &^= b
					}
				case 3:
					c := choice[rng.IntN(len(choice))]
					x.Change(k, s, e, c, b)
					for i := s; i < e; i++ {
						model[i] = model[i]&^c | b
					}
				case 4:
					free := true
					for i := s; i < e; i++ {
						free = free && model[i]&Locked == 0
					}
					if got := x.TryLock(k, s, e); got != free {
						t.Fatalf("step %d: TryLock [%d,%d) is %v, want %v", step, s, e, got, free)
					}
					if free {
						held = append(held, rg{s, e})
						for i := s; i < e; i++ {
							model[i] |= Locked
						}
					}
				case 5:
					if len(held) == 0 {
						continue
					}
					i := rng.IntN(len(held))
					r := held[i]
					held = append(held[:i], held[i+1:]...)
					m := r.e
					if r.e-r.s > 1 && rng.IntN(2) == 0 { // unlock in two parts
						m = r.s + 1 + rng.Uint64N(r.e-r.s-1)
						x.Unlock(k, m, r.e)
					}
					x.UnlockAndSet(k, r.s, m, NoReserve, b)
					for i := r.s; i < r.e; i++ {
						model[i] &^= Locked
						if i < m {
							model[i] = model[i]&^NoReserve | b
						}
					}
				}
				maxChunks = max(maxChunks, len(x.states.chunks))
				if size > 100 && step%50 != 0 && step != steps-1 {
					continue
				}
				compare(t, k, &x, &acc, model, step)
				f := rng.Uint64N(size)
				checkQueries(t, k, &x, model, f, f+1+rng.Uint64N(size-f), b)
			}
			if size == 10000 && maxChunks < 6 {
				t.Fatalf("at most %d chunks, want 6 or more for this to test much", maxChunks)
			}
			for _, r := range held {
				x.Unlock(k, r.s, r.e)
			}
			x.Clear(k, 0, ^uint64(0), ^LockBits)
			if n := x.Len(k); n != 0 || acc != (account{}) {
				t.Fatalf("after clearing everything: %d states, account %+v", n, acc)
			}
			if len(k.HeldLocks) != 0 {
				t.Fatalf("lockdep still has %d locks", len(k.HeldLocks))
			}
		})
	}
}

func compare(t *testing.T, k *sched.Task, x *Tree, acc *account, model []Bits, step int) {
	t.Helper()
	if err := x.CheckInvariants(k); err != nil {
		t.Fatalf("step %d: %v\n%s", step, err, x.Dump(k))
	}
	got := make([]Bits, len(model))
	var want account
	for _, c := range x.states.chunks {
		for _, s := range c {
			for i := s.start; i < s.end; i++ {
				got[i] = s.bits
			}
			if s.bits&Delalloc != 0 {
				want.bytes += int64(s.end - s.start)
				want.states++
			}
		}
	}
	for i := range model {
		if got[i] != model[i] {
			t.Fatalf("step %d: byte %d is %v, want %v\n%s", step, i, got[i], model[i], x.Dump(k))
		}
	}
	if *acc != want {
		t.Fatalf("step %d: hooks counted %+v, want %+v", step, *acc, want)
	}
}

func checkQueries(t *testing.T, k *sched.Task, x *Tree, model []Bits, s, e uint64, b Bits) {
	t.Helper()
	anyOf, all, n := false, true, uint64(0)
	for i := s; i < e; i++ {
		anyOf = anyOf || model[i]&b != 0
		all = all && model[i]&b == b
		if model[i]&b == b {
			n++
		}
	}
	if x.Any(k, s, e, b) != anyOf || x.All(k, s, e, b) != all || x.Count(k, s, e, b) != n {
		t.Fatalf("[%d,%d) %v: any %v all %v count %d, want %v %v %d", s, e, b,
			x.Any(k, s, e, b), x.All(k, s, e, b), x.Count(k, s, e, b), anyOf, all, n)
	}
	size := uint64(len(model))
	f := s
	for f < size && model[f]&b == 0 {
		f++
	}
	g := f
	for g < size && model[g]&b != 0 {
		g++
	}
	if rs, re, ok := x.FirstSet(k, s, b); ok != (f < size) || ok && (rs != f || re != g) {
		t.Fatalf("FirstSet(%d, %v) is [%d,%d) %v, want [%d,%d)", s, b, rs, re, ok, f, g)
	}
	f = s
	for f < size && model[f]&Delalloc == 0 {
		f++
	}
	for g = f; g < size && g-f < 100 && model[g]&Delalloc != 0; g++ {
	}
	if rs, re, ok := x.FindDelalloc(k, s, 100); ok != (f < size) || ok && (rs != f || re != g) {
		t.Fatalf("FindDelalloc(%d) is [%d,%d) %v, want [%d,%d)", s, rs, re, ok, f, g)
	}
}

// A lock splits a delalloc state and the unlock puts it together again; what is locked is not
// merged.
func TestLockSplitsAndMerges(t *testing.T) {
	k := sched.NewTask("test")
	var x Tree
	var acc account
	x.Init(&acc)
	x.Set(k, 0, 40960, Delalloc)
	x.Lock(k, 8192, 12288)
	x.Lock(k, 12288, 16384)
	if d, want := x.Dump(k), "[0,8192) DELALLOC\n[8192,12288) LOCKED|DELALLOC\n[12288,16384) LOCKED|DELALLOC\n[16384,40960) DELALLOC\n"; d != want {
		t.Fatalf("have\n%swant\n%s", d, want)
	}
	x.AssertLocked(k, 8192, 16384)
	mustPanic(t, "relies on extent [4096,16384), which it does not hold from 4096 on", func() { x.AssertLocked(k, 4096, 16384) })
	mustPanic(t, "does not hold from 16384 on", func() { x.AssertLocked(k, 8192, 16385) })
	mustPanic(t, "does not hold from 8192 on", func() { x.AssertLocked(sched.NewTask("other"), 8192, 16384) })
	x.Unlock(k, 8192, 16384) // both at once
	if d, want := x.Dump(k), "[0,40960) DELALLOC\n"; d != want || acc.states != 1 {
		t.Fatalf("have\n%swant\n%s, %d delalloc states counted", d, want, acc.states)
	}
	x.Clear(k, 8192, 40960, Delalloc)
	x.Lock(k, 4096, 12288) // one lock over two states, which a set makes equal
	x.Set(k, 4096, 12288, Delalloc)
	if d, want := x.Dump(k), "[0,4096) DELALLOC\n[4096,8192) LOCKED|DELALLOC\n[8192,12288) LOCKED|DELALLOC\n"; d != want || acc.states != 3 {
		t.Fatalf("have\n%swant\n%s, %d delalloc states counted", d, want, acc.states)
	}
}

// A search begins where the last one ended. That one looked in a gap and found the state after it,
// which may be the first of a chunk; then the state before the gap, in the chunk before, grows over
// the gap.
func TestGrowsAfterTheSearch(t *testing.T) {
	k := sched.NewTask("test")
	var x Tree
	x.Init(&account{})
	const states, apart = 200, 8
	for i := range uint64(states) {
		x.Set(k, i*apart, i*apart+2, Delalloc)
	}
	if n := len(x.states.chunks); n < 3 {
		t.Fatalf("%d chunks, want some", n)
	}
	for i := range uint64(states) {
		at := i*apart + 2
		for end := at + 1; end < at+4; end++ {
			x.Set(k, end-1, end, Delalloc)
			if !x.Any(k, end-1, end, Delalloc) {
				t.Fatalf("byte %d is not delalloc after it was set", end-1)
			}
		}
	}
}

// mustPanic runs f and wants a panic that says want.
func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if r := fmt.Sprint(recover()); !strings.Contains(r, want) {
			t.Errorf("panic %q, want one with %q", r, want)
		}
	}()
	f()
}

func TestMisuse(t *testing.T) {
	newTree := func() (*sched.Task, *Tree) {
		x := new(Tree)
		x.Init(nil)
		return sched.NewTask("test"), x
	}
	mustPanic(t, "does not hold", func() { k, x := newTree(); x.Unlock(k, 0, 4096) })
	mustPanic(t, "does not hold", func() { k, x := newTree(); x.Lock(k, 0, 4096); x.Unlock(k, 0, 8192) })
	mustPanic(t, "set of bits LOCKED", func() { k, x := newTree(); x.Set(k, 0, 4096, Locked) })
	mustPanic(t, "empty range", func() { k, x := newTree(); x.Set(k, 4096, 4096, Delalloc) })
	mustPanic(t, "lock with bits", func() { k, x := newTree(); x.LockBits(k, 0, 4096, Delalloc) })
	mustPanic(t, "lockdep: ", func() { k, x := newTree(); x.Lock(k, 8192, 12288); x.Lock(k, 0, 4096) })
	mustPanic(t, "lockdep: ", func() { k, x := newTree(); x.Lock(k, 0, 4096); x.LockDIO(k, 8192, 12288) })
	k, x := newTree()
	x.LockDIO(k, 0, 8192)
	x.Lock(k, 0, 4096)
	x.Unlock(k, 0, 4096)
	x.UnlockDIO(k, 0, 8192)

	// Without lockdep the tree itself notices.
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	mustPanic(t, "which is not locked from 0 on", func() { k, x := newTree(); x.Unlock(k, 0, 4096) })
	mustPanic(t, "which is DIO_LOCKED from 0 on", func() { k, x := newTree(); x.LockDIO(k, 0, 4096); x.Unlock(k, 0, 4096) })
	mustPanic(t, "which is DELALLOC from 4096 on", func() {
		k, x := newTree()
		x.Set(k, 4096, 8192, Delalloc)
		x.Lock(k, 0, 4096)
		x.Unlock(k, 0, 8192)
	})
}

// Locks of overlapping ranges exclude each other, whole, in both modes, and all waiters come
// through.
func TestExclusion(t *testing.T) {
	for _, mode := range []Mode{BackOff, HoldAndWait} {
		k := sched.NewTask("test")
		var x Tree
		x.Init(nil)
		x.SetLockMode(mode)
		var owner [32]atomic.Int64
		var tasks []*sched.Task
		for i := range 6 {
			tasks = append(tasks, k.Go(fmt.Sprint("locker", i), func(k *sched.Task) {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(mode)))
				for range 400 {
					s := rng.Uint64N(31)
					e := s + 1 + rng.Uint64N(32-s)
					x.Lock(k, s, e)
					for j := s; j < e; j++ {
						if o := owner[j].Swap(int64(i + 1)); o != 0 {
							t.Errorf("byte %d locked by %d and %d", j, o, i+1)
						}
					}
					for j := s; j < e; j++ {
						owner[j].Store(0)
					}
					x.Unlock(k, s, e)
				}
			}))
		}
		for _, c := range tasks {
			k.Join(c)
		}
		if n := x.Len(k); n != 0 || len(x.waiters) != 0 {
			t.Fatalf("%d states and %d waiters are left", n, len(x.waiters))
		}
	}
}

// The two modes differ in what a waiter holds: HoldAndWait has the part before the conflict.
func TestModesDiffer(t *testing.T) {
	for _, mode := range []Mode{BackOff, HoldAndWait} {
		k := sched.NewTask("test")
		var x Tree
		x.Init(nil)
		x.SetLockMode(mode)
		x.Lock(k, 10, 20)
		w := k.Go("waiter", func(k *sched.Task) {
			x.Lock(k, 0, 30)
			x.Unlock(k, 0, 30)
		})
		for waiting := false; !waiting; {
			x.mu.Lock(k)
			waiting = len(x.waiters) == 1
			x.mu.Unlock(k)
		}
		if got := x.TryLock(k, 0, 5); got != (mode == BackOff) {
			t.Errorf("mode %d: a third task gets the front: %v", mode, got)
		} else if got {
			x.Unlock(k, 0, 5)
		}
		if !x.TryLock(k, 25, 30) {
			t.Errorf("mode %d: the part after the conflict is locked", mode)
		} else {
			x.Unlock(k, 25, 30)
		}
		x.Unlock(k, 10, 20)
		k.Join(w)
		if w.Waits.Of(ExtentClass.ID).Count != 1 {
			t.Errorf("mode %d: %d waits recorded, want 1", mode, w.Waits.Of(ExtentClass.ID).Count)
		}
	}
}

// Another task may unlock what was handed over.
func TestDisownAdopt(t *testing.T) {
	k := sched.NewTask("test")
	var x Tree
	x.Init(nil)
	x.LockDIO(k, 0, 8192)
	x.Disown(k, 4096, 8192, DIOLocked)
	c := k.Go("endio", func(k *sched.Task) {
		x.Adopt(k, 4096, 8192, DIOLocked)
		x.UnlockDIO(k, 4096, 8192)
	})
	k.Join(c)
	x.UnlockDIO(k, 0, 4096)
	if n := x.Len(k); n != 0 || len(k.HeldLocks) != 0 {
		t.Fatalf("%d states, %d held", n, len(k.HeldLocks))
	}
}

// fragmented makes a tree of n delalloc states with gaps between them.
func fragmented(k *sched.Task, n int) *Tree {
	x := new(Tree)
	x.Init(&account{})
	for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(n) {
		x.Set(k, uint64(i)*8192, uint64(i)*8192+4096, Delalloc)
	}
	return x
}

func TestNoAllocation(t *testing.T) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	k := sched.NewTask("test")
	x := fragmented(k, 20000)
	rng := rand.New(rand.NewPCG(5, 6))
	if n := testing.AllocsPerRun(2000, func() {
		s := rng.Uint64N(20000) * 8192
		x.Lock(k, s, s+4096)
		x.UnlockAndSet(k, s, s+4096, Delalloc|NoReserve|DoAccounting, Delalloc)
		x.Lock(k, s+4096, s+8192) // a hole: closes a gap, then opens it again
		x.UnlockAndSet(k, s+4096, s+8192, 0, Delalloc)
		x.Clear(k, s+4096, s+8192, Delalloc)
	}); n != 0 {
		t.Errorf("%v allocations per write, want 0", n)
	}
}

func benchmarkWrite(b *testing.B, step uint64) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	k := sched.NewTask("bench")
	x := fragmented(k, 30000)
	if step == 4096 {
		x.Set(k, 0, 30000*8192, Delalloc)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	b.ReportAllocs()
	for b.Loop() {
		s := rng.Uint64N(30000*8192/step) * step
		x.Lock(k, s, s+4096)
		x.UnlockAndSet(k, s, s+4096, Delalloc|NoReserve|DoAccounting, Delalloc)
	}
}

// A 4 KiB overwrite in a tree of 30,000 delalloc states: lock, then clear, set and unlock in one.
func BenchmarkOverwriteFragmented(b *testing.B) { benchmarkWrite(b, 8192) }

// The same in one delalloc state of 240 MiB, which each lock splits.
func BenchmarkOverwriteOneState(b *testing.B) { benchmarkWrite(b, 4096) }

func BenchmarkLockSetUnlock(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	k := sched.NewTask("bench")
	x := fragmented(k, 30000)
	rng := rand.New(rand.NewPCG(5, 6))
	b.ReportAllocs()
	for b.Loop() {
		s := rng.Uint64N(30000) * 8192
		x.Lock(k, s, s+4096)
		x.Set(k, s, s+4096, Delalloc)
		x.Unlock(k, s, s+4096)
	}
}

// BenchmarkDirect is the two locks of a direct write, in a tree with nothing else.
func BenchmarkDirect(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	t := sched.NewTask("bench")
	x := new(Tree)
	x.Init(nil)
	b.ReportAllocs()
	off := uint64(0)
	for b.Loop() {
		off = (off + 0x9e3779b9000) & (1<<30 - 1)
		if !x.TryLockBits(t, off, off+4096, DIOLocked) || !x.TryLock(t, off, off+4096) {
			b.Fatal("busy")
		}
		x.Unlock(t, off, off+4096)
		x.UnlockDIO(t, off, off+4096)
	}
}

func BenchmarkRangeLockContended(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	root := sched.NewTask("bench")
	x := fragmented(root, 30000)
	b.SetParallelism(4)
	var id atomic.Uint64
	b.RunParallel(func(pb *testing.PB) {
		k := sched.NewTask("worker")
		rng := rand.New(rand.NewPCG(5, id.Add(1)))
		for pb.Next() {
			s := rng.Uint64N(60000) * 4096
			x.Lock(k, s, s+4096)
			x.Unlock(k, s, s+4096)
		}
	})
}

// An unlock wakes every waiter whose range it touches, for the bit that it waits for.
func TestUnlockWakes(t *testing.T) {
	for _, bit := range []Bits{Locked, DIOLocked} {
		k := sched.NewTask("test")
		var x Tree
		x.Init(nil)
		x.LockBits(k, 10, 20, bit)
		var waiters []*sched.Task
		for i, r := range [][2]uint64{{0, 12}, {12, 14}, {15, 30}} {
			waiters = append(waiters, k.Go("waiter", func(k *sched.Task) {
				x.LockBits(k, r[0], r[1], bit)
				x.Change(k, r[0], r[1], bit, 0)
			}))
			for n := 0; n <= i; {
				x.mu.Lock(k)
				n = len(x.waiters)
				x.mu.Unlock(k)
			}
		}
		x.Change(k, 10, 20, bit, 0)
		x.mu.Lock(k)
		left := len(x.waiters)
		x.mu.Unlock(k)
		if left != 0 {
			t.Fatalf("%v: the unlock leaves %d waiters asleep", bit, left)
		}
		for _, w := range waiters {
			k.Join(w)
		}
	}
}

// In every order a task that was woken looks again, and all come through.
func TestExclusionInEveryOrder(t *testing.T) {
	for _, mode := range []Mode{BackOff, HoldAndWait} {
		r := explore.Run(explore.Config{Method: explore.DPOR}, func(w *explore.World) {
			var x Tree
			x.Init(nil)
			x.SetLockMode(mode)
			var owner [3]*sched.Task
			for i := range uint64(3) {
				w.Go("locker", func(t *sched.Task) {
					from, to := min(i, 1), max(2, i+1) // [0,2) [1,2) [1,3)
					x.Lock(t, from, to)
					for j := from; j < to; j++ {
						if owner[j] != nil {
							panic("locked twice")
						}
						owner[j] = t
					}
					t.Enter(sched.PointAtomic, 0, &owner)
					clear(owner[from:to])
					x.Unlock(t, from, to)
				})
			}
		})
		if r.Verdict != explore.Exhausted {
			t.Errorf("mode %d: %s, schedule %q: %s", mode, r.Bound, r.Schedule, r.Violation)
		}
	}
}

// The unlock at the end of an ordered extent takes FINISHING_ORDERED with it.
func TestFinishing(t *testing.T) {
	k := sched.NewTask("test")
	var x Tree
	x.Init(nil)
	x.LockBits(k, 0, 8192, Locked|FinishingOrdered)
	if d := x.Dump(k); d != "[0,8192) LOCKED|FINISHING_ORDERED\n" {
		t.Errorf("locked: %s", d)
	}
	x.Unlock(k, 0, 4096)
	if d := x.Dump(k); d != "[4096,8192) LOCKED|FINISHING_ORDERED\n" {
		t.Errorf("half unlocked: %s", d)
	}
	x.Unlock(k, 4096, 8192)
	if d := x.Dump(k); d != "" {
		t.Errorf("unlocked: %s", d)
	}
}

// A bit that is set run by run and counted when it goes: the runs are those that did not have it,
// and the other bits stay.
func TestSetMissing(t *testing.T) {
	task := sched.NewTask("test")
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var x Tree
		x.Init(nil)
		var has [64]bool
		for range 200 {
			a := uint64(rng.IntN(60))
			b := a + 1 + uint64(rng.IntN(int(64-a)))
			if rng.IntN(3) == 0 {
				x.Set(task, a, b, NoReserve)
			}
			want := uint64(0)
			if rng.IntN(2) == 0 {
				for i := a; i < b; i++ {
					if has[i] {
						want++
					}
					has[i] = false
				}
				if n := x.ClearCount(task, a, b, QgroupReserved); n != want {
					t.Fatalf("seed %d: cleared %d of [%d, %d), want %d", seed, n, a, b, want)
				}
			} else {
				last := a
				for at := a; ; {
					from, to, ok := x.SetMissing(task, at, b, QgroupReserved)
					if !ok {
						break
					}
					for i := last; i < to; i++ {
						if has[i] == (i >= from) {
							t.Fatalf("seed %d: run [%d, %d) of [%d, %d), byte %d had it: %v", seed, from, to, a, b, i, has[i])
						}
						has[i] = true
					}
					last, at = to, to
				}
				for i := last; i < b; i++ {
					if !has[i] {
						t.Fatalf("seed %d: byte %d of [%d, %d) was left out", seed, i, a, b)
					}
				}
			}
			for i := range has {
				if x.Any(task, uint64(i), uint64(i)+1, QgroupReserved) != has[i] {
					t.Fatalf("seed %d: byte %d: want %v", seed, i, has[i])
				}
			}
			if err := x.CheckInvariants(task); err != nil {
				t.Fatal(err)
			}
		}
	}
}
