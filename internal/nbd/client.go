package nbd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"btrlab/internal/errno"
)

// Client is a connection to a disk that a server of the protocol exports. Its methods may be called
// by many goroutines: each call is a request, and as many are under way as there are calls.
type Client struct {
	nc   net.Conn
	size int64

	wmu sync.Mutex // one request is sent at a time

	mu      sync.Mutex // protects the fields below
	cookie  uint64
	pending map[uint64]*call
	err     error // the connection is over
}

// call is a request that waits for its reply.
type call struct {
	into []byte // of a read
	done chan error
}

// NewClient negotiates for the export with the name, "" for the server's only one.
func NewClient(nc net.Conn, name string) (*Client, error) {
	c := &Client{nc: nc, pending: map[uint64]*call{}}
	r := bufio.NewReaderSize(nc, 1<<16)
	if err := c.negotiate(r, name); err != nil {
		return nil, errors.Join(fmt.Errorf("negotiate with %s: %w", nc.RemoteAddr(), err), nc.Close())
	}
	go c.receive(r)
	return c, nil
}

func (c *Client) negotiate(r *bufio.Reader, name string) error {
	var hello [18]byte
	if _, err := io.ReadFull(r, hello[:]); err != nil {
		return err
	}
	if be.Uint64(hello[:]) != magicServer || be.Uint64(hello[8:]) != magicOption || be.Uint16(hello[16:])&handshakeFixed == 0 {
		return badf("bad server, have %x want fixed newstyle", hello)
	}
	data := be.AppendUint16(append(be.AppendUint32(nil, uint32(len(name))), name...), 0)
	msg := be.AppendUint32(nil, handshakeFixed|uint32(be.Uint16(hello[16:])&handshakeNoZeroes))
	msg = be.AppendUint32(be.AppendUint32(be.AppendUint64(msg, magicOption), optGo), uint32(len(data)))
	if _, err := c.nc.Write(append(msg, data...)); err != nil {
		return err
	}
	for {
		var h [20]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return err
		}
		typ, n := be.Uint32(h[12:]), be.Uint32(h[16:])
		if be.Uint64(h[:]) != magicOptReply || n > optionMax {
			return badf("bad reply to an option, have %x", h)
		}
		p := make([]byte, n)
		if _, err := io.ReadFull(r, p); err != nil {
			return err
		}
		switch {
		case typ == repInfo && n >= 12 && be.Uint16(p) == infoExport:
			c.size = int64(be.Uint64(p[2:]))
		case typ == repAck:
			return nil
		case typ&repErr != 0:
			return badf("the server refuses the export %q: %s", name, p)
		}
	}
}

// Size is the disk's, in bytes.
func (c *Client) Size() int64 { return c.size }

// ReadAt fills p, at most MaxRequest bytes, from off on.
func (c *Client) ReadAt(p []byte, off int64) error { return c.do(cmdRead, off, len(p), p, nil) }

// WriteAt writes p, at most MaxRequest bytes, at off. It is durable after a Flush that begins when
// WriteAt has returned.
func (c *Client) WriteAt(p []byte, off int64) error { return c.do(cmdWrite, off, len(p), nil, p) }

// Flush makes durable what was written.
func (c *Client) Flush() error { return c.do(cmdFlush, 0, 0, nil, nil) }

// do sends a request and waits for its reply.
func (c *Client) do(cmd uint16, off int64, n int, into, data []byte) error {
	x := &call{into: into, done: make(chan error, 1)}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.cookie++
	q := request{cmd: cmd, cookie: c.cookie, off: uint64(off), n: uint32(n)}
	c.pending[q.cookie] = x
	c.mu.Unlock()
	var h [requestLen]byte
	q.encode(&h)
	c.wmu.Lock()
	_, err := (&net.Buffers{h[:], data}).WriteTo(c.nc)
	c.wmu.Unlock()
	if err != nil {
		c.fail(err)
	}
	return <-x.done
}

// receive hands the replies out until the connection is over.
func (c *Client) receive(r *bufio.Reader) {
	for {
		if err := c.reply(r); err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *Client) reply(r *bufio.Reader) error {
	var h [16]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return err
	}
	if be.Uint32(h[:]) != magicSimple {
		return badf("bad reply, have magic %#x want %#x", be.Uint32(h[:]), uint32(magicSimple))
	}
	cookie, number := be.Uint64(h[8:]), be.Uint32(h[4:])
	c.mu.Lock()
	x := c.pending[cookie]
	delete(c.pending, cookie)
	c.mu.Unlock()
	if x == nil {
		return badf("bad reply, nobody waits for cookie %d", cookie)
	}
	var err error
	if number == 0 {
		if _, err = io.ReadFull(r, x.into); err != nil {
			x.done <- err
			return err
		}
	}
	x.done <- fromWire(number)
	return nil
}

// fromWire is the error with the protocol's number.
func fromWire(number uint32) error {
	if number == 0 {
		return nil
	}
	for _, n := range numbers {
		if n.wire == number {
			return n.err
		}
	}
	return errno.EIO
}

// fail ends all calls with err.
func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	list := c.pending
	c.pending = map[uint64]*call{}
	c.mu.Unlock()
	for _, x := range list {
		x.done <- err
	}
}

// Close ends the connection; no call is under way.
func (c *Client) Close() error {
	q := request{cmd: cmdDisc}
	var h [requestLen]byte
	q.encode(&h)
	_, err := c.nc.Write(h[:])
	return errors.Join(err, c.nc.Close())
}
