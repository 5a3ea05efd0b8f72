package fio

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// queueMemory is a memory whose queue ends requests in any order, some of them in two parts.
type queueMemory struct {
	memory
	short, bad bool
	depth, max int // what was opened, and the most in flight
	open       int
}

func (m *queueMemory) OpenQueue(_ *sched.Task, _ Engine, depth int, _ bool) (Queue, error) {
	m.depth, m.open = depth, m.open+1
	return &memoryQueue{m: m, r: rand.New(rand.NewPCG(1, 1))}, nil
}

type prepared struct {
	dir int
	p   []byte
	off int64
	tag uint32
}

type memoryQueue struct {
	m           *queueMemory
	r           *rand.Rand
	prep, fly   []prepared
	ended       []prepared
	submissions int
}

func (q *memoryQueue) Prep(_ *sched.Task, _, dir int, p []byte, off int64, tag uint32) error {
	q.prep = append(q.prep, prepared{dir: dir, p: p, off: off, tag: tag})
	return nil
}

func (q *memoryQueue) Submit(t *sched.Task) error {
	t.Sleep(2000)
	q.submissions++
	q.fly, q.prep = append(q.fly, q.prep...), nil
	q.m.max = max(q.m.max, len(q.fly)+len(q.ended))
	return nil
}

func (q *memoryQueue) Wait(t *sched.Task, n int) (looked bool, err error) {
	for looked = true; len(q.ended) < n; looked = false {
		if len(q.fly) == 0 {
			return false, errors.New("a wait for what is not in flight")
		}
		i := q.r.IntN(len(q.fly))
		q.ended, q.fly = append(q.ended, q.fly[i]), append(q.fly[:i], q.fly[i+1:]...)
		t.Sleep(10_000)
	}
	return looked, nil
}

func (q *memoryQueue) Reap(t *sched.Task) (uint32, int, error, bool) {
	if len(q.ended) == 0 {
		return 0, 0, nil, false
	}
	e := q.ended[0]
	q.ended = q.ended[1:]
	p := e.p
	if q.m.bad && e.dir == DirWrite && q.submissions > 5 {
		return e.tag, 0, errno.EIO, true
	}
	if q.m.short && len(p) > 512 && q.r.IntN(3) == 0 {
		p = p[:512]
	}
	if e.dir == DirWrite {
		n, err := q.m.WriteAt(t, p, e.off)
		return e.tag, n, err, true
	}
	return e.tag, copy(p, q.m.data[min(e.off, int64(len(q.m.data))):]), nil, true
}

func (q *memoryQueue) Close(*sched.Task) error {
	if len(q.fly)+len(q.ended)+len(q.prep) > 0 {
		return errors.New("closed with requests in flight")
	}
	q.m.open--
	return nil
}

// noter is a Stamper that knows what is in flight.
type noter struct {
	t    *testing.T
	fly  map[uint64][]byte
	n    uint64
	done int
}

func (s *noter) Stamp(p []byte, off int64) uint64 {
	for i := range p {
		p[i] = byte(off>>12) ^ byte(i)
	}
	s.n++
	s.fly[s.n] = p
	return s.n
}

func (s *noter) Done(write uint64, start, end int64, err error) {
	if s.fly[write] == nil || end < start {
		s.t.Errorf("write %d ended, from %d to %d, and was not in flight", write, start, end)
	}
	delete(s.fly, write)
	s.done++
}

// A target with queues has iodepth requests in flight, in buffers of their own; what ends short
// goes on; every write that was stamped ends once, whatever the order, and its bytes are in the
// file.
func TestQueueDepth(t *testing.T) {
	for _, engine := range []string{"libaio", "io_uring"} {
		for _, short := range []bool{false, true} {
			m := &queueMemory{short: short}
			s := &noter{t: t, fly: map[uint64][]byte{}}
			r := runJob(t, "[j]\nrw=randwrite\nsize=1m\niodepth=8\nioengine="+engine, m,
				func(o *Options) { o.Stamper = func(*Job, int) Stamper { return s } })
			noError(t, r)
			j := r.Jobs[0]
			if j.Write.IOs != 256 || m.depth != 8 || m.max != 8 || m.open != 0 || s.done != 256 || len(s.fly) != 0 {
				t.Errorf("%s: %d writes of 256, depth %d, at most %d in flight, %d queues open, %d stamps ended", engine, j.Write.IOs, m.depth, m.max, m.open, s.done)
			}
			if (j.Write.Short > 0) != short {
				t.Errorf("%d short transfers", j.Write.Short)
			}
			for off := 0; off < 1<<20; off += 4096 {
				want := bytes.Repeat([]byte{byte(off >> 12)}, 4096)
				for i := range want {
					want[i] ^= byte(i)
				}
				if !bytes.Equal(m.data[off:off+4096], want) {
					t.Fatalf("block at %d is not what was stamped for it", off)
				}
			}
			if d := &j.Write; d.Slat.Min() != 2000 || d.Clat.N() != 256 || d.Lat.Max() < d.Clat.Max() || d.Clat.Min() < 10_000 {
				t.Errorf("slat from %d, %d clats from %d", d.Slat.Min(), d.Clat.N(), d.Clat.Min())
			}
			depth := uint64(0)
			for _, n := range j.Depth {
				depth += n
			}
			if depth != 256 || j.Depth[3] < 240 {
				t.Errorf("depths %v", j.Depth)
			}
		}
	}
}

// What was in flight when one request failed ends before the queue is closed, and the job says the
// error.
func TestQueueFails(t *testing.T) {
	m := &queueMemory{bad: true}
	r := runJob(t, "[j]\nrw=write\nsize=1m\niodepth=8\nioengine=io_uring", m)
	if _, text, no := r.FirstError(); no != int(errno.EIO) || m.open != 0 {
		t.Errorf("have %q (%d) and %d open queues, want EIO and none", text, no, m.open)
	}
}

// The end of the file is an error that says so.
func TestQueueEnds(t *testing.T) {
	m := &queueMemory{}
	m.size, m.data = 1<<20, make([]byte, 1<<20)
	noError(t, runJob(t, "[j]\nrw=read\nsize=1m\niodepth=4\nioengine=libaio", m))
	m.data = m.data[:1<<19]
	if _, text, _ := runJob(t, "[j]\nrw=read\nsize=1m\niodepth=4\nioengine=libaio", m).FirstError(); !strings.Contains(text, "end of file") {
		t.Errorf("have %q, want the end of the file", text)
	}
}
