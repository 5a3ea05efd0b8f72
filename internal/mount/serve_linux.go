package mount

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"log"
	"os"
	gopath "path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/mount/ring"
	"btrlab/internal/sched"
)

// Supported says whether this system can mount.
const Supported = true

// maxWrite is the bytes of one read or write request; max_pages_limit is the kernel's bound.
const maxWrite = 1 << 20

// maxBackground is the number of requests of readahead and writeback that the kernel has on the
// way.
const maxBackground = 64

// Mount is a mounted image.
type Mount struct {
	s    *server
	fuse *fuse.Server
	ring *ring.Rings // nil without
	done chan struct{}
}

// Check says why o.Dir cannot be mounted on, in one line that names it.
func Check(o Options) error {
	bad := func(format string, args ...any) error {
		return &blockdev.NameError{Name: o.Dir, Err: fmt.Errorf(format, args...)}
	}
	st, err := os.Stat(o.Dir)
	switch {
	case errors.Is(err, syscall.ENOTCONN):
		return bad("a mount whose server is gone, want a directory: unmount it first")
	case errors.Is(err, iofs.ErrNotExist):
		return bad("there is no such directory to mount on")
	case err != nil:
		return err
	case !st.IsDir():
		return bad("is no directory to mount on")
	}
	d, err := os.Open(o.Dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := d.ReadDir(1); err == nil && !o.NonEmpty {
		return bad("is not empty, want an empty directory to mount on")
	}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		return fmt.Errorf("cannot mount: %w: want the kernel's module fuse", err)
	} else {
		f.Close()
	}
	return nil
}

// New mounts x at o.Dir and serves it until it is unmounted.
func New(x *fs.FS, o Options) (*Mount, error) {
	if err := Check(o); err != nil {
		return nil, err
	}
	m := &Mount{s: newServer(x, o), done: make(chan struct{})}
	opts := m.options()
	m.openRings(opts)
	var err error
	if m.fuse, err = fuse.NewServer(m.s, o.Dir, opts); err != nil {
		err = fmt.Errorf("cannot mount: %w", err)
		if os.Geteuid() != 0 {
			err = fmt.Errorf("%w: without root it takes fusermount3", err)
		}
		t := m.s.begin("mount")
		defer m.s.end(t)
		return nil, errors.Join(&blockdev.NameError{Name: o.Dir, Err: err}, m.Release(t), m.closeRings())
	}
	if err := m.ringsStarted(); err != nil {
		t := m.s.begin("mount")
		defer m.s.end(t)
		return nil, errors.Join(err, apart("detach", o.Dir), m.Release(t))
	}
	if err := m.s.flags.watch(o.Dir); err != nil {
		m.s.warn(fmt.Errorf("a remount to read-only or noatime will not be noticed: %w", err))
	}
	go func() {
		m.fuse.Serve()
		if m.ring != nil {
			m.ring.Wait()
		}
		if err := errors.Join(m.closeRings(), m.s.flags.close()); err != nil {
			m.s.warn(err)
		}
		close(m.done)
	}()
	return m, nil
}

// openRings makes what the mount takes requests by io_uring with, if it can, and asks for it in f.
func (m *Mount) openRings(f *fuse.MountOptions) {
	o := &m.s.opt
	if o.Ring == RingNo {
		return
	}
	err := ring.Offered()
	if err == nil {
		m.ring, err = ring.Open(maxWrite)
	}
	if err != nil {
		m.noRings(err)
		return
	}
	f.ExtraCapabilities |= fuse.CAP_OVER_IO_URING
	m.ring.Failed = func(err error) { m.s.warn(errors.Join(err, m.abort())) }
	m.s.start = func(k *fuse.Server) error {
		_, minor, err := Device(o.Dir)
		if err == nil {
			err = m.ring.Serve(m.s, k, f, minor)
		}
		return err
	}
}

// noRings says why the mount has no rings, if it was to have them.
func (m *Mount) noRings(why error) {
	if m.s.opt.Ring == RingYes {
		m.s.warn(fmt.Errorf("no FUSE over io_uring, requests are read from /dev/fuse: %w", why))
	}
}

// ringsStarted is the error of rings that the mount has been made with.
func (m *Mount) ringsStarted() error {
	err := m.s.started
	if err == nil {
		return nil
	}
	err = errors.Join(err, m.closeRings())
	if errors.Is(err, ring.ErrNotOffered) {
		m.noRings(err)
		return nil
	}
	// The kernel has been promised rings, and makes all requests wait for them.
	return &blockdev.NameError{Name: m.s.opt.Dir, Err: fmt.Errorf("cannot mount with FUSE over io_uring: %w", err)}
}

func (m *Mount) closeRings() error {
	if m.ring == nil {
		return nil
	}
	r := m.ring
	m.ring = nil
	return r.Close()
}

// options are those of the FUSE library.
func (m *Mount) options() *fuse.MountOptions {
	o := m.s.opt
	f := &fuse.MountOptions{
		Name: "btrlab", FsName: o.Source, AllowOther: o.AllowOther, MaxWrite: maxWrite, MaxBackground: maxBackground,
		EnableAcl: true, EnableSymlinkCaching: o.Atime != fs.Strictatime, ExplicitDataCacheControl: true, DisableSplice: true,
		Options: []string{"default_permissions"},
		ExtraCapabilities: fuse.CAP_DIRECT_IO_ALLOW_MMAP | fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_SETXATTR_EXT |
			fuse.CAP_DONT_MASK | fuse.CAP_ASYNC_DIO | fuse.CAP_READDIRPLUS_AUTO,
		Logger: log.New(io.Discard, "", 0),
		// A broken invariant of the engine ends the program: the image stays at its last commit.
		PanicHandler: func(v any) fuse.Status { panic(v) },
	}
	if o.KernelCache {
		f.ExtraCapabilities |= fuse.CAP_WRITEBACK_CACHE
	}
	if o.Debug != nil {
		f.Debug, f.Logger = true, log.New(lines(o.Debug), "", 0)
	}
	if f.DirectMountStrict = os.Geteuid() == 0; f.DirectMountStrict {
		f.DirectMountFlags = unix.MS_SILENT // without a flag the library makes it nosuid and nodev
	}
	for _, x := range o.flags() {
		switch {
		case f.DirectMountStrict:
			f.DirectMountFlags |= x.flag
		default:
			f.Options = append(f.Options, x.option)
		}
	}
	return f
}

// mountFlag is a flag of mount(2) and its name as an option.
type mountFlag struct {
	flag   uintptr
	option string
}

// flags are the mount's flags.
func (o *Options) flags() []mountFlag {
	var all []mountFlag
	for _, x := range []struct {
		on bool
		mountFlag
	}{{o.ReadOnly, mountFlag{unix.MS_RDONLY, "ro"}}, {o.NoSUID, mountFlag{unix.MS_NOSUID, "nosuid"}},
		{o.NoDev, mountFlag{unix.MS_NODEV, "nodev"}}, {o.NoExec, mountFlag{unix.MS_NOEXEC, "noexec"}},
		{o.Atime == fs.Noatime, mountFlag{unix.MS_NOATIME, "noatime"}}, {o.NoDirAtime, mountFlag{unix.MS_NODIRATIME, "nodiratime"}},
		// fusermount3 does not know the next one, and takes no harm from its absence.
		{o.Atime == fs.Strictatime && os.Geteuid() == 0, mountFlag{unix.MS_STRICTATIME, "strictatime"}}} {
		if x.on {
			all = append(all, x.mountFlag)
		}
	}
	return all
}

// Remount changes the flags of what is mounted at o.Dir: read-only, and what may be run there. It
// takes root. Linux tells the server nothing of it: to read-only, what was written is committed
// here, as btrfs_remount_ro() does.
func Remount(o Options) error {
	flags := uintptr(unix.MS_REMOUNT)
	for _, x := range o.flags() {
		flags |= x.flag
	}
	if err := unix.Mount("", o.Dir, "", flags, ""); err != nil {
		return &blockdev.NameError{Name: o.Dir, Err: fmt.Errorf("cannot remount: %w", err)}
	}
	if o.ReadOnly {
		if err := commit(o.Dir); err != nil {
			return &blockdev.NameError{Name: o.Dir, Err: fmt.Errorf("cannot commit: %w", err)}
		}
	}
	return nil
}

// commit asks the server of the mount at dir for a commit.
func commit(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return errors.Join(unix.Syncfs(int(d.Fd())), unix.IoctlSetInt(int(d.Fd()), ioctlSync, 0))
}

// lines is a writer of lines.
type lines func(line string)

func (f lines) Write(p []byte) (int, error) {
	f(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// Done is closed when the mount has ended and no request is under way.
func (m *Mount) Done() <-chan struct{} { return m.done }

// Frozen runs f while no request of the kernel is under way: those that come in wait. Models
// freeze_super().
func (m *Mount) Frozen(f func() error) error {
	m.s.gate.Lock()
	defer m.s.gate.Unlock()
	return f()
}

// Changed tells the kernel to ask again for the name path and for what it leads to: something has
// changed that was no call of the kernel's.
func (m *Mount) Changed(t *sched.Task, path string) {
	k := m.s.kernel.Load()
	known := func(path string) (id uint64) {
		n, err := m.s.fs.NodeAt(t, path)
		if err != nil {
			return 0
		}
		id = m.s.nodes.number(n)
		if err := n.Forget(t, 1); err != nil {
			m.s.warn(err)
		}
		return id
	}
	path = gopath.Clean(path)
	// What the kernel has cached of it is dropped, in the order of a lookup; what it does not know
	// it has not cached, and says so.
	if dir := known(gopath.Dir(path)); dir != 0 {
		k.EntryNotify(dir, gopath.Base(path))
		k.InodeNotify(dir, 0, 0)
	}
	if id := known(path); id != 0 {
		k.InodeNotify(id, 0, 0)
	}
}

// forgetWait bounds Forget, whose requests the kernel sends when it comes to it.
const forgetWait = time.Second

// Forget is Changed that waits until the kernel has let go of what it only remembers of the
// subvolume at path, so that it can be deleted; what programs have open stays.
func (m *Mount) Forget(t *sched.Task, path string) {
	n, err := m.s.fs.NodeAt(t, path)
	if err != nil {
		return
	}
	id := n.Subvol()
	if err := n.Forget(t, 1); err != nil {
		m.s.warn(err)
	}
	m.Changed(t, path)
	for end := time.Now().Add(forgetWait); m.s.nodes.knows(id) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// Unmount ends the mount; ErrBusy while its files are in use. With force it ends nevertheless: the
// programs that use it get errors from then on.
func (m *Mount) Unmount(force bool) error {
	root := os.Geteuid() == 0
	var err error
	if root {
		err = apart("unmount", m.s.opt.Dir)
	} else {
		err = m.fuse.Unmount() // by fusermount3
	}
	if err == nil || !force {
		if errors.Is(err, errno.EBUSY) || err != nil && strings.Contains(err.Error(), "busy") {
			return &blockdev.NameError{Name: m.s.opt.Dir, Err: ErrBusy}
		}
		return err
	}
	if err := apart("sync", m.s.opt.Dir); err != nil { // what the kernel has cached
		m.s.warn(err)
	}
	if root {
		return apart("detach", m.s.opt.Dir)
	}
	return m.abort()
}

// abort ends the mount whatever waits for it.
func (m *Mount) abort() error {
	_, minor, err := Device(m.s.opt.Dir)
	if err != nil {
		return err
	}
	return os.WriteFile("/sys/fs/fuse/connections/"+strconv.FormatUint(uint64(minor), 10)+"/abort", []byte("1"), 0)
}

// Device is the number of the device that is mounted at dir, or of that of dir. It does not wait
// for the file system there. The error is an errno.
func Device(dir string) (major, minor uint32, err error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return 0, 0, err
	}
	return st.Dev_major, st.Dev_minor, nil
}

// Release gives back the references that the kernel did not give back before the end: files that
// were open, and names that it remembered. The mount has ended.
func (m *Mount) Release(t *sched.Task) (err error) {
	m.s.handles.each(func(id uint64, h *handle) {
		if m.s.handles.drop(id); h.file != nil {
			err = errors.Join(err, h.file.Close(t))
		}
	})
	m.s.nodes.each(func(id uint64, k *known) {
		if n, refs := m.s.nodes.forget(id, k.count); n != nil {
			err = errors.Join(err, n.Forget(t, refs))
		}
	})
	return err
}
