package experiment

import (
	"math"
	"strings"
	"testing"

	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
)

// TestWaitsOfAllRounds: the share of a lock is that of the time of all tasks in all rounds. A table
// that had the waits of the last round only, or of the last job, would call a lock idle that
// writers stood at in the round before.
func TestWaitsOfAllRounds(t *testing.T) {
	row := &rowSum{Variant: Variant{Name: "a"}, clat: &stats.Hist{}}
	other := &rowSum{Variant: Variant{Name: "b"}, clat: &stats.Hist{}}
	opt := &Options{}
	job := func(ns int64, waits ...stats.Wait) *stats.Job { return &stats.Job{RunNs: ns, Waits: waits} }
	row.add(&run{opt: opt, round: 1}, &stats.Run{Jobs: []*stats.Job{
		job(100, stats.Wait{Class: "i_rwsem", Nanos: 60, Count: 1}, stats.Wait{Class: "page", Nanos: 10, Count: 1}),
		job(100, stats.Wait{Class: "i_rwsem", Nanos: 20, Count: 2}),
	}}, &findings{}, nil)
	row.add(&run{opt: opt, round: 2}, &stats.Run{Jobs: []*stats.Job{
		job(200, stats.Wait{Class: "tree", Nanos: 40, Count: 1}, stats.Wait{Class: "page", Nanos: 0, Count: 1}),
	}}, &findings{}, nil)
	other.add(&run{opt: opt, round: 1}, &stats.Run{Jobs: []*stats.Job{job(100)}}, &findings{}, nil)
	var r Result
	r.finish([]*rowSum{row, other}, nil)
	for class, want := range map[string]float64{"i_rwsem": 0.2, "page": 0.025, "tree": 0.1} {
		if have := r.Rows[0].Waits[class]; math.Abs(have-want) > 1e-9 {
			t.Errorf("%s: have %g of the time want %g", class, have, want)
		}
	}
	if len(r.Rows[0].Waits) != 3 || r.Rows[1].Waits == nil || len(r.Rows[1].Waits) != 0 {
		t.Errorf("waits %v and %v", r.Rows[0].Waits, r.Rows[1].Waits)
	}
}

// refusals is a lab whose sessions are refused more often from run to run.
type refusals struct {
	fakeLab
	runs int
}

type refused struct {
	*fakeSession
	n uint64
}

func (s refused) Again() (again, tried uint64) { return s.n, 10 }

func (l *refusals) Open(t *sched.Task, name string) (Session, error) {
	s, err := l.fakeLab.Open(t, name)
	if err != nil {
		return nil, err
	}
	l.runs++
	return refused{s.(*fakeSession), uint64(l.runs)}, nil
}

func (l *refusals) OpenRaw(t *sched.Task, name string) (Session, error) {
	s, err := l.fakeLab.Open(t, name)
	if err != nil {
		return nil, err
	}
	return refused{s.(*fakeSession), 10}, nil // of the filling and the reading back nothing counts
}

func (l *refusals) Check(*sched.Task) ([]string, error) { return nil, ErrUnchecked }

// TestRefusalsOfAllRounds: the share of requests that answered EAGAIN is that of all runs of the
// row, and of nothing else.
func TestRefusalsOfAllRounds(t *testing.T) {
	jf, err := fio.Parse("j", strings.NewReader("[j]\nrw=randwrite\nnorandommap\nsize=64k\nnumber_ios=50\nio_size=1g"))
	if err != nil {
		t.Fatal(err)
	}
	l := &refusals{}
	r, err := Compare(sched.NewTask("test"), &fakeLab{}, Options{Job: jf, Policies: []string{"locked"}, Rounds: 3, Others: []Other{{Name: "kernel", Rig: l}}})
	if err != nil {
		t.Fatal(err)
	}
	if l.runs != 3 || r.Rows[1].Again == nil || *r.Rows[1].Again != (1+2+3)/30.0 {
		t.Errorf("%d runs, share %v want 0.2", l.runs, r.Rows[1].Again)
	}
}
