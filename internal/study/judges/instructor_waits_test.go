package judges

import (
	"strings"
	"testing"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
	"btrlab/labs/kit"
)

// TestWaitStarter: lab 6's starter waits with every lock held: no row gives a point.
func TestWaitStarter(t *testing.T) {
	for _, r := range Judge(starters[6], &sandbox.Run{}) {
		if r.Pass || r.Score != 0 || !strings.HasPrefix(r.Name, "hold-") && r.Result != NoAnswer && !r.Violated {
			t.Errorf("%s: %v, %s", r.Name, r.Pass, r.Result)
		}
	}
}

// waiting is lab 6's solution with what is left out of it.
type waiting struct {
	noRound  bool // of waits before i_rwsem
	noStable bool // look, with the pages locked
	noLook   bool // for ordered extents, with the range locked
	noDrain  bool // with i_rwsem held
	early    bool // throttled with i_rwsem held
	again    bool // everything is let go for an ordered extent
	once     bool // an if for the for
}

func (x waiting) write(t *kit.Task, w *kit.WaitedWrite) error {
	start, end := w.Range()
	round := func() {
		w.WaitWriteback(t, start, end)
		w.WaitOrdered(t, start, end)
		w.Drain(t)
	}
	if !x.noRound && w.Inside(t) {
		round()
	}
	if err := w.Reserve(t); err != nil {
		return err
	}
	if err := w.Lock(t); err != nil {
		return err
	}
	for looked := false; ; looked = true {
		if !x.noDrain {
			w.Drain(t)
		}
		if err := w.LockPages(t); err != nil {
			w.Unlock(t)
			return err
		}
		if !x.noStable {
			w.WaitWriteback(t, start, end)
		}
		if w.LockRange(t); x.noLook || x.once && looked || !w.Ordered(t) {
			break
		}
		w.UnlockRange(t)
		w.UnlockPages(t)
		if !x.again {
			w.WaitOrdered(t, start, end)
			continue
		}
		w.Unlock(t)
		round()
		if err := w.Lock(t); err != nil {
			return err
		}
	}
	w.Copy(t)
	w.UnlockPages(t)
	if x.early {
		w.Throttle(t)
	}
	w.Unlock(t)
	if !x.early {
		w.Throttle(t)
	}
	return nil
}

// TestWaitJudged: a write that waits before i_rwsem and looks again has every row. Without a look
// the row that is about it is violated, by a schedule of which no part can be left out; without the
// first round, or throttled too early, all is kept and i_rwsem is held for long.
func TestWaitJudged(t *testing.T) {
	need.Long(t)
	for name, tt := range map[string]struct {
		w    waiting
		kind map[string]explore.Kind // by row
		slow string                  // rows that fail for their time
	}{
		"right": {},
		// an ordered extent is there for as long as its pages are under writeback
		"no stable": {w: waiting{noStable: true}},
		"no look":   {w: waiting{noLook: true}, kind: map[string]explore.Kind{"wait-stable": explore.KindPanic, "wait-ordered": explore.KindPanic, "wait-next": explore.KindPanic}},
		"once":      {w: waiting{once: true}, kind: map[string]explore.Kind{"wait-next": explore.KindPanic}},
		"neither":   {w: waiting{noStable: true, noLook: true}, kind: map[string]explore.Kind{"wait-stable": explore.KindPanic}},
		"no drain":  {w: waiting{noDrain: true}, kind: map[string]explore.Kind{"wait-direct": explore.KindOracle}},
		"again":     {w: waiting{again: true}, kind: map[string]explore.Kind{"wait-again": explore.KindLivelock}},
		"no round":  {w: waiting{noRound: true}, slow: "hold-stable"},
		"early":     {w: waiting{early: true}, slow: "hold-throttle"},
	} {
		only := "" // row
		if testing.Short() {
			switch name {
			case "right", "neither", "again", "once":
			case "no round":
				only = tt.slow
			default:
				continue
			}
		}
		s := Waits{Write: tt.w.write}
		for _, r := range replayed(s, only, "") {
			want, broken := tt.kind[r.Name]
			switch {
			case r.Result == NoAnswer:
			case broken && (r.Kind != want || !r.Violated):
				t.Errorf("%s, %s: have %v %q want %s", name, r.Name, r.Violated, r.Result, want)
			case broken && r.Schedule != "":
				shorter := r.Schedule[:max(0, strings.LastIndexByte(r.Schedule, ','))]
				if x := replayed(s, r.Name, shorter)[0]; !x.Pass {
					t.Errorf("%s, %s: schedule %q is enough, have %q", name, r.Name, shorter, r.Schedule)
				}
			case broken || r.Name == tt.slow:
				if r.Pass {
					t.Errorf("%s, %s: passes, %s", name, r.Name, r.Result)
				}
			case tt.kind == nil && !r.Pass:
				t.Errorf("%s, %s: %s", name, r.Name, r.Result)
			}
			if testing.Verbose() && !r.Pass {
				t.Logf("%s, %s: %q %s", name, r.Name, r.Schedule, r.Result)
			}
		}
	}
}
