package nbd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"btrlab/internal/sched"
)

// memDisk is a disk in memory, of blocks that are holes, zeros or data.
type memDisk struct {
	mu        sync.Mutex
	data      []byte
	states    []State // of each block
	flushes   int
	flushErrs []error       // what the next flushes come to
	err       error         // what every other operation comes to
	entered   chan struct{} // if set, a flush says that it has begun
	hold      chan struct{} // if set, a flush waits for it
	readHold  chan struct{} // if set, a read waits for it
	busy      int           // bytes of the reads under way
	peak      int           // the most that they were
}

const memBlock = 512

func newMemDisk(size int) *memDisk {
	d := &memDisk{data: make([]byte, size), states: make([]State, (size+memBlock-1)/memBlock)}
	for i := range d.states {
		d.states[i] = Hole | Zeros
	}
	return d
}

func (d *memDisk) Size() int64 { return int64(len(d.data)) }

func (d *memDisk) ReadAt(_ *sched.Task, p []byte, off int64) error {
	d.mu.Lock()
	d.busy += len(p)
	d.peak = max(d.peak, d.busy)
	d.mu.Unlock()
	if d.readHold != nil {
		<-d.readHold
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy -= len(p)
	copy(p, d.data[off:off+int64(len(p))])
	return d.err
}

func (d *memDisk) mark(off, n int64, s State) {
	for i := off / memBlock; i*memBlock < off+n; i++ {
		d.states[i] = s
	}
}

func (d *memDisk) WriteAt(_ *sched.Task, p []byte, off int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	d.mark(off, int64(len(p)), 0)
	copy(d.data[off:off+int64(len(p))], p)
	return nil
}

func (d *memDisk) Flush(*sched.Task) error {
	if d.entered != nil {
		d.entered <- struct{}{}
	}
	if d.hold != nil {
		<-d.hold
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flushes++
	if len(d.flushErrs) == 0 {
		return nil
	}
	err := d.flushErrs[0]
	d.flushErrs = d.flushErrs[1:]
	return err
}

func (d *memDisk) Trim(t *sched.Task, off, n int64) error { return d.Zero(t, off, n, true) }

func (d *memDisk) Zero(_ *sched.Task, off, n int64, hole bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	clear(d.data[off : off+n])
	s := Zeros
	if hole {
		s |= Hole
	}
	d.mark(off, n, s)
	return nil
}

func (d *memDisk) Extents(_ *sched.Task, off, n int64, f func(n int64, s State) bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n > 0 {
		k := min(n, memBlock-off%memBlock)
		if !f(k, d.states[off/memBlock]) {
			break
		}
		off, n = off+k, n-k
	}
	return d.err
}

// client is the other end of a connection.
type client struct {
	t          *testing.T
	nc         net.Conn
	structured bool
	cookie     uint64
	size       uint64
	flags      uint16
}

// dial connects to s by a pipe and reads its greeting.
func dial(t *testing.T, s *Server) *client {
	t.Helper()
	a, b := net.Pipe()
	ended := make(chan struct{})
	go func() {
		s.ServeConn(b)
		close(ended)
	}()
	t.Cleanup(func() {
		a.Close()
		<-ended
	})
	c := &client{t: t, nc: a}
	hello := c.read(18)
	if be.Uint64(hello) != magicServer || be.Uint64(hello[8:]) != magicOption || be.Uint16(hello[16:]) != 3 {
		t.Fatalf("bad greeting % x", hello)
	}
	c.write(be.AppendUint32(nil, handshakeFixed|handshakeNoZeroes))
	return c
}

func (c *client) read(n int) []byte {
	c.t.Helper()
	p := make([]byte, n)
	if _, err := io.ReadFull(c.nc, p); err != nil {
		c.t.Fatalf("the server ended the connection: %v", err)
	}
	return p
}

func (c *client) write(p []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(p); err != nil {
		c.t.Fatal(err)
	}
}

// ends wants the server to close the connection.
func (c *client) ends() {
	c.t.Helper()
	if n, err := c.nc.Read(make([]byte, 1)); err == nil || !errors.Is(err, io.EOF) {
		c.t.Fatalf("have %d bytes and %v, want the end of the connection", n, err)
	}
}

// sendOption sends an option; option waits for the last reply, and returns all.
func (c *client) sendOption(id uint32, data []byte) {
	c.t.Helper()
	c.write(append(be.AppendUint32(be.AppendUint32(be.AppendUint64(nil, magicOption), id), uint32(len(data))), data...))
}

func (c *client) option(id uint32, data []byte) (replies []reply) {
	c.t.Helper()
	c.sendOption(id, data)
	for {
		h := c.read(20)
		if be.Uint64(h) != magicOptReply || be.Uint32(h[8:]) != id {
			c.t.Fatalf("bad reply to option %d: % x", id, h)
		}
		r := reply{be.Uint32(h[12:]), c.read(int(be.Uint32(h[16:])))}
		replies = append(replies, r)
		if r.kind == repAck || r.kind&repErr != 0 {
			return replies
		}
	}
}

func infoData(name string, infos ...uint16) []byte {
	p := be.AppendUint16(withLen(name), uint16(len(infos)))
	for _, i := range infos {
		p = be.AppendUint16(p, i)
	}
	return p
}

func metaData(name string, queries ...string) []byte {
	p := be.AppendUint32(withLen(name), uint32(len(queries)))
	for _, q := range queries {
		p = append(p, withLen(q)...)
	}
	return p
}

// open is dial and the usual negotiation.
func open(t *testing.T, s *Server, structured bool) *client {
	t.Helper()
	c := dial(t, s)
	if structured {
		c.structured = true
		if r := c.option(optStructuredReply, nil); r[0].kind != repAck {
			t.Fatalf("structured replies: %#x", r[0].kind)
		}
		if r := c.option(optSetMeta, metaData("", metaAllocation)); len(r) != 2 || r[0].kind != repMeta {
			t.Fatalf("context: %v", r)
		}
	}
	r := c.option(optGo, infoData(""))
	if len(r) != 3 || r[0].kind != repInfo || r[2].kind != repAck || be.Uint16(r[0].data) != infoExport {
		t.Fatalf("go: %v", r)
	}
	c.size, c.flags = be.Uint64(r[0].data[2:]), be.Uint16(r[0].data[10:])
	return c
}

// send sends a request.
func (c *client) send(q request, payload []byte) uint64 {
	c.t.Helper()
	c.cookie++
	q.cookie = c.cookie
	var h [requestLen]byte
	q.encode(&h)
	c.write(append(h[:], payload...))
	return c.cookie
}

// result receives one reply: the request that it is for, its error and its data. n is the bytes of
// a simple reply to a read.
func (c *client) result(n int) (cookie uint64, no uint32, data []byte) {
	c.t.Helper()
	if !c.structured {
		h := c.read(16)
		if be.Uint32(h) != magicSimple {
			c.t.Fatalf("bad reply % x", h)
		}
		if no = be.Uint32(h[4:]); no == 0 {
			data = c.read(n)
		}
		return be.Uint64(h[8:]), no, data
	}
	h := c.read(20)
	if be.Uint32(h) != magicStructured || be.Uint16(h[4:]) != chunkDone {
		c.t.Fatalf("bad chunk % x", h)
	}
	data = c.read(int(be.Uint32(h[16:])))
	switch be.Uint16(h[6:]) {
	case chunkErrors:
		no, data = be.Uint32(data), nil
	case chunkData:
		data = data[8:]
	}
	return be.Uint64(h[8:]), no, data
}

// do sends a request and receives its reply.
func (c *client) do(q request, payload []byte) (no uint32, data []byte) {
	c.t.Helper()
	want := c.send(q, payload)
	n := 0
	if q.cmd == cmdRead {
		n = int(q.n)
	}
	cookie, no, data := c.result(n)
	if cookie != want {
		c.t.Fatalf("have a reply to %d, want %d", cookie, want)
	}
	return no, data
}

// ok is do, and wants no error.
func (c *client) ok(q request, payload []byte) []byte {
	c.t.Helper()
	no, data := c.do(q, payload)
	if no != 0 {
		c.t.Fatalf("request %+v: error %d", q, no)
	}
	return data
}

func (c *client) wants(no uint32, q request, payload []byte) {
	c.t.Helper()
	if have, _ := c.do(q, payload); have != no {
		c.t.Errorf("request %+v: have error %d want %d", q, have, no)
	}
}

func filled(n int, b byte) []byte { return bytes.Repeat([]byte{b}, n) }
