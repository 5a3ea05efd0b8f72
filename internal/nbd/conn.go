package nbd

import (
	"bufio"
	"io"
	"net"
	"sync"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// conn is a connection.
type conn struct {
	s          *Server
	nc         net.Conn
	r          *bufio.Reader
	structured bool // structured replies were asked for
	status     bool // the context base:allocation was
	flight     chan struct{}
	memory     budget
	requests   sync.WaitGroup
	writeMu    sync.Mutex // held while a reply is written
	heard      uint64     // of the server's failures; under the server's mu
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, r: bufio.NewReaderSize(nc, 64<<10), flight: make(chan struct{}, flightMax)}
	c.memory.init(memoryMax)
	return c
}

// serve returns nil when the client has said goodbye.
func (c *conn) serve() error {
	now := time.Now()
	err := c.limit(func() error { return c.nc.SetDeadline(now.Add(negotiateTime)) })
	if err != nil {
		return err
	}
	if err := c.negotiate(); err != nil {
		return err
	}
	if err := c.limit(func() error { return c.nc.SetDeadline(time.Time{}) }); err != nil {
		return err
	}
	defer c.requests.Wait()
	for {
		var h [requestLen]byte
		if _, err := io.ReadFull(c.r, h[:]); err != nil {
			return err
		}
		var q request
		if err := q.decode(&h); err != nil {
			return err
		}
		if q.cmd == cmdDisc {
			return nil
		}
		if err := c.begin(q); err != nil {
			return err
		}
	}
}

// limit runs set, which changes the deadlines, unless Shutdown has set its own.
func (c *conn) limit(set func() error) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.ending {
		return io.EOF
	}
	return set()
}

// begin reads what belongs to q, and starts it. It waits while too much is under way.
func (c *conn) begin(q request) error {
	err := q.check(c.s.disk.Size(), c.s.opt.ReadOnly)
	if err == nil && (q.cmd == cmdStatus && !c.status || q.cmd == cmdTrim && c.s.opt.NoTrim) {
		err = errno.EINVAL
	}
	if err != nil {
		if q.cmd == cmdWrite {
			if _, err := io.CopyN(io.Discard, c.r, int64(q.n)); err != nil {
				return err
			}
		}
		return c.reply(&q, err, nil)
	}
	var p *[]byte
	n := 0
	if q.moves() {
		n = int(q.n)
		c.memory.take(n)
		p = c.s.buffer(n)
	}
	done := func() {
		if p != nil {
			c.s.release(p)
			c.memory.give(n)
		}
	}
	if q.cmd == cmdWrite {
		if _, err := io.ReadFull(c.r, *p); err != nil {
			done()
			return err
		}
	}
	c.flight <- struct{}{}
	c.requests.Add(1)
	go func() {
		defer c.requests.Done()
		defer func() { <-c.flight }()
		defer done()
		t := c.s.tasks.Get().(*sched.Task)
		t.Doing(commandNames[q.cmd])
		data, err := c.do(t, &q, p)
		c.s.tasks.Put(t)
		if wireErrno(err) == wireEIO {
			c.s.warn(err)
		}
		if err := c.reply(&q, err, data); err != nil {
			c.nc.Close() // the reader learns of it
		}
	}()
	return nil
}

// do carries q out. data is what the reply has: of a read its bytes.
func (c *conn) do(t *sched.Task, q *request, p *[]byte) (data []byte, err error) {
	off, n, d := int64(q.off), int64(q.n), c.s.disk
	switch {
	case q.cmd == cmdFlush:
		return nil, c.flush(t)
	case n == 0: // nothing to do but what FUA says
	case q.cmd == cmdRead:
		return *p, d.ReadAt(t, *p, off)
	case q.cmd == cmdStatus:
		return c.extents(t, q)
	case q.cmd == cmdWrite:
		err = d.WriteAt(t, *p, off)
	case q.cmd == cmdTrim:
		err = d.Trim(t, off, n)
	case q.cmd == cmdZeroes:
		err = d.Zero(t, off, n, q.flags&cmdFlagNoHole == 0)
	}
	if err == nil && q.flags&cmdFlagFUA != 0 {
		err = c.flush(t)
	}
	return nil, err
}

// flush is the server's, and the error of another one that this connection has not heard of.
func (c *conn) flush(t *sched.Task) error {
	err := c.s.flush(t)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.heard < c.s.failures {
		c.heard = c.s.failures
		if err == nil {
			err = c.s.failure
		}
	}
	return err
}

// extentsMax bounds the runs of one answer.
const extentsMax = 4096

// extents is the answer to NBD_CMD_BLOCK_STATUS: the context, and runs of which two neighbours
// differ. It may end before the range does.
func (c *conn) extents(t *sched.Task, q *request) ([]byte, error) {
	most := extentsMax
	if q.flags&cmdFlagReqOne != 0 {
		most = 1
	}
	type run struct {
		n int64
		s State
	}
	var runs []run
	left := int64(q.n)
	err := c.s.disk.Extents(t, int64(q.off), left, func(n int64, s State) bool {
		n = min(n, left)
		if k := len(runs); k > 0 && runs[k-1].s == s {
			runs[k-1].n += n
		} else if k == most {
			return false
		} else {
			runs = append(runs, run{n, s})
		}
		left -= n
		return left > 0
	})
	if err != nil {
		return nil, err
	}
	p := be.AppendUint32(nil, metaID)
	for _, r := range runs {
		p = be.AppendUint32(be.AppendUint32(p, uint32(r.n)), uint32(r.s))
	}
	return p, nil
}

// reply answers q.
func (c *conn) reply(q *request, err error, data []byte) error {
	no := wireErrno(err)
	if no != 0 {
		data = nil
	}
	var h []byte
	if !c.structured {
		h = be.AppendUint32(make([]byte, 0, 16), magicSimple)
		h = be.AppendUint64(be.AppendUint32(h, no), q.cookie)
	} else {
		kind, n := uint16(chunkNone), len(data)
		switch {
		case no != 0:
			kind, n = chunkErrors, 6
		case q.cmd == cmdRead && q.n > 0:
			kind, n = chunkData, n+8
		case q.cmd == cmdStatus:
			kind = chunkStatus
		}
		h = be.AppendUint32(make([]byte, 0, 32), magicStructured)
		h = be.AppendUint16(be.AppendUint16(h, chunkDone), kind)
		h = be.AppendUint32(be.AppendUint64(h, q.cookie), uint32(n))
		switch kind {
		case chunkErrors:
			h = be.AppendUint16(be.AppendUint32(h, no), 0) // no text
		case chunkData:
			h = be.AppendUint64(h, q.off)
		}
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if len(data) == 0 {
		_, err = c.nc.Write(h)
		return err
	}
	b := net.Buffers{h, data}
	_, err = b.WriteTo(c.nc)
	return err
}

// pooledMax is the largest buffer that is kept for the next request, in bytes.
const pooledMax = 1 << 20

// buffer is n bytes of memory that hold anything.
func (s *Server) buffer(n int) *[]byte {
	p := s.buffers.Get().(*[]byte)
	if cap(*p) < n {
		*p = make([]byte, n)
	}
	*p = (*p)[:n]
	return p
}

func (s *Server) release(p *[]byte) {
	if cap(*p) <= pooledMax {
		s.buffers.Put(p)
	}
}

// budget is memory in bytes that requests share.
type budget struct {
	mu    sync.Mutex
	freed sync.Cond
	left  int
}

func (b *budget) init(n int) { b.left, b.freed.L = n, &b.mu }

// take waits until n bytes are left; n is at most what there is in all. One task takes.
func (b *budget) take(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.left < n {
		b.freed.Wait()
	}
	b.left -= n
}

func (b *budget) give(n int) {
	b.mu.Lock()
	b.left += n
	b.mu.Unlock()
	b.freed.Signal()
}
