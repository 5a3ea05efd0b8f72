// Package nbd serves a disk to clients of the NBD protocol: qemu, nbd-client, nbdcopy. It knows no
// file system, and no TLS.
//
// A connection begins with a negotiation (negotiate.go), then its requests come in (conn.go). Each
// request is a task of the engine; replies go out as the requests end, in any order.
//
// Invariants:
//   - A flush covers the writes of every connection that had been answered when it came, so that a
//     client may write over several (NBD_FLAG_CAN_MULTI_CONN).
//   - A flush that fails is told to every connection that was there: to the ones that did not ask
//     for it, at their next flush.
//   - A connection has at most flightMax requests under way, of at most memoryMax bytes together,
//     and there are at most ConnsMax connections.
//
// Model: the protocol of the project NetworkBlockDevice/nbd, fixed newstyle with structured
// replies.
package nbd

import (
	"errors"
	"net"
	"sync"
	"time"

	"btrlab/internal/sched"
)

// Disk is what is exported. All its methods may be called by many tasks at once; the ranges lie
// inside Size.
type Disk interface {
	// Size is in bytes and does not change.
	Size() int64
	// ReadAt fills p from off on.
	ReadAt(t *sched.Task, p []byte, off int64) error
	// WriteAt writes all of p at off.
	WriteAt(t *sched.Task, p []byte, off int64) error
	// Flush makes every change that has returned durable.
	Flush(t *sched.Task) error
	// Trim says that the bytes are not wanted any more: they read as anything.
	Trim(t *sched.Task, off, n int64) error
	// Zero makes the bytes read as zeros. Without hole they keep their space.
	Zero(t *sched.Task, off, n int64, hole bool) error
	// Extents calls f for consecutive runs of [off, off+n), from off on, until f returns false.
	Extents(t *sched.Task, off, n int64, f func(n int64, s State) bool) error
}

// State is what a client is told of a run of bytes: bits of the context base:allocation.
type State uint32

// The bits.
const (
	Hole  State = 1 << iota // no space is allocated
	Zeros                   // the bytes read as zeros
)

// Options says how a disk is served.
type Options struct {
	// Policy is that of the engine that does the disk's requests, for profiles.
	Policy string
	// Name is the export's name; a client may also leave it empty.
	Name string
	// ReadOnly answers changes with EPERM.
	ReadOnly bool
	// NoTrim does not offer to trim.
	NoTrim bool
	// Warn, if set, is told of clients that do not speak the protocol, and of errors of the disk
	// that the protocol has no number for. Many tasks call it at once.
	Warn func(err error)
}

// The limits of a connection, in requests and bytes, and of their number.
const (
	flightMax = 64
	memoryMax = 2 * MaxRequest
	ConnsMax  = 16
)

// The times that a client is given: to negotiate, and to take the replies when the server ends.
const (
	negotiateTime = 30 * time.Second
	endTime       = 5 * time.Second
)

// Server serves one disk.
type Server struct {
	disk    Disk
	opt     Options
	tasks   sync.Pool // of *sched.Task
	buffers sync.Pool // of *[]byte
	slots   chan struct{}
	flushes sync.Mutex // held while the disk flushes

	mu       sync.Mutex // protects what follows
	ending   bool
	listener net.Listener
	conns    map[*conn]bool
	ended    sync.WaitGroup // connections
	next     *flushGroup    // of the flushes that wait for the one under way; nil when none waits
	failures uint64         // how many flushes have failed
	failure  error          // what the last of them came to
}

// New makes a server of d.
func New(d Disk, o Options) *Server {
	s := &Server{disk: d, opt: o, slots: make(chan struct{}, ConnsMax), conns: map[*conn]bool{}}
	s.tasks.New = func() any {
		t := sched.NewTask("nbd")
		t.Policy = o.Policy
		return t
	}
	s.buffers.New = func() any { return new([]byte) }
	return s
}

// Serve accepts connections from l until Shutdown, which closes l.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener = l
	ending := s.ending
	s.mu.Unlock()
	if ending {
		return l.Close()
	}
	for {
		s.slots <- struct{}{}
		nc, err := l.Accept()
		if err != nil {
			<-s.slots
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.ending {
				return nil
			}
			return err
		}
		go func() {
			defer func() { <-s.slots }()
			s.ServeConn(nc)
		}()
	}
}

// ServeConn serves one connection until its end, and closes it.
func (s *Server) ServeConn(nc net.Conn) {
	c := newConn(s, nc)
	defer nc.Close()
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return
	}
	s.conns[c] = true
	c.heard = s.failures
	s.ended.Add(1)
	s.mu.Unlock()
	err := c.serve()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.ended.Done()
	var bad protocolError
	if errors.As(err, &bad) {
		s.warn(err)
	}
}

// Shutdown stops accepting, lets the requests end that were read, and returns once they are
// answered and every connection is closed. It does not flush.
func (s *Server) Shutdown() error {
	s.mu.Lock()
	s.ending = true
	var err error
	if s.listener != nil {
		err = s.listener.Close()
	}
	now := time.Now()
	for c := range s.conns {
		// A connection that is closed already needs no deadline.
		_ = c.nc.SetReadDeadline(now)
		_ = c.nc.SetWriteDeadline(now.Add(endTime))
	}
	s.mu.Unlock()
	s.ended.Wait()
	return err
}

func (s *Server) warn(err error) {
	if s.opt.Warn != nil {
		s.opt.Warn(err)
	}
}

// flags are the transmission flags.
func (s *Server) flags(structured bool) uint16 {
	f := uint16(flagHasFlags | flagFlush | flagFUA | flagZeroes | flagMultiConn)
	if s.opt.ReadOnly {
		f |= flagReadOnly
	}
	if !s.opt.NoTrim {
		f |= flagTrim
	}
	if structured {
		f |= flagDF
	}
	return f
}

// flushGroup is the flushes that one flush of the disk answers.
type flushGroup struct {
	done chan struct{}
	err  error
}

// flush makes what was answered durable. One flush of the disk runs at a time, and answers all that
// came before it began: so no flush passes one whose error is not yet known.
func (s *Server) flush(t *sched.Task) error {
	s.mu.Lock()
	g := s.next
	if g != nil {
		s.mu.Unlock()
		<-g.done
		return g.err
	}
	g = &flushGroup{done: make(chan struct{})}
	s.next = g
	s.mu.Unlock()

	s.flushes.Lock()
	s.mu.Lock()
	s.next = nil // a flush that comes from now on may follow a write that this one misses
	s.mu.Unlock()
	g.err = s.disk.Flush(t)
	if g.err != nil {
		s.mu.Lock()
		s.failures++
		s.failure = g.err
		s.mu.Unlock()
	}
	s.flushes.Unlock()
	close(g.done)
	return g.err
}
