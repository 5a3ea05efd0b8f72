package mount

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// server answers the kernel's requests. Its methods are those of fuse.RawFileSystem; each call is
// of a goroutine of its own.
type server struct {
	fuse.RawFileSystem // ENOSYS for the rest, which the kernel then does itself or without
	fs                 *fs.FS
	opt                Options
	top                uint64 // the mounted subvolume
	nodes              nodes
	handles            table[handle]
	tasks              sync.Pool     // of *sched.Task
	forgets            chan struct{} // has room for those that may begin
	kernel             atomic.Pointer[fuse.Server]
	flags              kernelFlags
	down               atomic.Bool  // shut down: requests are EIO
	gate               sync.RWMutex // a request reads; Frozen writes

	start   func(k *fuse.Server) error // of the rings, if set
	started error                      // what it said

	// prune, if set, asks the kernel to forget nodes that it only remembers.
	prune   func(ids []uint64)
	pruning atomic.Bool
	maxed   int // nodes above which it is asked
}

// handle is an open file, or an open directory.
type handle struct {
	file  *fs.File
	pages *kernelPages  // of a file, unless the kernel caches it
	end   atomic.Uint64 // of a directory: the index that a reader stops before
}

func newServer(x *fs.FS, o Options) *server {
	s := &server{RawFileSystem: fuse.NewDefaultRawFileSystem(), fs: x, opt: o, forgets: make(chan struct{}, forgetsMax)}
	s.tasks.New = func() any { return sched.NewTask("fuse") }
	t := s.begin("mount")
	defer s.end(t)
	s.maxed = x.CacheInodes()
	root := x.Root(t)
	s.top = root.Subvol()
	s.nodes.remember(root) // FUSE_ROOT_ID is 1, the first number
	return s
}

// begin gives a request its task, unless the mount is frozen; end takes it back. Models
// sb_start_write() and sb_end_write().
func (s *server) begin(op string) *sched.Task {
	s.gate.RLock()
	t := s.tasks.Get().(*sched.Task)
	t.Policy = s.fs.Policy().Name
	t.Doing(op)
	return t
}

func (s *server) end(t *sched.Task) {
	s.tasks.Put(t)
	s.gate.RUnlock()
}

// status is the number of err.
func (s *server) status(err error) fuse.Status {
	var no errno.Errno
	switch {
	case err == nil:
		return fuse.OK
	case errors.As(err, &no):
		if no == errno.EUCLEAN {
			s.warn(err)
		}
		return fuse.Status(no)
	}
	s.warn(err)
	return fuse.EIO
}

func (s *server) warn(err error) {
	if s.opt.Warn != nil {
		s.opt.Warn(err)
	}
}

// on runs f on the node with the number.
func (s *server) on(op string, id uint64, f func(t *sched.Task, n *fs.Node) error) fuse.Status {
	n := s.nodes.of(id)
	if n == nil {
		return fuse.Status(syscall.ESTALE)
	}
	if s.down.Load() {
		return fuse.EIO
	}
	t := s.begin(op)
	defer s.end(t)
	return s.status(f(t, n))
}

func (s *server) String() string { return "btrlab" }

func (s *server) Init(k *fuse.Server) {
	s.kernel.Store(k)
	s.prune = func(ids []uint64) { k.PruneNotify(ids) } // a kernel that cannot keeps what it has
	if s.start != nil {
		s.started = s.start(k)
	}
}

// pruneBatch is how many nodes the kernel is asked to forget at once.
const pruneBatch = 1024

// limitNodes keeps the nodes that the kernel knows within the engine's cache of inodes. The kernel
// remembers names until it is short of memory itself, and each has an inode in memory here. It is
// asked by a task of its own, because it may write back what it drops.
func (s *server) limitNodes() {
	if s.prune == nil || s.nodes.len() <= s.maxed || !s.pruning.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.pruning.Store(false)
		if ids := s.nodes.some(pruneBatch, s.maxed); len(ids) > 0 {
			s.prune(ids)
		}
	}()
}
