//go:build !portable

package blockdev

import (
	"testing"

	"btrlab/internal/hostio"
	"btrlab/internal/sched"
)

// slowKernel is a kernel that makes the move that a test says at the step that the test says, as
// another processor would. The begin and the end of each call of the ring's are steps.
type slowKernel struct {
	t       *testing.T
	sq      []uint32 // prepared
	pending []uint32 // with the device
	cq      []uint32
	silent  bool
	instant bool // the device ends a request as soon as it has it
	signals int
	lost    bool // a task went to sleep with nothing left to wake it

	step, at int // the move is made before step at
	move     func()
	stopped  chan struct{}
}

func (k *slowKernel) call() (end func()) {
	k.point()
	return k.point
}

func (k *slowKernel) point() {
	k.step++
	if k.step == k.at {
		k.made()
	}
}

// made makes the move, once.
func (k *slowKernel) made() {
	if m := k.move; m != nil {
		k.move = nil
		m()
	}
}

// complete ends the oldest request that the device has, if it has one.
func (k *slowKernel) complete() {
	if len(k.pending) > 0 {
		tag := k.pending[0]
		k.pending = k.pending[1:]
		k.post(tag)
	}
}

func (k *slowKernel) post(tag uint32) {
	k.cq = append(k.cq, tag)
	if !k.silent {
		k.signals++
	}
}

func (k *slowKernel) Prep(_ hostio.Op, _ int, _ []byte, _ int64, _ uint32, tag uint32) error {
	k.sq = append(k.sq, tag)
	return nil
}
func (k *slowKernel) PrepVec(hostio.Op, int, [][]byte, int64, uint32) error { panic("not used") }
func (k *slowKernel) PrepNop(tag uint32) error                              { return k.Prep(0, 0, nil, 0, 0, tag) }
func (k *slowKernel) Publish() uint32                                       { return uint32(len(k.sq)) }

func (k *slowKernel) Push(_ uint32, wait int) error {
	defer k.call()()
	for _, tag := range k.sq {
		if tag == kickTag {
			k.post(tag)
		} else {
			k.pending = append(k.pending, tag)
		}
	}
	k.sq = nil
	for k.instant && len(k.pending) > 0 {
		k.complete()
	}
	if wait > 0 && len(k.cq) == 0 {
		k.made() // asleep; now or never
		if len(k.cq) == 0 {
			k.lost = true
			k.cq = append(k.cq, kickTag)
		}
	}
	return nil
}

func (k *slowKernel) Ready() bool {
	defer k.call()()
	return len(k.cq) > 0
}

func (k *slowKernel) Notify(on bool) {
	defer k.call()()
	k.silent = !on
}

func (k *slowKernel) Wait() error  { <-k.stopped; return nil }
func (k *slowKernel) Wake() error  { close(k.stopped); return nil }
func (k *slowKernel) Close() error { return nil }

func (k *slowKernel) Next() (uint32, int32, bool) {
	defer k.call()()
	if len(k.cq) == 0 {
		return 0, 0, false
	}
	tag := k.cq[0]
	k.cq = k.cq[1:]
	return tag, 4096, true
}

// everyStep runs f with a move before each step in turn, and with one after the last. f ends with
// the ring's own task at its turn, if it had a signal; then no completion may be left.
func everyStep(t *testing.T, f func(k *slowKernel, d *File, task *sched.Task)) {
	for at := 1; ; at++ {
		k := &slowKernel{t: t, at: at, stopped: make(chan struct{})}
		d := reopened(t, 1<<20, Ring).(*File)
		d.ring.q.Close()
		d.ring = ringOn(d, k)
		f(k, d, soloist(d.ring))
		last := at > k.step
		k.made()
		if k.signals > 0 {
			d.ring.take(nil)
		}
		if k.lost {
			t.Errorf("step %d: a task sleeps and nothing will wake it", at)
		}
		if len(k.cq) > 0 {
			t.Errorf("step %d: %d completions that no task will see", at, len(k.cq))
		}
		if k.silent {
			t.Errorf("step %d: nobody looks, and completions send no signal", at)
		}
		for len(k.pending) > 0 {
			k.complete()
			d.ring.take(nil)
		}
		d.Close()
		if last {
			return
		}
	}
}

// soloist makes a task that has submitted the last bios of r.
func soloist(r *ring) *sched.Task {
	t := sched.NewTask("submitter")
	r.last = t.PollAt(&r.self)
	r.streak.Store(aloneAfter)
	return t
}

func readBio(end func(*sched.Task, *Bio)) *Bio {
	return &Bio{Op: OpRead, Vecs: [][]byte{make([]byte, 4096)}, EndIO: end}
}

func ends(*sched.Task, *Bio) {}

// A completion comes at any moment of a Submit by a task that is alone: while signals are off it
// sends none, and the submitter's last look must be after it has turned them on.
func TestRingCompletionInSubmit(t *testing.T) {
	everyStep(t, func(k *slowKernel, d *File, task *sched.Task) {
		d.Submit(task, readBio(ends))
		k.step = 0
		k.move = k.complete
		d.Submit(task, readBio(ends))
	})
}

// The same while the task waits.
func TestRingCompletionInPoll(t *testing.T) {
	everyStep(t, func(k *slowKernel, d *File, task *sched.Task) {
		d.Submit(task, readBio(func(*sched.Task, *Bio) { task.Unpark() }))
		k.step = 0
		k.move = k.complete
		task.Park(WaitClass.ID)
		if d.ring.busy.Load() != 0 {
			t.Error("woken by nobody")
		}
	})
}

// Something else than its bio wakes the task, at any moment of its wait, and then the waker looks
// for completions, among which is that of the kick: the kernel need not have begun the sleep.
func TestRingKick(t *testing.T) {
	everyStep(t, func(k *slowKernel, d *File, task *sched.Task) {
		d.Submit(task, readBio(ends))
		k.step = 0
		k.move = func() {
			task.Unpark()
			d.ring.take(nil)
		}
		task.Park(WaitClass.ID)
	})
}

// While one task ends bios another submits one, which completes at once: it leaves the completion
// to the first, which may have looked for the last time.
func TestRingCompletionInTake(t *testing.T) {
	everyStep(t, func(k *slowKernel, d *File, task *sched.Task) {
		d.Submit(task, readBio(ends))
		k.complete()
		k.signals = 0 // the first task had it
		k.step = 0
		k.move = func() {
			k.instant = true
			d.Submit(soloist(d.ring), readBio(ends))
		}
		d.ring.take(nil)
	})
}
