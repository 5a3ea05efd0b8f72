package kit

import (
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/sched"
)

// sectorSide notes what is called, and answers with what it has.
type sectorSide struct {
	calls  []string
	beyond bool // the write ends beyond EOF
	refuse bool // Submit does nothing
}

func (s *sectorSide) note(call string)        { s.calls = append(s.calls, call) }
func (s *sectorSide) Share(*sched.Task)       { s.note("Share") }
func (s *sectorSide) Alone(*sched.Task)       { s.note("Alone") }
func (s *sectorSide) Unlock(*sched.Task)      { s.note("Unlock") }
func (s *sectorSide) Inside() bool            { return !s.beyond }
func (s *sectorSide) Look(*sched.Task) Blocks { s.note("Look"); return Unwritten }
func (s *sectorSide) Drain(*sched.Task)       { s.note("Drain") }
func (s *sectorSide) Submit(*sched.Task) bool { s.note("Submit"); return !s.refuse }
func (s *sectorSide) Wait(*sched.Task)        { s.note("Wait") }
func (s *sectorSide) Cache()                  { s.note("Cache") }

// TestSectorMisuse: a write of sectors whose steps are in an order that none can have, or that
// leaves something undone, is a panic in the words of its user. A right one reaches the write path
// step by step.
func TestSectorMisuse(t *testing.T) {
	whole := func(t *Task, w *SectorWrite) {
		w.Alone(t)
		w.Drain(t)
		w.Submit(t)
		w.Wait(t)
		w.Unlock(t)
	}
	for _, tt := range []struct {
		side sectorSide
		run  func(t *Task, w *SectorWrite)
		want string // the panic, or the calls after "="
	}{
		{run: whole, want: "=Alone Drain Submit Wait Unlock"},
		{run: func(t *Task, w *SectorWrite) {
			w.Share(t)
			w.Look(t)
			w.Unlock(t)
			w.Cache(t)
		}, want: "=Share Look Unlock Cache"},
		{run: func(t *Task, w *SectorWrite) {
			w.Share(t)
			w.Submit(t)
			w.Unlock(t)
			w.Wait(t)
		}, want: "=Share Submit Unlock Wait"},
		{side: sectorSide{refuse: true}, run: func(t *Task, w *SectorWrite) {
			w.Alone(t)
			if w.Submit(t) {
				panic("Submit says that it did")
			}
			w.Unlock(t)
			w.Cache(t)
		}, want: "=Alone Submit Unlock Cache"},
		{run: func(_ *Task, w *SectorWrite) { w.Alone(nil) }, want: "kit.SectorWrite.Alone without a task"},
		{run: func(t *Task, w *SectorWrite) { w.Look(t) }, want: "kit.SectorWrite.Look without i_rwsem"},
		{run: func(t *Task, w *SectorWrite) { w.Inside(t) }, want: "kit.SectorWrite.Inside without i_rwsem"},
		{run: func(t *Task, w *SectorWrite) { w.Submit(t) }, want: "kit.SectorWrite.Submit without i_rwsem"},
		{run: func(t *Task, w *SectorWrite) { w.Unlock(t) }, want: "kit.SectorWrite.Unlock without i_rwsem"},
		{run: func(t *Task, w *SectorWrite) { w.Share(t); w.Alone(t) }, want: "kit.SectorWrite.Alone by a write that has i_rwsem"},
		{run: func(t *Task, w *SectorWrite) { w.Alone(t); w.Share(t) }, want: "kit.SectorWrite.Share by a write that has i_rwsem"},
		{run: func(t *Task, w *SectorWrite) { w.Share(t); w.Cache(t) }, want: "kit.SectorWrite.Cache by a write that has i_rwsem"},
		{run: func(t *Task, w *SectorWrite) { w.Cache(t); w.Share(t) }, want: "kit.SectorWrite.Share after Cache"},
		{run: func(t *Task, w *SectorWrite) { w.Share(t); w.Drain(t) }, want: "kit.SectorWrite.Drain with i_rwsem shared"},
		{run: func(t *Task, w *SectorWrite) { w.Alone(t); w.Submit(t); w.Drain(t) }, want: "kit.SectorWrite.Drain between Submit and Wait"},
		{run: func(t *Task, w *SectorWrite) { w.Alone(t); w.Submit(t); w.Submit(t) }, want: "kit.SectorWrite.Submit twice"},
		{side: sectorSide{beyond: true}, run: whole, want: "kit.SectorWrite.Submit of a write that ends beyond EOF"},
		{run: func(t *Task, w *SectorWrite) { w.Wait(t) }, want: "kit.SectorWrite.Wait, and nothing is in flight"},
		{run: func(t *Task, w *SectorWrite) { whole(t, w); w.Wait(t) }, want: "kit.SectorWrite.Wait, and nothing is in flight"},
		{run: func(t *Task, w *SectorWrite) { whole(t, w); w.Cache(t) }, want: "kit.SectorWrite.Cache after Submit"},
		{run: func(t *Task, w *SectorWrite) { w.Alone(t) }, want: "Write has returned with i_rwsem held"},
		{run: func(t *Task, w *SectorWrite) { w.Alone(t); w.Submit(t); w.Unlock(t) }, want: "Write has returned before the end of its write"},
		{run: func(t *Task, w *SectorWrite) { w.Alone(t); w.Unlock(t) }, want: "Write has returned, and the bytes went nowhere"},
	} {
		got := ""
		func() {
			defer func() {
				if p := recover(); p != nil {
					got = fmt.Sprint(p)
				}
			}()
			RunSectors(tt.run, &sched.Task{}, &tt.side)
			got = "=" + strings.Join(tt.side.calls, " ")
		}()
		if !strings.HasPrefix(got, tt.want) || tt.want[0] == '=' && got != tt.want {
			t.Errorf("have %q want %q", got, tt.want)
		}
	}
}
