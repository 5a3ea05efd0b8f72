package fio

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// simulate runs f as the first task of a simulated machine on which code costs nothing, so that the
// times a job measures can be compared with the numbers they must be: time passes by Sleep alone.
func simulate(t *testing.T, f func(t *sched.Task)) {
	t.Helper()
	if _, err := vtime.Run(vtime.Machine{CPUs: 64, Costs: &cost.Table{}, Checked: true}, f); err != nil {
		t.Fatal(err)
	}
}

// memory is a Target that remembers what was asked of it.
type memory struct {
	mu     sync.Mutex
	data   []byte
	size   int64
	cost   time.Duration // of every transfer
	log    []ioRecord
	fsyncs int
	synced atomic.Int64 // requests that asked to be durable
	falloc []uint32
	// dropped is what DropCache was asked to drop, and when.
	dropped []string
	fail    func(write bool, off int64) error
	quiet   bool // keep no log and no data: for benchmarks
	// short says how much of a Nowait request is done at once, -1 for EAGAIN.
	short func(p []byte) int
}

type ioRecord struct {
	write bool
	off   int64
	n     int
	task  string
	at    int64
}

// asked counts a request that asks to be durable.
func (m *memory) asked(f kiocb.Flags) {
	if f&kiocb.DSync != 0 {
		m.synced.Add(1)
	}
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

func (m *memory) DropCache(_ *sched.Task, off, n int64) {
	m.dropped = append(m.dropped, fmt.Sprintf("%d+%d after %d IOs", off, n, len(m.log)))
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

// asDirect gives memory the direct path, and requests that it queues.
type asDirect struct{ *memory }

func (m asDirect) ReadDirect(t *sched.Task, p []byte, off int64) (int, error) {
	return m.ReadAt(t, p, off)
}
func (m asDirect) WriteDirect(t *sched.Task, p []byte, off int64) (int, error) {
	return m.WriteAt(t, p, off)
}
func (m asDirect) Modes() kiocb.Modes { return kiocb.ModeNowait | kiocb.ModeBufferWAsync }
func (m asDirect) Ino() format.Ino    { return 257 }

func (m asDirect) ReadIter(t *sched.Task, rq kiocb.Request, p []byte) (int, error) {
	return m.iter(t, rq, p, m.ReadAt)
}

func (m asDirect) WriteIter(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error) {
	m.asked(rq.Flags)
	return m.iter(t, rq, src.Buf, m.WriteAt)
}

// iter queues direct requests. A buffered one with Nowait is done at once where short says how much
// of it, or all of it.
func (m asDirect) iter(t *sched.Task, rq kiocb.Request, p []byte, do func(*sched.Task, []byte, int64) (int, error)) (int, error) {
	if rq.Flags&kiocb.Direct != 0 && rq.Done != nil {
		t.Go(t.Name, func(t *sched.Task) {
			n, err := do(t, p, int64(rq.Pos))
			rq.Done.Complete(t, n, err)
		})
		return 0, errno.EIOCBQUEUED
	}
	if rq.Flags&kiocb.Nowait != 0 && m.short != nil {
		n := m.short(p)
		if n < 0 {
			return 0, errno.EAGAIN
		}
		p = p[:n]
	}
	return do(t, p, int64(rq.Pos))
}
