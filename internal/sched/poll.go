package sched

import "sync/atomic"

// Poller is a device that ends requests when a task looks for their completions. A task of the real
// runtime that waits for such a device looks by itself, and sleeps in the kernel meanwhile: no
// other task need be woken for it.
//
// Models the wait of io_uring_enter(2), in which the task that waits takes the completions.
type Poller interface {
	// Poll is the first part of the wait of t, which has inFlight requests in flight. It ends
	// requests until t is woken, or returns earlier, and then the device's own task ends them. It
	// calls BeginPoll before it sleeps.
	Poll(t *Task, inFlight *atomic.Int32)
	// Kick ends the sleep of a Poll, now or the next one. It never sleeps, and any lock may be
	// held.
	Kick()
}

// deviceWaits are the classes of the waits that poll. Written at start-up only.
var deviceWaits ClassSet

// WaitsForDevice says that in a wait of class c a task polls its device.
func WaitsForDevice(c ClassID) { deviceWaits.Add(c) }

// poll is what a task knows of its device.
type poll struct {
	at       *Poller                // the last that it submitted to
	inFlight atomic.Int32           // requests that it submitted and that have not ended
	asleep   atomic.Pointer[Poller] // at, while the task may sleep in Poll
}

// PollAt says that t, of the real runtime, submits to p, which it polls from now on. The count of
// t's requests that have not ended is p's to keep.
func (t *Task) PollAt(p *Poller) (inFlight *atomic.Int32) {
	k := t.poll.Load()
	if k == nil {
		k = new(poll)
		t.poll.Store(k)
	}
	k.at = p
	return &k.inFlight
}

// pollFor is the part of a wait of class c in which t polls.
func (t *Task) pollFor(c ClassID) {
	if k := t.poll.Load(); k != nil && deviceWaits.Has(c) {
		(*k.at).Poll(t, &k.inFlight)
	}
}

// kick lets t look whether it was woken, if it sleeps in Poll.
func (t *Task) kick() {
	if k := t.poll.Load(); k != nil {
		if p := k.asleep.Load(); p != nil {
			(*p).Kick()
		}
	}
}

// Woken reports whether t, which is in Poll, has been woken.
func (t *Task) Woken() bool { return len(t.park) > 0 }

// BeginPoll says that t is about to sleep in Poll, unless it reports false: then t has been woken.
// It first says so and then looks; Unpark first wakes and then looks, so that one of them sees the
// other.
func (t *Task) BeginPoll() bool {
	k := t.poll.Load()
	k.asleep.Store(k.at)
	if t.Woken() {
		t.EndPoll()
		return false
	}
	return true
}

// EndPoll ends the sleep that BeginPoll announced.
func (t *Task) EndPoll() { t.poll.Load().asleep.Store(nil) }
