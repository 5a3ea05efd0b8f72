// Package ring gives a FUSE server its requests through io_uring, in place of reads and writes of
// /dev/fuse: a system call gives the kernel an answer and waits for the next request, whose bytes
// are then where the server wants them.
//
// The library decodes all requests but reads and writes, which are this package's, and keeps
// /dev/fuse for what the kernel sends there still: FUSE_INIT, FUSE_FORGET, FUSE_INTERRUPT and
// notifications.
//
// Model: fs/fuse/dev_uring.c in Linux 6.14 and later, as the other end of
// include/uapi/linux/fuse.h.
package ring

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"

	"btrlab/internal/hostio"
)

// inFlight is the number of requests that a mount can have under way; a queue has its part of them,
// within the bounds.
const (
	inFlight    = 32
	minEntries  = 4
	maxEntries  = 16
	minPayload  = 8192 // FUSE_MIN_READ_BUFFER
	headerLen   = int(unsafe.Sizeof(fuse.InHeader{}))
	answerLen   = int(unsafe.Sizeof(fuse.OutHeader{}))
	opRead      = 15 // FUSE_READ
	opWrite     = 16 // FUSE_WRITE
	opInit      = 26 // FUSE_INIT
	enablePath  = "/sys/module/fuse/parameters/enable_uring"
	writeOutLen = uint32(unsafe.Sizeof(fuse.WriteOut{}))
)

// ErrNotOffered is a kernel that does not offer FUSE over io_uring.
var ErrNotOffered = errors.New("the kernel does not offer it: want Linux 6.14 or later with CONFIG_FUSE_IO_URING")

// Rings are the entries of a mount.
type Rings struct {
	queues [][]*hostio.FuseEntry
	fs     fuse.RawFileSystem
	rest   *fuse.ProtocolServer // for all but reads and writes
	all    bool                 // for those, too: it prints them
	fd     int
	ended  sync.WaitGroup

	// Failed is told why an entry serves no more before the mount has ended: requests may wait for
	// it without end, so it is to end the mount.
	Failed func(err error)
}

// Offered says why the kernel of this machine will not offer FUSE over io_uring; nil if it may.
func Offered() error {
	text, err := os.ReadFile(enablePath)
	switch {
	case err != nil:
		return ErrNotOffered
	case strings.TrimSpace(string(text)) != "Y":
		return fmt.Errorf("it is off, want Y in %s", enablePath)
	}
	return nil
}

// Open makes what a mount with requests of up to payload bytes needs. It is done before the mount:
// a kernel that is promised rings makes all requests wait until it has them.
func Open(payload int) (*Rings, error) {
	n, err := hostio.FuseRings()
	if err != nil {
		return nil, err
	}
	r := &Rings{fd: -1}
	for range n {
		var q []*hostio.FuseEntry
		for range min(max(inFlight/n, minEntries), maxEntries) {
			e, err := hostio.NewFuseEntry(max(payload, minPayload))
			if err != nil {
				r.queues = append(r.queues, q)
				return nil, errors.Join(err, r.Close())
			}
			q = append(q, e)
		}
		r.queues = append(r.queues, q)
	}
	return r, nil
}

// Serve begins to serve the mount of k, whose device has the number minor, with the options that k
// has. It is called by Init of fs. It is ErrNotOffered when the kernel has not agreed.
func (r *Rings) Serve(fs fuse.RawFileSystem, k *fuse.Server, o *fuse.MountOptions, minor uint32) error {
	settings := k.KernelSettings()
	if settings.Flags64()&fuse.CAP_OVER_IO_URING == 0 {
		return ErrNotOffered
	}
	var err error
	if r.fd, err = hostio.FuseFD(minor); err != nil {
		return err
	}
	r.fs, r.rest, r.all = fs, fuse.NewProtocolServer(fs, o), o.Debug
	if err := r.init(settings); err != nil {
		return err
	}
	for qid, q := range r.queues {
		for _, e := range q {
			e.Register(r.fd, qid)
			r.ended.Go(func() {
				hostio.OnCPU(qid)
				w := worker{entry: e}
				if err := w.serve(r); err != nil {
					r.Failed(fmt.Errorf("an entry of FUSE over io_uring has ended: %w", err))
				}
			})
		}
	}
	hostio.Processors(processors, len(r.queues))
	return nil
}

// processors is how many of the runtime's processors there are for each CPU. With one 4 KiB writes
// were half as many.
const processors = 4

// init tells the library's decoder what the kernel said in FUSE_INIT.
func (r *Rings) init(in *fuse.InitIn) error {
	in.InHeader = fuse.InHeader{Length: uint32(unsafe.Sizeof(*in)), Opcode: opInit}
	p := unsafe.Slice((*byte)(unsafe.Pointer(in)), unsafe.Sizeof(*in))
	var out [answerLen + int(unsafe.Sizeof(fuse.InitOut{}))]byte
	if _, st := r.rest.HandleRequest([][]byte{p}, [][]byte{out[:]}); !st.Ok() {
		return syscall.Errno(st)
	}
	return nil
}

// entry is a hostio.FuseEntry; a test has another.
type entry interface {
	Fetch() (header, op, payload []byte, err error)
	Answer() (header, payload []byte)
	Commit(n int)
}

// worker serves the requests of an entry.
type worker struct {
	entry
	in  fuse.WriteIn // of a write or a read, which have the same fields
	arg []byte
}

// serve serves requests until the mount has ended: that is no error.
func (w *worker) serve(r *Rings) error {
	for {
		header, op, payload, err := w.Fetch()
		if errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECANCELED) {
			return nil
		}
		if err != nil {
			return err
		}
		copy(w.bytes(), header)
		switch {
		case w.in.Opcode == opWrite && !r.all:
			copy(w.bytes()[headerLen:], op)
			w.write(r.fs, payload)
		case w.in.Opcode == opRead && !r.all:
			copy(w.bytes()[headerLen:], op)
			w.read(r.fs)
		default:
			w.other(r.rest, header, op, payload)
		}
	}
}

// bytes are in, as the kernel gives it.
func (w *worker) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&w.in)), unsafe.Sizeof(w.in))
}

func (w *worker) write(fs fuse.RawFileSystem, p []byte) {
	n, st := fs.Write(nil, &w.in, p)
	_, out := w.Answer()
	*(*fuse.WriteOut)(unsafe.Pointer(unsafe.SliceData(out))) = fuse.WriteOut{Size: n}
	w.answer(st, writeOutLen)
}

func (w *worker) read(fs fuse.RawFileSystem) {
	in := (*fuse.ReadIn)(unsafe.Pointer(&w.in))
	_, out := w.Answer()
	p := out[:min(int(in.Size), len(out))]
	res, st := fs.Read(nil, in, p)
	n := 0
	if st.Ok() {
		var data []byte
		if data, st = res.Bytes(p); len(data) > 0 && &data[0] != &p[0] {
			copy(p, data)
		}
		n = len(data)
		res.Done()
	}
	w.answer(st, uint32(n))
}

// other lets the library do a request. What comes with it is copied, because the answer takes its
// place: it is short.
func (w *worker) other(rest *fuse.ProtocolServer, header, op, payload []byte) {
	w.arg = append(append(append(w.arg[:0], header...), op...), payload...)
	head, out := w.Answer()
	clear(head)
	n, st := rest.HandleRequest([][]byte{w.arg}, [][]byte{head, out})
	if n < answerLen { // it found no answer to the request
		if st.Ok() {
			st = fuse.EIO
		}
		w.answer(st, 0)
		return
	}
	w.Commit(n - answerLen)
}

// answer makes the status and n bytes of the payload the answer.
func (w *worker) answer(st fuse.Status, n uint32) {
	if !st.Ok() {
		n = 0
	}
	head, _ := w.Answer()
	*(*fuse.OutHeader)(unsafe.Pointer(unsafe.SliceData(head))) = fuse.OutHeader{Length: uint32(answerLen) + n, Status: int32(-st), Unique: w.in.Unique}
	w.Commit(int(n))
}

// Wait waits until the mount has ended and no request is under way.
func (r *Rings) Wait() { r.ended.Wait() }

// Close frees the entries: of a mount that has ended, or has not begun.
func (r *Rings) Close() (err error) {
	for _, q := range r.queues {
		for _, e := range q {
			err = errors.Join(err, e.Close())
		}
	}
	if r.fd >= 0 {
		err = errors.Join(err, syscall.Close(r.fd))
	}
	r.queues, r.fd = nil, -1
	return err
}
