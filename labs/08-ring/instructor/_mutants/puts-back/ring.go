// Package ring tries a request at once and gives to a worker what would sleep.
package ring

import (
	"errors"

	"btrlab/labs/kit"
)

// Submit is called by the task that submits q. It must not sleep.
func Submit(t *kit.Task, q *kit.Request) {
	n, err := q.Try(t)
	if errors.Is(err, kit.EIOCBQUEUED) {
		return // its own end completes it
	}
	q.Advance(n)
	again := n == 0 && errors.Is(err, kit.EAGAIN)
	short := n > 0 && q.Left() > 0
	if (again || short) && !q.Nowait() {
		old := *q
		q.Punt(t)
		*q = old // as if it was never given away
	}
	finish(t, q, err)
}

// Work is called by a worker that got q. It may sleep.
func Work(t *kit.Task, q *kit.Request) {
	for q.Left() > 0 {
		n, err := q.Transfer(t)
		if errors.Is(err, kit.EIOCBQUEUED) {
			return
		}
		q.Advance(n)
		if n == 0 {
			finish(t, q, err)
			return
		}
	}
	finish(t, q, nil)
}

// finish ends q: what has been moved counts, and an error only when that is nothing.
func finish(t *kit.Task, q *kit.Request, err error) {
	if q.Done() > 0 {
		err = nil
	}
	q.Complete(t, q.Done(), err)
}
