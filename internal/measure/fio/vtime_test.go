package fio

import (
	"os"
	"sync"
	"testing"
	"time"

	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// virtual is a runtime with a clock of its own: one task runs at a time, Sleep is the only thing that
// passes time. With it the times a job measures can be compared with the numbers they must be.
type virtual struct {
	now   int64
	ready []*sched.Task
	sleep []sleeper // unsorted: a handful
	wake  map[*sched.Task]chan struct{}
	early map[*sched.Task]bool // unparked before it parked
	park  map[*sched.Task]bool
}

type sleeper struct {
	t  *sched.Task
	at int64
}

func newVirtual() (*virtual, *sched.Task) {
	v := &virtual{wake: map[*sched.Task]chan struct{}{}, early: map[*sched.Task]bool{}, park: map[*sched.Task]bool{}}
	t := sched.NewTaskOn(v, "main")
	v.wake[t] = make(chan struct{}, 1)
	return v, t
}

func (v *virtual) next() *sched.Task {
	if len(v.ready) > 0 {
		t := v.ready[0]
		v.ready = v.ready[1:]
		return t
	}
	best := -1
	for i, s := range v.sleep {
		if best < 0 || s.at < v.sleep[best].at {
			best = i
		}
	}
	if best < 0 {
		panic("every task is parked")
	}
	s := v.sleep[best]
	v.sleep = append(v.sleep[:best], v.sleep[best+1:]...)
	v.now = max(v.now, s.at)
	return s.t
}

func (v *virtual) away(t *sched.Task) {
	n := v.next()
	if n != t {
		c := v.wake[t]
		v.wake[n] <- struct{}{}
		<-c
	}
}

func (v *virtual) Go(_, c *sched.Task, f func(t *sched.Task)) {
	ch := make(chan struct{}, 1)
	v.wake[c] = ch
	v.ready = append(v.ready, c)
	go func() {
		<-ch
		f(c)
		v.wake[v.next()] <- struct{}{}
	}()
}

func (v *virtual) Point(t *sched.Task, p sched.Point) {}
func (v *virtual) Park(t *sched.Task, _ sched.ClassID) {
	if v.early[t] {
		delete(v.early, t)
		return
	}
	v.park[t] = true
	v.away(t)
}
func (v *virtual) Unpark(t *sched.Task) {
	if v.park[t] {
		delete(v.park, t)
		v.ready = append(v.ready, t)
		return
	}
	v.early[t] = true
}
func (v *virtual) Now() int64 { return v.now }
func (v *virtual) Sleep(t *sched.Task, d time.Duration) {
	v.sleep = append(v.sleep, sleeper{t, v.now + int64(d)})
	v.away(t)
}
func (v *virtual) Charge(t *sched.Task, d time.Duration) { v.Sleep(t, d) }

// memory is a Target that remembers what was asked of it.
type memory struct {
	mu     sync.Mutex
	data   []byte
	size   int64
	cost   time.Duration // of every transfer
	log    []ioRecord
	fsyncs int
	falloc []uint32
	fail   func(write bool, off int64) error
	quiet  bool // keep no log and no data: for benchmarks
}

type ioRecord struct {
	write bool
	off   int64
	n     int
	task  string
	at    int64
}

func (m *memory) record(t *sched.Task, write bool, p []byte, off int64) error {
	if m.cost > 0 {
		t.Sleep(m.cost)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		if err := m.fail(write, off); err != nil {
			return err
		}
	}
	m.log = append(m.log, ioRecord{write, off, len(p), t.Name, t.Now()})
	end := off + int64(len(p))
	if write {
		m.size = max(m.size, end)
		if n := int(end) - len(m.data); n > 0 {
			m.data = append(m.data, make([]byte, n)...)
		}
		copy(m.data[off:], p)
	} else if off < int64(len(m.data)) {
		copy(p, m.data[off:])
	}
	return nil
}

func (m *memory) ReadAt(t *sched.Task, p []byte, off int64) (int, error) {
	if m.quiet {
		return len(p), nil
	}
	if err := m.record(t, false, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (m *memory) WriteAt(t *sched.Task, p []byte, off int64) (int, error) {
	if m.quiet {
		return len(p), nil
	}
	if err := m.record(t, true, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (m *memory) Truncate(t *sched.Task, size int64) error { m.size = size; return nil }
func (m *memory) Fallocate(t *sched.Task, mode uint32, off, n int64) error {
	m.falloc = append(m.falloc, mode)
	if mode == 0 {
		m.size = max(m.size, off+n)
	}
	return nil
}
func (m *memory) Fsync(t *sched.Task) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fsyncs++
	return nil
}
func (m *memory) Size(*sched.Task) int64 { return m.size }

// asDirect gives memory the direct path.
type asDirect struct{ *memory }

func (m asDirect) ReadDirect(t *sched.Task, p []byte, off int64) (int, error) {
	return m.ReadAt(t, p, off)
}
func (m asDirect) WriteDirect(t *sched.Task, p []byte, off int64) (int, error) {
	return m.WriteAt(t, p, off)
}
