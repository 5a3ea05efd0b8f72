// Package ring is lab 8: what a ring does with a request. See README.md.
package ring

import "btrlab/labs/kit"

// Submit is called by the task that submits q. It must not sleep.
//
// This one is slow, and right but for one kind of request: a worker gets all of them. Change it.
func Submit(t *kit.Task, q *kit.Request) {
	q.Punt(t)
}

// Work is called by a worker that got q. It may sleep.
func Work(t *kit.Task, q *kit.Request) {
	for q.Left() > 0 {
		n, err := q.Transfer(t)
		if err == kit.EIOCBQUEUED {
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
