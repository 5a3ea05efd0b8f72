package dm

import (
	"math"
	"sync/atomic"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

var (
	queueClass = lockdep.NewClass("device_queue")
	fullClass  = lockdep.NewClass("device_full")
	idleClass  = lockdep.NewClass("device_idle")
)

const (
	// wakeLateNs is how late a sleep of the real runtime ends; the timer task sleeps that much
	// less.
	wakeLateNs = 60_000
	// napNs bounds a sleep, because a request may arrive that ends sooner than all others.
	napNs = 200_000
	// batchMax bounds the completions between two looks at the queue.
	batchMax = 64
)

// Model is a device with the latency of its Params. The bytes move when a bio is submitted, on the
// submitting task; its end comes later, on the model's timer task, in order of the model's time.
type Model struct {
	dev   blockdev.Device
	depth int

	mu     lock.Mutex // leaf; protects queue, heap, link, seq, inside and free
	room   lock.Cond  // inside fell below depth
	queue  *queue
	heap   requests // by the time of their end, or of their transfer's begin with Shared
	link   *link    // nil without Shared
	seq    uint64
	inside int
	full   bool // inside reached depth and is not below reopen yet
	reopen int
	held   map[*sched.Task][]*request // begin when their task sleeps
	nap    bool                       // the timer task is in ParkFor
	free   []*request

	timer   *sched.Task
	idle    lock.WaitQueue // the timer task waits here for a request
	waiting atomic.Int64   // len(heap) and those in link
	closing atomic.Bool
	irqs    []*interrupts // of the members, in the simulated runtime
	ends    []*ending     // the queues, in the simulated runtime
	endOf   map[*sched.Task]int
	nextIRQ int
}

type request struct {
	m     *Model
	bio   *blockdev.Bio
	inner blockdev.Bio
	due   int64
	seq   uint64
	end   int // of ends
}

// New puts p's latency over dev. Its timer task is of t's runtime and ends with Close.
func New(t *sched.Task, dev blockdev.Device, p Params) *Model {
	if err := p.check(); err != nil {
		panic(err)
	}
	m := &Model{dev: dev, depth: p.Depth, reopen: p.Depth, queue: newQueue(p, dev.Size())}
	if p.Shared {
		m.link = &link{rate: p.BytesPerSec}
	}
	if p.Plug && t.Simulator() != nil {
		m.reopen = max(p.Depth*3/4, 1)
		m.held = map[*sched.Task][]*request{}
	}
	m.mu.Init(queueClass)
	m.room.Init(&m.mu, fullClass)
	m.idle.Init(idleClass)
	if p.Interrupt > 0 && t.Simulator() != nil {
		for range p.Disks {
			x := &interrupts{m: m, each: p.Interrupt}
			x.idle.Init(idleClass)
			x.task = t.Go("irq/"+p.Name, x.run)
			m.irqs = append(m.irqs, x)
		}
	}
	if p.Queues > 1 && t.Simulator() != nil {
		m.endOf = map[*sched.Task]int{}
		for range p.Queues {
			x := &ending{m: m}
			x.idle.Init(idleClass)
			x.task = t.Go("irq/"+p.Name, x.run)
			m.ends = append(m.ends, x)
		}
	}
	m.timer = t.Go("device/"+p.Name, m.run)
	return m
}

// Name is the device's under the model.
func (m *Model) Name() string { return m.dev.Name() }

// Under is the device under the model.
func (m *Model) Under() blockdev.Device { return m.dev }

// Forget passes it on to the device below, and takes no time.
func (m *Model) Forget(off, n int64) {
	if f, ok := m.dev.(blockdev.Forgetter); ok {
		f.Forget(off, n)
	}
}

// Discard passes it on to the device below, and takes no time.
func (m *Model) Discard(t *sched.Task, off, n int64) error {
	return blockdev.Discard(t, m.dev, off, n)
}

// Size is in bytes.
func (m *Model) Size() int64 { return m.dev.Size() }

// Params returns the parameters of the model.
func (m *Model) Params() Params { return m.queue.p }

// Close ends the timer task and closes the device below.
func (m *Model) Close() error {
	m.closing.Store(true)
	m.idle.Wake(m.timer)
	for _, x := range m.irqs {
		x.idle.Wake(x.task)
	}
	for _, x := range m.ends {
		x.idle.Wake(x.task)
	}
	return m.dev.Close()
}

// Submit moves b's bytes and queues its end. It sleeps while the device is full, except on the
// timer task: an end that submits again must not wait for the ends that follow it. A task of Queues
// may wait: the timer task makes room.
func (m *Model) Submit(t *sched.Task, b *blockdev.Bio) {
	m.mu.Lock(t)
	if t != m.timer {
		for m.full || m.inside >= m.depth {
			m.full = true
			m.room.Wait(t)
		}
	}
	m.inside++
	var r *request
	if n := len(m.free); n > 0 {
		r, m.free = m.free[n-1], m.free[:n-1]
	} else {
		r = &request{m: m}
	}
	if len(m.ends) > 0 {
		r.end = m.queueOf(t)
	}
	m.mu.Unlock(t)
	r.bio = b
	r.inner = blockdev.Bio{Op: b.Op, Off: b.Off, Vecs: b.Vecs, EndIO: endInner, Private: r, DMA: true}
	m.dev.Submit(t, &r.inner)
}

// endInner begins a request whose bytes have moved, or lets its task hold it back.
func endInner(t *sched.Task, b *blockdev.Bio) {
	r := b.Private.(*request)
	m := r.m
	if m.held != nil && b.Op == blockdev.OpWrite && t.HoldFor(m) {
		m.held[t] = append(m.held[t], r)
		return
	}
	m.begin(t, r)
}

// Unplug begins the requests that t has held back. Models raid5_unplug().
func (m *Model) Unplug(t *sched.Task) {
	list := m.held[t]
	delete(m.held, t)
	m.begin(t, list...)
}

// begin gives requests whose bytes have moved their time.
func (m *Model) begin(t *sched.Task, list ...*request) {
	m.mu.Lock(t)
	now := t.Now()
	first := false
	for _, r := range list {
		b := &r.inner
		r.due = now
		if b.Err == nil {
			r.due = m.queue.end(now, b.Op, b.Off, int64(b.Len()))
		}
		m.seq++
		r.seq = m.seq
		m.heap.push(r)
		first = first || m.nap && m.heap[0] == r
	}
	m.waiting.Add(int64(len(list)))
	if first {
		m.nap = false
	}
	m.mu.Unlock(t)
	if first {
		m.timer.Unpark()
	}
	m.idle.Wake(t)
}

// run is the timer task: it ends every bio at its time.
func (m *Model) run(t *sched.Task) {
	t.Doing("device")
	late := int64(0)
	if t.Runtime() == nil {
		late = wakeLateNs
	}
	var batch [batchMax]*request
	some := func() bool { return m.waiting.Load() > 0 || m.closing.Load() }
	for {
		m.idle.Wait(t, some)
		m.mu.Lock(t)
		if m.waiting.Load() == 0 {
			m.mu.Unlock(t)
			if m.closing.Load() {
				return
			}
			continue
		}
		now := t.Now() + late/2
		n := 0
		for n < batchMax {
			r := m.ended(now)
			if r == nil {
				break
			}
			batch[n] = r
			n++
		}
		m.waiting.Add(int64(-n))
		if n == 0 {
			d := m.next() - now
			if sim := t.Simulator(); sim != nil {
				// endInner wakes us when a request comes that ends sooner.
				m.nap = true
				m.mu.Unlock(t)
				sim.ParkFor(t, idleClass.ID, time.Duration(d))
				m.nap = false
				continue
			}
			d = min(d, napNs) - late/2
			m.mu.Unlock(t)
			t.Sleep(time.Duration(max(d, 1)))
			continue
		}
		if m.inside -= n; m.inside < m.reopen {
			m.full = false
			m.room.Broadcast(t)
		}
		if len(m.ends) > 0 {
			m.handOver(t, batch[:n])
			continue
		}
		m.mu.Unlock(t)
		m.finish(t, batch[:n])
	}
}

// finish ends requests that have left the device.
func (m *Model) finish(t *sched.Task, list []*request) {
	for _, r := range list {
		b := r.bio
		if b.Op == blockdev.OpWrite {
			m.handle(t)
		}
		b.Err = r.inner.Err
		r.bio, r.inner = nil, blockdev.Bio{}
		b.EndIO(t, b)
	}
	m.mu.Lock(t)
	m.free = append(m.free, list...)
	m.mu.Unlock(t)
}

// ending is the task of one of the queues of Params.Queues.
type ending struct {
	m       *Model
	task    *sched.Task
	idle    lock.WaitQueue
	list    []*request   // protected by m.mu
	pending atomic.Int64 // len(list)
}

// queueOf is the queue of a submitter. m.mu is held.
func (m *Model) queueOf(t *sched.Task) int {
	n, ok := m.endOf[t]
	if !ok {
		n = len(m.endOf) % len(m.ends)
		m.endOf[t] = n
	}
	return n
}

// handOver gives requests to their queues. m.mu is held, and let go.
func (m *Model) handOver(t *sched.Task, batch []*request) {
	for _, r := range batch {
		x := m.ends[r.end]
		x.list = append(x.list, r)
		x.pending.Add(1)
	}
	m.mu.Unlock(t)
	for _, x := range m.ends {
		if x.pending.Load() > 0 {
			x.idle.Wake(t)
		}
	}
}

func (x *ending) run(t *sched.Task) {
	t.Doing("interrupt")
	var batch [batchMax]*request
	for {
		x.idle.Wait(t, func() bool { return x.pending.Load() > 0 || x.m.closing.Load() })
		x.m.mu.Lock(t)
		n := copy(batch[:], x.list)
		x.list = x.list[:copy(x.list, x.list[n:])]
		x.pending.Add(int64(-n))
		x.m.mu.Unlock(t)
		if n == 0 {
			return // it closes
		}
		x.m.finish(t, batch[:n])
	}
}

// handle does the array's own work for a write.
func (m *Model) handle(t *sched.Task) {
	if m.queue.p.Handle > 0 {
		t.Charge(m.queue.p.Handle)
	}
	if len(m.irqs) == 0 {
		return
	}
	requests := int64(1)
	if m.queue.p.Parity {
		requests = 4 // reads and writes of two members
	}
	x := m.irqs[m.nextIRQ]
	m.nextIRQ = (m.nextIRQ + 1) % len(m.irqs)
	if x.pending.Add(requests) == requests && x.asleep.Load() {
		x.idle.Wake(t)
	}
}

// interrupts are those of one member. They come together: a drive reports what has ended in the
// last coalesceNs at once.
type interrupts struct {
	m       *Model
	task    *sched.Task
	each    time.Duration
	idle    lock.WaitQueue
	pending atomic.Int64
	asleep  atomic.Bool
}

const coalesceNs = 100_000

func (x *interrupts) run(t *sched.Task) {
	t.Doing("interrupt")
	sim := t.Simulator()
	for !x.m.closing.Load() {
		if n := x.pending.Swap(0); n > 0 {
			t.Charge(time.Duration(n) * x.each)
			sim.ParkFor(t, idleClass.ID, coalesceNs)
			continue
		}
		x.asleep.Store(true)
		x.idle.Wait(t, func() bool { return x.pending.Load() > 0 || x.m.closing.Load() })
		x.asleep.Store(false)
	}
}

// ended takes the request that was the first to end, at now or before, and nil if there is none.
// m.mu is held.
func (m *Model) ended(now int64) *request {
	for {
		at := m.next()
		if at > now {
			return nil
		}
		if m.link != nil && m.link.next() == at {
			return m.link.take()
		}
		r := m.heap.pop()
		if m.link == nil || r.inner.Err != nil {
			return r
		}
		m.link.join(r)
	}
}

// next is when a request leaves heap or link; the largest number when there is none. m.mu is held.
func (m *Model) next() int64 {
	at := int64(math.MaxInt64)
	if len(m.heap) > 0 {
		at = m.heap[0].due
	}
	if m.link != nil {
		at = min(at, m.link.next())
	}
	return at
}
