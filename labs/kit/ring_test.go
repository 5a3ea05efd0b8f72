package kit

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"btrlab/internal/sched"
)

// ringRequest answers Try and Transfer with n and err.
type ringRequest struct {
	n    int
	err  error
	done int
}

func (r *ringRequest) Nowait() bool                      { return false }
func (r *ringRequest) Done() int                         { return r.done }
func (r *ringRequest) Left() int                         { return 8 - r.done }
func (r *ringRequest) Advance(n int)                     { r.done += n }
func (r *ringRequest) Try(*sched.Task) (int, error)      { return r.n, r.err }
func (r *ringRequest) Transfer(*sched.Task) (int, error) { return r.n, r.err }
func (r *ringRequest) Punt(*sched.Task)                  {}
func (r *ringRequest) Complete(*sched.Task, int, error)  {}

// TestRequestMisuse: a request that is used wrongly, or forgotten, is a panic in the words of its
// user.
func TestRequestMisuse(t *testing.T) {
	end := func(t *Task, q *Request) { q.Complete(t, 0, nil) }
	for _, tt := range []struct {
		worker bool
		err    error
		run    func(t *Task, q *Request)
		want   string
	}{
		{false, nil, end, ""},
		{true, nil, end, ""},
		{false, nil, func(t *Task, q *Request) { q.Punt(t) }, ""},
		{false, EIOCBQUEUED, func(t *Task, q *Request) { q.Try(t) }, ""},
		{true, EIOCBQUEUED, func(t *Task, q *Request) { q.Transfer(t) }, ""},
		{false, nil, func(*Task, *Request) {}, "Submit has returned, and the request has neither"},
		{true, nil, func(*Task, *Request) {}, "Work has returned, and the request has no completion"},
		{false, nil, func(t *Task, q *Request) { end(t, q); end(t, q) }, "kit.Request.Complete after Complete"},
		{false, nil, func(t *Task, q *Request) { q.Punt(t); end(t, q) }, "kit.Request.Complete after Punt"},
		{false, nil, func(t *Task, q *Request) { q.Punt(t); q.Advance(1) }, "kit.Request.Advance after Punt"},
		{false, EIOCBQUEUED, func(t *Task, q *Request) { q.Try(t); end(t, q) }, "kit.Request.Complete after EIOCBQUEUED"},
		{false, nil, func(t *Task, q *Request) { q.Transfer(t) }, "kit.Request.Transfer by the submitting task"},
		{true, nil, func(t *Task, q *Request) { q.Punt(t) }, "kit.Request.Punt by a worker"},
		{false, nil, func(_ *Task, q *Request) { q.Advance(9) }, "kit.Request.Advance by more than is left"},
		{false, nil, func(_ *Task, q *Request) { q.Try(nil) }, "kit.Request.Try without a task"},
		{true, io.EOF, func(t *Task, q *Request) {
			if _, err := q.Transfer(t); err != nil {
				panic(err)
			}
			end(t, q)
		}, ""},
	} {
		got := ""
		func() {
			defer func() {
				if p := recover(); p != nil {
					got = fmt.Sprint(p)
				}
			}()
			SubmitPath{Submit: tt.run, Work: tt.run}.Run(&sched.Task{}, &ringRequest{err: tt.err}, tt.worker)
		}()
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("have %q want %q", got, tt.want)
		}
	}
}
