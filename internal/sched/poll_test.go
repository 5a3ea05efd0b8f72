package sched

import (
	"sync/atomic"
	"testing"
)

// napper is a device whose Poll is woken as a test says.
type napper struct {
	poll  func(t *Task)
	kicks int
}

func (n *napper) Poll(t *Task, _ *atomic.Int32) { n.poll(t) }
func (n *napper) Kick()                         { n.kicks++ }

// A task that is woken before it sleeps in Poll does not begin to; one that is woken while it
// sleeps is kicked, and no other is.
func TestPoll(t *testing.T) {
	const class = MaxClasses - 1
	WaitsForDevice(class)
	var n napper
	var p Poller = &n
	k := NewTask("k")
	k.PollAt(&p)
	polls := 0
	n.poll = func(k *Task) {
		if polls++; k.Woken() || !k.BeginPoll() {
			t.Error("woken by nobody")
		}
		k.EndPoll()
		k.Unpark()
		if !k.Woken() || k.BeginPoll() || n.kicks != 0 {
			t.Errorf("woken before the sleep: woken %v, %d kicks", k.Woken(), n.kicks)
		}
	}
	k.Park(class)
	n.poll = func(k *Task) {
		if polls++; !k.BeginPoll() {
			t.Error("woken by nobody")
		}
		k.Unpark()
		if n.kicks != 1 {
			t.Errorf("woken in the sleep: %d kicks, want 1", n.kicks)
		}
		k.EndPoll()
	}
	k.Park(class)
	k.Unpark()
	k.Park(class - 1) // no wait for a device
	if polls != 2 || n.kicks != 1 {
		t.Errorf("%d polls and %d kicks, want 2 and 1", polls, n.kicks)
	}
}
