package ring

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
	"btrlab/labs/kit"
)

// fakeRequest is a request of 8 bytes that answers Try and Transfer by a list and notes what is
// done with it.
type fakeRequest struct {
	nowait  bool
	answers []answer
	done    int
	calls   []string
}

type answer struct {
	n   int
	err error
}

func (r *fakeRequest) Nowait() bool  { return r.nowait }
func (r *fakeRequest) Done() int     { return r.done }
func (r *fakeRequest) Left() int     { return 8 - r.done }
func (r *fakeRequest) Advance(n int) { r.done += n }

func (r *fakeRequest) next(call string) (int, error) {
	r.calls = append(r.calls, call)
	if len(r.answers) == 0 {
		return r.Left(), nil
	}
	a := r.answers[0]
	r.answers = r.answers[1:]
	return a.n, a.err
}

func (r *fakeRequest) Try(*sched.Task) (int, error)      { return r.next("try") }
func (r *fakeRequest) Transfer(*sched.Task) (int, error) { return r.next("transfer") }
func (r *fakeRequest) Punt(*sched.Task)                  { r.calls = append(r.calls, "punt") }

func (r *fakeRequest) Complete(_ *sched.Task, n int, err error) {
	if err != nil {
		r.calls = append(r.calls, err.Error())
		return
	}
	r.calls = append(r.calls, fmt.Sprint(n, " bytes"))
}

// TestAlone: requests by themselves, with a file that answers as it is told: the last call is what
// the caller is told. More is in btrlab lab grade 8.
func TestAlone(t *testing.T) {
	for _, tt := range []struct {
		name    string
		nowait  bool
		answers []answer // of Try first, if you call it; then of Transfer
		want    string
	}{
		{"all at once", false, nil, "8 bytes"},
		{"one part after the other", false, []answer{{3, nil}, {3, nil}}, "8 bytes"},
		{"no space after a part", false, []answer{{3, nil}, {0, errno.ENOSPC}}, "3 bytes"},
		{"no space", false, []answer{{0, errno.ENOSPC}, {0, errno.ENOSPC}}, errno.ENOSPC.Error()},
		{"nothing moves", false, []answer{{3, nil}, {0, nil}}, "3 bytes"},
		{"queued", false, []answer{{0, kit.EIOCBQUEUED}}, "none"},
	} {
		task := &sched.Task{}
		r := &fakeRequest{nowait: tt.nowait, answers: tt.answers}
		p := kit.SubmitPath{Submit: Submit, Work: Work}
		p.Run(task, r, false)
		if slices.Contains(r.calls, "punt") {
			p.Run(task, r, true)
		}
		got := r.calls[len(r.calls)-1]
		if got == "try" || got == "transfer" {
			got = "none"
		}
		if got != tt.want {
			t.Errorf("%s: the caller is told %s, want %s: %v", tt.name, got, tt.want, r.calls)
		}
	}
	if !errors.Is(kit.EAGAIN, errno.EAGAIN) {
		t.Error("EAGAIN is another one")
	}
}
