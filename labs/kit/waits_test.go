package kit

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// waitSide notes what is called, and fails where it is told to.
type waitSide struct {
	iopath.WriteSteps // what is not here is not called

	calls              []string
	lock, space, pages error
}

func (s *waitSide) note(call string)                      { s.calls = append(s.calls, call) }
func (s *waitSide) Range(*sched.Task) (start, end uint64) { return 4100, 8000 }
func (s *waitSide) Size(*sched.Task) uint64               { return 8000 }
func (s *waitSide) Alone(*sched.Task)                     { s.note("Alone") }
func (s *waitSide) Unlock(*sched.Task)                    { s.note("Unlock") }
func (s *waitSide) Place(*sched.Task) uint64              { s.note("Place"); return 4100 }
func (s *waitSide) Begin(*sched.Task) error               { s.note("Begin"); return s.lock }
func (s *waitSide) WaitWriteback(_ *sched.Task, a, b uint64) {
	s.note(fmt.Sprint("WaitWriteback ", a, "-", b))
}
func (s *waitSide) WaitOrdered(_ *sched.Task, a, b uint64) {
	s.note(fmt.Sprint("WaitOrdered ", a, "-", b))
}
func (s *waitSide) Drain(*sched.Task)           { s.note("Drain") }
func (s *waitSide) Reserve(*sched.Task) error   { s.note("Reserve"); return s.space }
func (s *waitSide) LockPages(*sched.Task) error { s.note("LockPages"); return s.pages }
func (s *waitSide) UnlockPages(*sched.Task)     { s.note("UnlockPages") }
func (s *waitSide) LockExtent(*sched.Task)      { s.note("LockExtent") }
func (s *waitSide) Ordered(*sched.Task) bool    { s.note("Ordered"); return false }
func (s *waitSide) UnlockExtent(*sched.Task)    { s.note("UnlockExtent") }
func (s *waitSide) Copy(*sched.Task)            { s.note("Copy") }
func (s *waitSide) Balance(*sched.Task)         { s.note("Balance") }

// TestWaitMisuse: a write whose steps are in an order that none can have, or that leaves something
// undone, is a panic in the words of its user. A right one reaches the write path step by step, and
// its error reaches the caller.
func TestWaitMisuse(t *testing.T) {
	ready := func(t *Task, w *WaitedWrite) {
		w.Reserve(t)
		w.Lock(t)
		w.LockPages(t)
		w.LockRange(t)
	}
	whole := func(t *Task, w *WaitedWrite) error {
		from, to := w.Range()
		w.WaitWriteback(t, from, to)
		w.WaitOrdered(t, from, to)
		if err := w.Reserve(t); err != nil {
			return err
		}
		if err := w.Lock(t); err != nil {
			return err
		}
		w.Drain(t)
		if err := w.LockPages(t); err != nil {
			w.Unlock(t)
			return err
		}
		w.LockRange(t)
		w.Ordered(t)
		w.UnlockRange(t)
		w.LockRange(t)
		w.Copy(t)
		w.UnlockPages(t)
		w.Unlock(t)
		w.Throttle(t)
		return nil
	}
	broken := errors.New("broken")
	does := func(f func(t *Task, w *WaitedWrite)) WaitPath {
		return func(t *Task, w *WaitedWrite) error { f(t, w); return nil }
	}
	for _, tt := range []struct {
		side waitSide
		run  WaitPath
		want string // the panic, or the calls after "="
		err  error
	}{
		{run: whole, want: "=WaitWriteback 4096-8192 WaitOrdered 4096-8192 Reserve Alone Place Begin Drain LockPages LockExtent Ordered UnlockExtent LockExtent Copy UnlockPages Unlock Balance"},
		{side: waitSide{space: broken}, run: whole, want: "=WaitWriteback 4096-8192 WaitOrdered 4096-8192 Reserve", err: broken},
		{side: waitSide{lock: broken}, run: whole, want: "=WaitWriteback 4096-8192 WaitOrdered 4096-8192 Reserve Alone Place Begin Unlock", err: broken},
		{side: waitSide{pages: broken}, run: whole, want: "=WaitWriteback 4096-8192 WaitOrdered 4096-8192 Reserve Alone Place Begin Drain LockPages Unlock", err: broken},
		{run: does(func(_ *Task, w *WaitedWrite) { w.Drain(nil) }), want: "kit.WaitedWrite.Drain without a task"},
		{run: does(func(t *Task, w *WaitedWrite) { w.Lock(t); w.Lock(t) }), want: "kit.WaitedWrite.Lock by a write that has i_rwsem"},
		{run: does(func(t *Task, w *WaitedWrite) { w.Unlock(t) }), want: "kit.WaitedWrite.Unlock without i_rwsem"},
		{run: does(func(t *Task, w *WaitedWrite) { w.Reserve(t); w.Reserve(t) }), want: "kit.WaitedWrite.Reserve twice"},
		{run: does(func(t *Task, w *WaitedWrite) { w.LockPages(t); w.LockPages(t) }), want: "kit.WaitedWrite.LockPages of pages that the write has"},
		{run: does(func(t *Task, w *WaitedWrite) { w.UnlockPages(t) }), want: "kit.WaitedWrite.UnlockPages of pages that are not locked"},
		{run: does(func(t *Task, w *WaitedWrite) { w.LockRange(t); w.LockRange(t) }), want: "kit.WaitedWrite.LockRange of a range that the write has"},
		{run: does(func(t *Task, w *WaitedWrite) { w.UnlockRange(t) }), want: "kit.WaitedWrite.UnlockRange of a range that is not locked"},
		{run: does(func(t *Task, w *WaitedWrite) { w.Copy(t) }), want: "kit.WaitedWrite.Copy before Reserve"},
		{run: does(func(t *Task, w *WaitedWrite) { w.Reserve(t); w.Copy(t) }), want: "kit.WaitedWrite.Copy without the pages locked"},
		{run: does(func(t *Task, w *WaitedWrite) { w.Reserve(t); w.LockPages(t); w.Copy(t) }), want: "kit.WaitedWrite.Copy without the range locked"},
		{run: does(func(t *Task, w *WaitedWrite) { ready(t, w); w.Copy(t); w.UnlockRange(t) }), want: "kit.WaitedWrite.UnlockRange of a range"},
		{run: does(func(t *Task, w *WaitedWrite) { ready(t, w); w.Copy(t); w.Copy(t) }), want: "kit.WaitedWrite.Copy twice"},
		{run: does(func(t *Task, w *WaitedWrite) { w.Lock(t) }), want: "Write has returned with i_rwsem held"},
		{run: does(func(t *Task, w *WaitedWrite) { w.LockPages(t) }), want: "Write has returned with pages locked"},
		{run: does(func(t *Task, w *WaitedWrite) { w.LockRange(t) }), want: "Write has returned with the range locked"},
		{run: does(func(t *Task, w *WaitedWrite) { w.Throttle(t) }), want: "Write has returned nil, and the bytes are nowhere"},
		{run: does(func(t *Task, w *WaitedWrite) { ready(t, w); w.Copy(t); w.UnlockPages(t); w.Unlock(t) }), want: "Write has returned and has not paid"},
		{run: func(t *Task, w *WaitedWrite) error {
			ready(t, w)
			w.Copy(t)
			w.UnlockPages(t)
			w.Unlock(t)
			return broken
		}, want: "Write has returned an error after Copy"},
	} {
		got := ""
		var err error
		func() {
			defer func() {
				if p := recover(); p != nil {
					got = fmt.Sprint(p)
				}
			}()
			err = RunWaits(tt.run, &sched.Task{}, &tt.side)
			got = "=" + strings.Join(tt.side.calls, " ")
		}()
		if !strings.HasPrefix(got, tt.want) || tt.want[0] == '=' && got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("have %q %v want %q %v", got, err, tt.want, tt.err)
		}
	}
}
