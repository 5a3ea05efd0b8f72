// Package linuxfile is the running kernel in the tables: files of a mounted btrfs, ext4 or xfs as
// targets of fio jobs, and as the rig of an experiment. The same job with the same offsets goes
// through system calls: pread and pwrite, preadv2 and pwritev2 with RWF_NOWAIT, O_DIRECT, and the
// queues of libaio and io_uring.
//
// What is the same as in the rows of the engine: the process, its GOMAXPROCS and its CPUs, the
// random offsets, the stamps in the blocks, the clock, and what counts as a latency. What is not:
//
//   - a system call from Go costs more than one from C (hostio.File.Transfer), and while it sleeps
//     its goroutine takes a thread
//   - the kernel copies the bytes to its page cache on the CPUs that the job runs on, but throttles
//     writers by vm.dirty_ratio of the machine and not by the size of the file, and writes back in
//     threads of its own
//   - it works on the device that the directory is on, not on the image's
//
// Model: fio with thread=1. Difference: no invalidation of the device's own cache.
package linuxfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/sched"
)

// The rows. In the second one each request is tried with RWF_NOWAIT first; one that answers EAGAIN
// is done again without it, by the same task. That is what io_uring does by itself, with a worker
// for the second try. A file system that takes no RWF_NOWAIT for a kind of request (EOPNOTSUPP:
// ext4 for buffered writes) counts as one that answers EAGAIN, and a note says so.
const (
	Row       = "linux"
	RowNowait = "linux-nowait"
)

// Rows are both.
func Rows() []string { return []string{Row, RowNowait} }

// host is what is asked of a file of the running kernel: *hostio.File.
type host interface {
	Transfer(op hostio.Op, direct bool, p []byte, off int64, flags uint32) (int, error)
	FD(direct bool) (int, error)
	Truncate(size int64) error
	Fallocate(mode uint32, off, n int64) error
	Sync() error
	Size() int64
	DropCache(off, n int64) error
	SetNoCow() error
	Close() error
}

// Dir is a directory of a mounted file system with files to work on. It is for one task.
type Dir struct {
	path  string
	fs    string
	note  func(string)
	nocow bool
	open  []host
	byJob map[string]host
	tests []host // the test files
	size  int64  // of each

	make func(path string) (host, error) // hostio.Create
	ring func(depth int) (hostio.Queue, error)
	aio  func(depth int) (hostio.Queue, error)

	// Files, if it is not 0, is how many sparse test files there are, one for each task, instead of
	// one that is preallocated. Set before Prepare.
	Files int

	noNowait sync.Once // the note
}

// Open looks at path, which is a directory. nocow makes files NOCOW; where the file system knows no
// such thing, note, which may be nil, is told once. The error names the directory.
func Open(path string, nocow bool, note func(string)) (*Dir, error) {
	fs, err := hostio.FileSystem(path)
	if err != nil {
		if errors.Is(err, hostio.ErrNotLinux) {
			err = fmt.Errorf("--linux %s: %w", path, err)
		}
		return nil, err
	}
	if st, err := os.Stat(path); err != nil {
		return nil, err
	} else if !st.IsDir() {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("not a directory")}
	}
	if note == nil {
		note = func(string) {}
	}
	return &Dir{path: path, fs: fs, note: note, nocow: nocow, byJob: map[string]host{},
		make: func(path string) (host, error) { return hostio.Create(path) },
		ring: func(depth int) (hostio.Queue, error) { return hostio.NewRing(depth) },
		aio:  func(depth int) (hostio.Queue, error) { return hostio.NewAIO(depth) }}, nil
}

// FileSystem is the type of the file system: "btrfs", "ext4", ...
func (d *Dir) FileSystem() string { return d.fs }

// create makes a file that Close removes.
func (d *Dir) create() (host, error) {
	f, err := d.make(filepath.Join(d.path, fmt.Sprintf("btrlab-%d-%d", os.Getpid(), len(d.open))))
	if err != nil {
		return nil, err
	}
	d.open = append(d.open, f)
	if !d.nocow {
		return f, nil
	}
	switch err := f.SetNoCow(); {
	case errors.Is(err, errno.EOPNOTSUPP) || errors.Is(err, errno.EINVAL):
		d.note(fmt.Sprintf("%s: %s has no NOCOW files, so the job's file there is like any other", d.path, d.fs))
		d.nocow = false
	case err != nil:
		return nil, fmt.Errorf("make a file NOCOW: %w", err)
	}
	return f, nil
}

// Close removes the files.
func (d *Dir) Close() error {
	var err error
	for _, f := range d.open {
		err = errors.Join(err, f.Close())
	}
	d.open, d.tests = nil, nil
	clear(d.byJob)
	return err
}

// Job is fio.Options.Open for a row: each name is a file of its own.
func (d *Dir) Job(row string, count *Count) func(*sched.Task, *fio.Job, string) (fio.Target, error) {
	return func(_ *sched.Task, _ *fio.Job, name string) (fio.Target, error) {
		h := d.byJob[name]
		if h == nil {
			var err error
			if h, err = d.create(); err != nil {
				return nil, err
			}
			d.byJob[name] = h
		}
		return d.file(h, row, count), nil
	}
}

// Prepare makes the test file, preallocated, or the sparse Files of size bytes together. It makes
// the Dir an experiment.Rig.
func (d *Dir) Prepare(_ *sched.Task, size int64) (err error) {
	n := max(d.Files, 1)
	d.tests, d.size = nil, size/int64(n)
	for range n {
		f, err := d.create()
		if err != nil {
			return err
		}
		d.tests = append(d.tests, f)
		if d.Files == 0 {
			err = f.Fallocate(0, 0, size)
		}
		if d.Files > 0 || errors.Is(err, errno.EOPNOTSUPP) {
			err = f.Truncate(d.size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Open opens the test file for a row, with nothing of it in the page cache.
func (d *Dir) Open(_ *sched.Task, row string) (experiment.Session, error) {
	s := &session{size: d.size}
	for _, f := range d.tests {
		if err := f.DropCache(0, 0); err != nil {
			return nil, err
		}
		s.parts = append(s.parts, d.file(f, row, &s.count))
	}
	return s, nil
}

// OpenRaw opens the test file for reads and writes that may wait and are done whole. It makes the
// Dir an experiment.RawOpener.
func (d *Dir) OpenRaw(t *sched.Task, _ string) (experiment.Session, error) { return d.Open(t, Row) }

// Check says nothing: no one checks a file system that is mounted.
func (d *Dir) Check(*sched.Task) ([]string, error) { return nil, experiment.ErrUnchecked }

type session struct {
	parts []fio.Target
	size  int64 // of each
	count Count
}

func (s *session) File() fio.Target {
	if len(s.parts) == 1 {
		return s.parts[0]
	}
	return experiment.Spread(s.parts, s.size)
}

// Parts makes the session an experiment.Parts.
func (s *session) Parts() []fio.Target { return s.parts }

func (s *session) Close(t *sched.Task) (err error) {
	for _, f := range s.parts {
		err = errors.Join(err, f.Fsync(t))
	}
	return err
}

// Again makes the session an experiment.Nowaiter.
func (s *session) Again() (again, tried uint64) { return s.count.Load() }

// Count is how often RWF_NOWAIT was tried, and how often it answered EAGAIN.
type Count struct{ tried, again atomic.Uint64 }

// Load reads it.
func (c *Count) Load() (again, tried uint64) { return c.again.Load(), c.tried.Load() }

// file is a fio.QueueTarget, fio.DirectTarget and fio.CachedTarget.
type file struct {
	d      *Dir
	h      host
	nowait bool
	*Count
}

func (d *Dir) file(h host, row string, c *Count) *file {
	return &file{d, h, row == RowNowait, c}
}

// refused reports whether a request that was not to wait is to be done again, and counts it.
func (f *file) refused(err error) bool {
	switch {
	case errors.Is(err, errno.EOPNOTSUPP):
		f.d.noNowait.Do(func() {
			f.d.note(fmt.Sprintf("%s: %s has no RWF_NOWAIT for requests of this job; they count as EAGAIN", f.d.path, f.d.fs))
		})
	case !errors.Is(err, errno.EAGAIN):
		return false
	}
	f.again.Add(1)
	return true
}

func (f *file) transfer(op hostio.Op, direct bool, p []byte, off int64) (int, error) {
	if f.nowait {
		f.tried.Add(1)
		n, err := f.h.Transfer(op, direct, p, off, hostio.NoWait)
		if !f.refused(err) {
			return end(op, p, n, err)
		}
	}
	n, err := f.h.Transfer(op, direct, p, off, 0)
	return end(op, p, n, err)
}

func end(op hostio.Op, p []byte, n int, err error) (int, error) {
	if op == hostio.Read && n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

func (f *file) ReadAt(_ *sched.Task, p []byte, off int64) (int, error) {
	return f.transfer(hostio.Read, false, p, off)
}

func (f *file) WriteAt(_ *sched.Task, p []byte, off int64) (int, error) {
	return f.transfer(hostio.Write, false, p, off)
}

func (f *file) ReadDirect(_ *sched.Task, p []byte, off int64) (int, error) {
	return f.transfer(hostio.Read, true, p, off)
}

func (f *file) WriteDirect(_ *sched.Task, p []byte, off int64) (int, error) {
	return f.transfer(hostio.Write, true, p, off)
}

func (f *file) Truncate(_ *sched.Task, size int64) error { return f.h.Truncate(size) }
func (f *file) Fallocate(_ *sched.Task, mode uint32, off, n int64) error {
	return f.h.Fallocate(mode, off, n)
}
func (f *file) Fsync(*sched.Task) error               { return f.h.Sync() }
func (f *file) Size(*sched.Task) int64                { return f.h.Size() }
func (f *file) DropCache(_ *sched.Task, off, n int64) { f.h.DropCache(off, n) } // a hint

// OpenQueue opens the kernel's queue.
func (f *file) OpenQueue(_ *sched.Task, e fio.Engine, depth int, direct bool) (fio.Queue, error) {
	fd, err := f.h.FD(direct)
	if err != nil {
		return nil, err
	}
	q := &queue{f: f, fd: fd, last: make([]request, depth)}
	open := f.d.aio
	if e == fio.IOUring {
		open = f.d.ring
	}
	if q.q, err = open(depth); err != nil {
		return nil, err
	}
	return q, nil
}

// queue is a fio.Queue.
type queue struct {
	f    *file
	fd   int
	q    hostio.Queue
	last []request // by tag
	over []ended   // found while a request was given in again
}

type request struct {
	op     hostio.Op
	p      []byte
	off    int64
	nowait bool
}

type ended struct {
	tag uint32
	n   int
	err error
}

func (q *queue) Prep(_ *sched.Task, _, dir int, p []byte, off int64, tag uint32) error {
	r := &q.last[tag]
	*r = request{hostio.Read, p, off, q.f.nowait}
	if dir == fio.DirWrite {
		r.op = hostio.Write
	}
	flags := uint32(0)
	if r.nowait {
		q.f.tried.Add(1)
		flags = hostio.NoWait
	}
	return q.q.Prep(r.op, q.fd, p, off, flags, tag)
}

func (q *queue) Submit(*sched.Task) error { return q.q.Enter(0) }

// Wait waits for ends, and gives requests in again that answered EAGAIN: they have not ended.
func (q *queue) Wait(_ *sched.Task, n int) (looked bool, err error) {
	for looked = true; ; looked = false {
		if err := q.take(); err != nil || len(q.over) >= n {
			return looked, err
		}
		if err := q.q.Enter(n - len(q.over)); err != nil {
			return false, err
		}
	}
}

func (q *queue) take() error {
	for {
		tag, res, ok := q.q.Next()
		if !ok {
			return nil
		}
		r := &q.last[tag]
		e := ended{tag: tag, n: int(res)}
		if res < 0 {
			e.n, e.err = 0, errno.Errno(-res)
		}
		if r.nowait && q.f.refused(e.err) {
			r.nowait = false
			if err := q.q.Prep(r.op, q.fd, r.p, r.off, 0, tag); err != nil {
				return err
			}
			if err := q.q.Enter(0); err != nil {
				return err
			}
			continue
		}
		q.over = append(q.over, e)
	}
}

func (q *queue) Reap(*sched.Task) (tag uint32, n int, err error, ok bool) {
	if len(q.over) == 0 {
		return 0, 0, nil, false
	}
	e := q.over[0]
	q.over = q.over[:copy(q.over, q.over[1:])]
	return e.tag, e.n, e.err, true
}

func (q *queue) Close(*sched.Task) error { return q.q.Close() }
