package nowaitdirect

import (
	"errors"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
	"btrlab/labs/kit"
)

// fakeSteps answers as it is told and notes what is done with it.
type fakeSteps struct {
	busy           bool
	reserve, place error
	calls          []string
}

func (s *fakeSteps) note(call string)          { s.calls = append(s.calls, call) }
func (s *fakeSteps) TryRange(*sched.Task) bool { s.note("lock"); return !s.busy }
func (s *fakeSteps) LockRange(*sched.Task)     { s.note("lock") }
func (s *fakeSteps) UnlockRange(*sched.Task)   { s.note("unlock") }
func (s *fakeSteps) Release(*sched.Task)       { s.note("release") }
func (s *fakeSteps) Place(*sched.Task) error   { s.note("place"); return s.place }
func (s *fakeSteps) Start(*sched.Task)         { s.note("start") }
func (s *fakeSteps) Reserve(*sched.Task, bool) error {
	s.note("reserve")
	return s.reserve
}

// TestAlone: one extent at a time. What was locked is unlocked. More is in btrlab lab grade 7.
func TestAlone(t *testing.T) {
	s := &fakeSteps{}
	if err := kit.NowaitPath(Extent).Run(&sched.Task{}, s); err != nil {
		t.Fatalf("nothing is short: %v", err)
	}
	have := strings.Join(s.calls, " ")
	if strings.Count(have, "unlock") != 1 || !strings.Contains(have, "start") {
		t.Errorf("nothing is short: %s", have)
	}
	if errors.Is(kit.ENOSPC, errno.EDQUOT) {
		t.Error("ENOSPC is EDQUOT")
	}
}
