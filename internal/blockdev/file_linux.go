//go:build !portable

package blockdev

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"btrlab/internal/errno"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

const (
	// alignment of memory under O_DIRECT; enough for every logical block size in use
	directAlign  = 4096
	bounceKept   = 16 // bounce buffers kept for reuse
	bounceMax    = 1 << 20
	iovMax       = 1024 // IOV_MAX
	sectorMin    = 512
	openAttempts = 8 // of a lock that a signal interrupts
)

var bounceClass = lockdep.NewClass("bounce")

// host is Linux's part of a File: pread, pwrite and their vector forms on the descriptor, and
// O_DIRECT.
type host struct {
	fd    int
	align int64 // of offsets and lengths under Direct

	bounceMu lock.Mutex // leaf; protects bounce
	bounce   [][]byte

	ring *ring // with Ring
}

// open opens path, locks it and refuses what is mounted.
func open(path string, mode int, flags Flags) (*File, error) {
	st, err := os.Stat(path)
	if err != nil && mode&os.O_CREATE == 0 {
		return nil, err
	}
	if err == nil && st.Mode()&os.ModeDevice != 0 && st.Mode()&os.ModeCharDevice == 0 && flags&ReadOnly == 0 {
		mode |= unix.O_EXCL // EBUSY when the kernel has it mounted or claimed
	}
	if flags&Direct != 0 {
		mode |= unix.O_DIRECT
	}
	fd, err := unix.Open(path, mode|unix.O_CLOEXEC, createMode)
	if err != nil {
		if errors.Is(err, unix.EBUSY) {
			return nil, &os.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: mounted or claimed by the kernel", ErrInUse)}
		}
		if errors.Is(err, unix.EINVAL) && flags&Direct != 0 {
			return nil, &os.PathError{Op: "open", Path: path, Err: fmt.Errorf("the file system under it has no O_DIRECT: %w", err)}
		}
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	d := &File{f: os.NewFile(uintptr(fd), path), name: path, flags: flags, host: host{fd: fd, align: sectorMin}}
	d.bounceMu.Init(bounceClass)
	if err = d.setup(); err == nil && flags&Ring != 0 {
		if d.ring, err = newRing(d); errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			d.spawns, err = true, nil
		}
	}
	if err != nil {
		d.f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return d, nil
}

// clone is Clone from the file of the image.
func (d *File) clone(to *os.File, at, off, n int64) error {
	r := unix.FileCloneRange{Src_fd: int64(d.fd), Src_offset: uint64(off), Src_length: uint64(n), Dest_offset: uint64(at)}
	switch err := unix.IoctlFileCloneRange(int(to.Fd()), &r); {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%w: %w", ErrNoClone, err)
	default:
		return err
	}
}

// setup finds size and kind, locks, and refuses what is mounted.
func (d *File) setup() error {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		d.size = st.Size
		if d.flags&Direct != 0 {
			d.align = directAlign
		}
	case unix.S_IFBLK:
		d.block = true
		var size uint64
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), unix.BLKGETSIZE64, uintptr(unsafe.Pointer(&size))); e != 0 {
			return fmt.Errorf("BLKGETSIZE64: %w", e)
		}
		d.size = int64(size)
		if n, err := unix.IoctlGetInt(d.fd, unix.BLKSSZGET); err == nil && n > 0 {
			d.align = int64(n)
		}
	default:
		return errors.New("neither a regular file nor a block device")
	}
	if !d.block || d.flags&Managed == 0 {
		if err := d.flock(); err != nil {
			return err
		}
	}
	if d.flags&ReadOnly != 0 {
		return nil
	}
	if where := mounted(&st); where != "" {
		return fmt.Errorf("%w: %s", ErrInUse, where)
	}
	return nil
}

// flock locks the file, exclusively unless it is open for reading only.
func (d *File) flock() error {
	how := unix.LOCK_EX | unix.LOCK_NB
	if d.flags&ReadOnly != 0 {
		how = unix.LOCK_SH | unix.LOCK_NB
	}
	var err error
	for range openAttempts {
		if err = unix.Flock(d.fd, how); err != unix.EINTR {
			break
		}
	}
	if err == unix.EWOULDBLOCK {
		return fmt.Errorf("%w: locked by another process", ErrInUse)
	}
	if err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	return nil
}

// mounted says where the file is mounted; "" when it is not.
func (d *File) mounted() string {
	var st unix.Stat_t
	if unix.Fstat(d.fd, &st) != nil {
		return ""
	}
	return mounted(&st)
}

// sync makes what was written durable.
func (d *File) sync() error {
	for {
		if err := unix.Fdatasync(d.fd); err != unix.EINTR {
			return err
		}
	}
}

// direct is transfer under O_DIRECT.
func (d *File) direct(t *sched.Task, b *Bio) error {
	n := int64(b.Len())
	if b.Off%d.align != 0 || n%d.align != 0 {
		return errno.EINVAL
	}
	if d.aligned(b) {
		return d.transfer(b.Op, b.Vecs, b.Off)
	}
	buf := d.getBounce(t)
	defer d.putBounce(t, buf)
	vecs, in := b.Vecs, 0 // the next byte is vecs[0][in]
	for off := b.Off; off < b.Off+n; {
		part := buf[:min(int64(len(buf)), b.Off+n-off)]
		if b.Op == OpRead {
			if err := d.transfer(OpRead, [][]byte{part}, off); err != nil {
				return err
			}
		}
		for c := part; len(c) > 0; {
			var k int
			if b.Op == OpRead {
				k = copy(vecs[0][in:], c)
			} else {
				k = copy(c, vecs[0][in:])
			}
			c, in = c[k:], in+k
			if in == len(vecs[0]) {
				vecs, in = vecs[1:], 0
			}
		}
		if b.Op == OpWrite {
			if err := d.transfer(OpWrite, [][]byte{part}, off); err != nil {
				return err
			}
		}
		off += int64(len(part))
	}
	return nil
}

// aligned reports whether O_DIRECT takes the memory of b.
func (d *File) aligned(b *Bio) bool {
	for _, v := range b.Vecs {
		if len(v) > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(v)))%directAlign != 0 || int64(len(v))%d.align != 0 {
			return false
		}
	}
	return true
}

func (d *File) getBounce(t *sched.Task) []byte {
	d.bounceMu.Lock(t)
	if n := len(d.bounce); n > 0 {
		p := d.bounce[n-1]
		d.bounce = d.bounce[:n-1]
		d.bounceMu.Unlock(t)
		return p
	}
	d.bounceMu.Unlock(t)
	p := make([]byte, bounceMax+directAlign)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) & (directAlign - 1)
	return p[skip : skip+bounceMax : skip+bounceMax]
}

func (d *File) putBounce(t *sched.Task, p []byte) {
	d.bounceMu.Lock(t)
	if len(d.bounce) < bounceKept {
		d.bounce = append(d.bounce, p)
	}
	d.bounceMu.Unlock(t)
}

// transfer moves vecs from or to offset off, however many system calls that takes.
func (d *File) transfer(op Op, vecs [][]byte, off int64) error {
	in := 0 // the next byte is vecs[0][in]
	for {
		for len(vecs) > 0 && in == len(vecs[0]) {
			vecs, in = vecs[1:], 0
		}
		if len(vecs) == 0 {
			return nil
		}
		var n int
		var err error
		switch {
		case in > 0 || len(vecs) == 1:
			if op == OpRead {
				n, err = unix.Pread(d.fd, vecs[0][in:], off)
			} else {
				n, err = unix.Pwrite(d.fd, vecs[0][in:], off)
			}
		case op == OpRead:
			n, err = unix.Preadv(d.fd, vecs[:min(len(vecs), iovMax)], off)
		default:
			n, err = unix.Pwritev(d.fd, vecs[:min(len(vecs), iovMax)], off)
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 { // the file was cut short under us
			return errno.EIO
		}
		off += int64(n)
		for n > 0 {
			k := min(n, len(vecs[0])-in)
			n, in = n-k, in+k
			if in == len(vecs[0]) {
				vecs, in = vecs[1:], 0
			}
		}
	}
}
