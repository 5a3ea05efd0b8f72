//go:build !portable

package conform

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/hostio"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
)

// newFSID is another one for each image: the kernel mounts no two file systems of one.
func newFSID() (u format.UUID) {
	_, _ = rand.Read(u[:]) // never fails
	return u
}

// tracedKernel reads the tracepoints.
type tracedKernel struct {
	dir    string
	tracer *hostio.Tracer
	enums  map[string]int64
	bits   []bit // of io trees, ascending
	types  []bit // of ordered extents
	flush  map[int64]string
}

type bit struct {
	mask int64
	name string
}

func openKernel(dir string) (*tracedKernel, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("conform needs root: it mounts an image and reads the kernel's tracepoints")
	}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil || !bytes.Contains(known, []byte("\tbtrfs\n")) {
		return nil, errors.New("this kernel has no btrfs (modprobe btrfs?)")
	}
	names := make([]string, 0, len(tracepoints)+len(formerly))
	for i := range tracepoints {
		if tp := &tracepoints[i]; !tp.function() && tp.name != answered {
			names = append(names, tp.name)
		}
	}
	names = append(names, slices.Collect(maps.Keys(formerly))...)
	k := &tracedKernel{dir: dir, flush: map[int64]string{}}
	list, err := probes()
	if err != nil {
		return nil, err
	}
	if k.tracer, err = hostio.NewTracer(names, list...); err != nil {
		return nil, err
	}
	k.tracer.Missing = withoutFormer(k.tracer.Missing)
	err = k.readEnums()
	for _, name := range []string{"inode_lock", "inode_lock_killable", "inode_unlock", "inode_lock_shared", "inode_unlock_shared"} {
		// Most rw_semaphores are in no inode of a file system whose device number has no major.
		if err == nil && k.tracer.Refused == nil {
			err = k.tracer.Filter(functions+name, fmt.Sprintf("sdev > 0 && sdev < %d", 1<<20))
		}
	}
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// readEnums learns the kernel's own numbers for the bits, whose order changes from version to
// version.
func (k *tracedKernel) readEnums() (err error) {
	wanted := []string{"EXTENT_", "BTRFS_ORDERED_", "FLUSH_", "ALLOC_CHUNK", "RUN_DELAYED_IPUTS", "COMMIT_TRANS", "RESET_ZONES", "IO_TREE_"}
	k.enums, err = hostio.KernelEnums("btrfs", func(name string) bool {
		return slices.ContainsFunc(wanted, func(p string) bool { return strings.HasPrefix(name, p) })
	})
	if err != nil {
		return err
	}
	if _, ok := k.enums["EXTENT_LOCKED"]; !ok {
		// They were macros once, which type information does not have.
		older := macros(hostio.Release())
		if older == nil {
			return errors.New("the kernel's type information has no EXTENT_LOCKED, and no table of this version is here: what the bits of io trees mean is unknown")
		}
		for name, n := range older {
			if _, ok := k.enums[name]; !ok {
				k.enums[name] = n
			}
		}
	}
	for name, n := range k.enums {
		short, isBit := strings.CutPrefix(name, "EXTENT_")
		switch {
		case isBit && !strings.HasPrefix(short, "FLAG_") && !strings.HasPrefix(short, "BUFFER_"):
			k.bits = append(k.bits, bit{n, short})
		case slices.Contains([]string{"BTRFS_ORDERED_REGULAR", "BTRFS_ORDERED_NOCOW", "BTRFS_ORDERED_PREALLOC"}, name):
			k.types = append(k.types, bit{1 << n, strings.TrimPrefix(name, "BTRFS_ORDERED_")})
		case strings.HasPrefix(name, "FLUSH_") || strings.HasPrefix(name, "ALLOC_") || strings.HasPrefix(name, "RUN_") || strings.HasPrefix(name, "COMMIT_") || name == "RESET_ZONES":
			if n < 16 {
				k.flush[n] = name
			}
		}
	}
	byMask := func(a, b bit) int { return int(a.mask - b.mask) }
	slices.SortFunc(k.bits, byMask)
	slices.SortFunc(k.types, byMask)
	return nil
}

// Close gives the tracepoints back.
func (k *tracedKernel) Close() error { return k.tracer.Close() }

// Missing are the tracepoints of the table that this kernel does not have.
func (k *tracedKernel) Missing() []string { return k.tracer.Missing }

// Refused is why the kernel gives no events at the entry of functions, or nil.
func (k *tracedKernel) Refused() error { return k.tracer.Refused }

// Release is the kernel's version.
func (k *tracedKernel) Release() string { return hostio.Release() }

// names are the bits of v.
func names(list []bit, v int64) string {
	var s []string
	for _, b := range list {
		if v&b.mask != 0 {
			s = append(s, b.name)
		}
	}
	return strings.Join(s, "|")
}

// run does an operation on a copy of the image, mounted.
func (k *tracedKernel) run(image *blockdev.Memory, op *Op) (list []Event, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = k.mount(image, op, func(h *host, m *mounted) error {
		m.tids = []int{unix.Gettid()}
		list, err = k.traced(m, func() error { return script(h, op.Do) })
		for _, what := range h.answers {
			if e, ok := abstract(Caller, sched.TraceEvent{Name: short(answered), What: what}); ok {
				list = append(list, e)
			}
		}
		return err
	})
	return list, err
}

// mount gives use a mounted copy of the image, on which the operation's setup has run.
func (k *tracedKernel) mount(image *blockdev.Memory, op *Op, use func(h *host, m *mounted) error) (err error) {
	dir, err := os.MkdirTemp(k.dir, "conform")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, mnt := filepath.Join(dir, "img"), filepath.Join(dir, "mnt")
	fsid, err := writeImage(image, file)
	if err != nil {
		return err
	}
	if err := os.Mkdir(mnt, 0o700); err != nil {
		return err
	}
	m, err := hostio.MountLoop(file, mnt, "btrfs", "commit=300,nodiscard,thread_pool=1")
	if err != nil {
		return err
	}
	h := &host{dir: mnt, mount: m, files: map[string]*os.File{}}
	defer func() { err = errors.Join(err, h.end(), m.Close()) }()
	bdi, err := bdiOf(fsid)
	if err != nil {
		return err
	}
	sdev, err := deviceOf(mnt)
	if err != nil {
		return err
	}
	if err := setUp(h, op); err != nil {
		return err
	}
	return use(h, &mounted{fsid: fsid, dev: m.Dev, bdi: bdi, sdev: sdev})
}

// traced are the steps of do, and of what the kernel's workers do then.
func (k *tracedKernel) traced(m *mounted, do func() error) ([]Event, error) {
	time.Sleep(settle)
	if err := k.tracer.Start(); err != nil {
		return nil, err
	}
	err := do()
	time.Sleep(settle)
	records, serr := k.tracer.Stop()
	if err = errors.Join(err, serr); err != nil {
		return nil, err
	}
	return k.events(records, m), nil
}

// mounted tells the events of our file system from those of others.
type mounted struct {
	tids []int // of the callers
	fsid format.UUID
	dev  uint32 // of the loop device
	bdi  string // the name that events of writeback have
	sdev uint32 // of the superblock: the number that inodes of other file systems do not have
}

// has reports whether an event is of the file system.
func (m *mounted) has(r *hostio.TraceRecord) bool {
	switch {
	case r.Has("fsid"):
		return bytes.Equal(r.Bytes("fsid"), m.fsid[:])
	case r.Has("dev"):
		return uint32(r.Int("dev")) == m.dev
	case r.Has("sdev"):
		return uint32(r.Int("sdev")) == m.sdev
	case r.Has("s_dev"):
		return uint32(r.Int("s_dev")) == m.sdev
	case strings.HasPrefix(r.Name, functions): // snapshot_lock says nothing of whose it is
		return slices.Contains(m.tids, r.TID)
	}
	return r.String("name") == m.bdi
}

// lane is that of a record's task: the first caller, the second, or neither.
func (m *mounted) lane(r *hostio.TraceRecord) Lane {
	switch i := slices.Index(m.tids, r.TID); {
	case i < 0 || r.Interrupt:
		return Elsewhere
	case i == 0:
		return Caller
	}
	return Second
}

// bdiOf is the name of a mounted file system's backing_dev_info.
func bdiOf(fsid format.UUID) (string, error) {
	link, err := os.Readlink(filepath.Join("/sys/fs/btrfs", fsid.String(), "bdi"))
	return filepath.Base(link), err
}

// deviceOf is the device number of the superblock that is mounted at dir, as the kernel has it.
func deviceOf(dir string) (uint32, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var id, parent int
		var major, minor uint32
		var root, at string
		if n, _ := fmt.Sscanf(line, "%d %d %d:%d %s %s", &id, &parent, &major, &minor, &root, &at); n == 6 && at == dir {
			return major<<20 | minor, nil
		}
	}
	return 0, fmt.Errorf("%s is not in mountinfo", dir)
}

// settle is how long the kernel's workers have for what the operation, or its setup, began.
const settle = 60 * time.Millisecond

// writeImage copies an image into a file.
func writeImage(image *blockdev.Memory, path string) (fsid format.UUID, err error) {
	f, err := os.Create(path)
	if err != nil {
		return fsid, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(image.Size()); err != nil {
		return fsid, err
	}
	t := sched.NewTask("copy")
	if err := blockdev.Read(t, image, fsid[:], format.SuperOffset+32); err != nil {
		return fsid, err
	}
	return fsid, blockdev.CopyTo(t, image, f)
}

// events makes Events of the records that are of our file system.
func (k *tracedKernel) events(records []hostio.TraceRecord, m *mounted) (list []Event) {
	made := map[int64]bool{}   // blocks that have a place and were not locked yet
	isize := map[int64]int64{} // of files, by number, as the caller's steps have shown it
	records = withoutLevelLooks(renamed(records))
	for i := range records {
		r := &records[i]
		if !m.has(r) {
			continue
		}
		e, ok := k.event(r)
		if !ok {
			continue
		}
		switch block := r.Int("block"); {
		case e.Name == "btrfs_reserve_extent" && e.What != "DATA":
			made[r.Int("start")] = true
		case e.Name == "btrfs_tree_lock" && made[block]:
			delete(made, block)
			e.Root = 0 // its header is what was in the memory before
		}
		lane := m.lane(r)
		if sights[e.Name] && lane != Elsewhere && r.Int("mode")&int64(format.S_IFMT) == int64(format.S_IFREG) {
			ino, now := r.Int("ino"), r.Int("isize")
			if before, ok := isize[ino]; ok && before != now {
				if ev, ok := abstract(lane, sched.TraceEvent{Name: "i_size_write", Len: uint64(now)}); ok {
					list = append(list, ev)
				}
			}
			isize[ino] = now
		}
		if ev, ok := abstract(lane, e); ok {
			list = append(list, ev)
		}
	}
	return list
}

// withoutLevelLooks leaves out where a thread read-locks a block, unlocks it and locks it for
// writing at once: btrfs_search_slot() has learned the level of a root. See leftOut.
func withoutLevelLooks(records []hostio.TraceRecord) []hostio.TraceRecord {
	last := map[int][2]int{} // by thread: the last two records, from 1 on
	drop := make([]bool, len(records))
	is := func(i int, name string, block int64) bool {
		return i > 0 && records[i-1].Name == name && records[i-1].Int("block") == block
	}
	for i := range records {
		r := &records[i]
		l := last[r.TID]
		if b := r.Int("block"); r.Name == "btrfs:btrfs_tree_lock" && is(l[1], "btrfs:btrfs_tree_read_unlock", b) && is(l[0], "btrfs:btrfs_tree_read_lock", b) {
			drop[l[0]-1], drop[l[1]-1] = true, true
		}
		last[r.TID] = [2]int{l[1], i + 1}
	}
	var keep []hostio.TraceRecord
	for i := range records {
		if !drop[i] {
			keep = append(keep, records[i])
		}
	}
	return keep
}

// event reads a record's fields; false leaves it out, see leftOut.
func (k *tracedKernel) event(r *hostio.TraceRecord) (sched.TraceEvent, bool) {
	e := sched.TraceEvent{Name: short(r.Name)}
	u := func(field string) uint64 { return uint64(r.Int(field)) }
	switch e.Name {
	case "btrfs_set_extent_bit", "btrfs_clear_extent_bit", "btrfs_convert_extent_bit":
		if r.Int("owner") != k.enums["IO_TREE_INODE_IO"] {
			return e, false
		}
		e.Start, e.Len = u("start"), u("len")
		e.What = names(k.bits, r.Int("set_bits")|r.Int("clear_bits"))
		switch {
		case strings.Contains(e.What, "CLEAR_ALL_BITS"):
			e.What = "ALL"
		case strings.Contains(e.What, "BOUNDARY|"):
			e.What = "ANY" // whatever a page that is released may have left
		}
	case "btrfs_ordered_extent_add", "btrfs_ordered_extent_split", "btrfs_ordered_extent_start", "btrfs_ordered_extent_mark_finished", "btrfs_ordered_extent_remove":
		e.Start, e.Len, e.What = u("file_offset"), u("len"), names(k.types, r.Int("flags"))
	case "btrfs_finish_ordered_extent", "btrfs_reserved_extent_alloc", "btrfs_reserved_extent_free":
		e.Len = u("len")
	case "update_bytes_may_use":
		e.What, e.Val = spaceType(r.Int("type")), r.Int("diff")
	case "btrfs_space_reservation":
		e.What, e.Val = r.String("type"), r.Int("bytes")
		if r.Int("reserve") == 0 {
			e.Val = -e.Val
		}
		return e, !strings.HasPrefix(e.What, "space_info")
	case "btrfs_reserve_ticket":
		e.What, e.Len = spaceType(r.Int("flags")), u("bytes")
	case "btrfs_flush_space":
		e.What = k.flush[r.Int("state")] + " " + spaceType(r.Int("flags"))
	case "btrfs_inode_mod_outstanding_extents":
		e.Val = r.Int("mod")
	case "btrfs_tree_lock", "btrfs_tree_unlock", "btrfs_tree_read_lock", "btrfs_tree_read_unlock", "btrfs_try_tree_read_lock":
		e.Root = u("owner")
	case "btrfs_cow_block":
		e.Root, e.Val = u("root_objectid"), r.Int("buf_level")
	case "add_delayed_ref_head":
		e.What, e.Len = refAction(r.Int("action"))+" TREE", u("num_bytes")
		if r.Int("is_data") != 0 {
			e.What = refAction(r.Int("action")) + " DATA"
		}
	case "add_delayed_tree_ref", "run_delayed_tree_ref":
		e.What, e.Root, e.Val = refAction(r.Int("action")), u("ref_root"), r.Int("level")
	case "add_delayed_data_ref", "run_delayed_data_ref":
		e.What, e.Root, e.Start, e.Len = refAction(r.Int("action")), u("ref_root"), u("offset"), u("num_bytes")
	case "btrfs_get_extent":
		e.Start, e.Len = u("start"), u("len")
	case "btrfs_reserve_extent":
		e.What, e.Len = spaceType(r.Int("flags")), u("len")
	case "btrfs_sync_fs":
		return e, r.Int("wait") != 0
	case "extent_writepage":
		e.Val = r.Int("index")
	case "writeback_dirty_folio":
		e.Val = r.Int("index")
		return e, r.Int("ino") >= int64(format.FIRST_FREE_OBJECTID)
	case "mm_filemap_add_to_page_cache", "mm_filemap_delete_from_page_cache":
		e.Val = r.Int("index")
		return e, r.Int("i_ino") >= int64(format.FIRST_FREE_OBJECTID)
	case "inode_lock", "inode_lock_killable", "inode_unlock", "inode_lock_shared", "inode_unlock_shared":
		e.Name = strings.TrimSuffix(e.Name, "_killable")
		switch r.Int("mode") & int64(format.S_IFMT) {
		case int64(format.S_IFDIR):
			e.What = "dir"
		case int64(format.S_IFREG), int64(format.S_IFLNK):
			e.What = "file"
		}
		// What lies around another semaphore may look like an inode, but hardly in everything:
		// i_mmap_lock is beside an inode of ours.
		ino := r.Int("ino")
		return e, e.What != "" && ino >= int64(format.FIRST_FREE_OBJECTID) && ino < 1<<16
	case "btrfs_wait_ordered_range":
		e.Start, e.Len = u("start"), u("len")
	case "btrfs_inode_safe_disk_i_size_write":
		if e.Len = u("size"); e.Len == 0 {
			e.Len = u("isize")
		}
	case "folio_unlock", "folio_end_read", "folio_wait_writeback", "folio_start_writeback", "folio_end_writeback":
		if e.Val = r.Int("index"); e.Name == "folio_end_read" {
			e.Name = "folio_unlock"
		}
		return e, r.Int("ino") >= int64(format.FIRST_FREE_OBJECTID)
	case "block_bio_queue":
		e.Len = 512 * u("nr_sector")
		e.What = bioKind(r.String("rwbs"), e.Len)
	}
	return e, true
}

func spaceType(flags int64) string {
	switch {
	case flags&format.BlockGroupData != 0:
		return "DATA"
	case flags&format.BlockGroupSystem != 0:
		return "SYSTEM"
	}
	return "METADATA"
}

func refAction(action int64) string {
	return [...]string{"?", "ADD_DELAYED_REF", "DROP_DELAYED_REF", "ADD_DELAYED_EXTENT", "UPDATE_DELAYED_HEAD"}[max(0, min(action, 4))]
}

// bioKind is R, W, or F of an empty write that flushes.
func bioKind(rwbs string, bytes uint64) string {
	if bytes == 0 {
		return "F"
	}
	return strings.TrimPrefix(rwbs, "F")[:1]
}

// host is the machine of the kernel.
type host struct {
	dir   string
	mount *hostio.Mount
	files map[string]*os.File // "D" before the name of those that are open with O_DIRECT

	answers []string // of the steps that may fail
}

func (h *host) answer(what string) { h.answers = append(h.answers, what) }

func (h *host) end() error {
	var errs []error
	for _, f := range h.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) open(name string, direct bool) (*os.File, error) {
	key, flags := name, os.O_RDWR
	if direct {
		key, flags = "D"+name, os.O_RDWR|unix.O_DIRECT
	}
	if f := h.files[key]; f != nil {
		return f, nil
	}
	f, err := os.OpenFile(h.path(name), flags, 0)
	if err == nil {
		h.files[key] = f
	}
	return f, err
}

func (h *host) fd(name string) (int, error) {
	f, err := h.open(name, false)
	if err != nil {
		return -1, err
	}
	return int(f.Fd()), nil
}

func (h *host) create(name string) error {
	f, err := os.OpenFile(h.path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err == nil {
		h.files[name] = f
	}
	return err
}

func (h *host) write(name string, off, n int64, how kiocb.Flags) error {
	f, err := h.open(name, how&kiocb.Direct != 0)
	if err != nil {
		return err
	}
	p := hostio.Aligned(int(n))
	copy(p, content(n))
	flags := 0
	if how&kiocb.Nowait != 0 {
		flags |= unix.RWF_NOWAIT
	}
	if how&kiocb.DSync != 0 {
		flags |= unix.RWF_DSYNC
	}
	if flags == 0 {
		_, err = f.WriteAt(p, off)
		return err
	}
	wrote, err := unix.Pwritev2(int(f.Fd()), [][]byte{p}, off, flags)
	if err == nil && int64(wrote) < n {
		err = io.ErrShortWrite
	}
	return err
}

func (h *host) read(name string, off, n int64, how kiocb.Flags) error {
	f, err := h.open(name, how&kiocb.Direct != 0)
	if err != nil {
		return err
	}
	p := hostio.Aligned(int(n))
	copy(p, content(n)) // pages that are not there yet would turn a direct read into a buffered one
	if how&kiocb.Nowait != 0 {
		_, err = unix.Preadv2(int(f.Fd()), [][]byte{p}, off, unix.RWF_NOWAIT)
		return err
	}
	if _, err = f.ReadAt(p, off); errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

func (h *host) fault(name string, off int64) error {
	fd, err := h.fd(name)
	if err != nil {
		return err
	}
	mem, err := unix.Mmap(fd, off, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if mem[0] != content(1)[0] {
		err = fmt.Errorf("mapped byte at %d is %#x", off, mem[0])
	}
	return errors.Join(err, unix.Munmap(mem))
}

func (h *host) store(name string, off int64) error {
	fd, err := h.fd(name)
	if err != nil {
		return err
	}
	mem, err := unix.Mmap(fd, off, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	mem[0] = ^content(1)[0]
	return unix.Munmap(mem)
}

func (h *host) truncate(name string, size int64) error {
	f, err := h.open(name, false)
	if err != nil {
		return err
	}
	return f.Truncate(size)
}

func (h *host) fallocate(name string, mode uint32, off, n int64) error {
	fd, err := h.fd(name)
	if err != nil {
		return err
	}
	return unix.Fallocate(fd, mode, off, n)
}

func (h *host) fsync(name string) error {
	if f := h.files[name]; f != nil {
		return f.Sync()
	}
	f, err := os.Open(h.path(name))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (h *host) sync() error { return h.mount.Sync() }

func (h *host) nosum() error {
	return unix.Mount("none", h.dir, "btrfs", unix.MS_REMOUNT|unix.MS_NOATIME, "nodatasum")
}

func (h *host) start(name string) error {
	fd, err := h.fd(name)
	if err != nil {
		return err
	}
	return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

func (h *host) drop(name string) error {
	fd, err := h.fd(name)
	if err != nil {
		return err
	}
	return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
}

func (h *host) nocow(name string) error {
	fd, err := h.fd(name)
	if err != nil {
		return err
	}
	const nocowFlag = 0x00800000 // FS_NOCOW_FL
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, nocowFlag)
}

func (h *host) close(name string) error {
	var errs []error
	for _, key := range []string{name, "D" + name} {
		if f := h.files[key]; f != nil {
			errs = append(errs, f.Close())
			delete(h.files, key)
		}
	}
	return errors.Join(errs...)
}

func (h *host) mkdir(name string) error           { return os.Mkdir(h.path(name), 0o755) }
func (h *host) rmdir(name string) error           { return unix.Rmdir(h.path(name)) }
func (h *host) link(old, name string) error       { return os.Link(h.path(old), h.path(name)) }
func (h *host) unlink(name string) error          { return unix.Unlink(h.path(name)) }
func (h *host) rename(old, name string) error     { return unix.Rename(h.path(old), h.path(name)) }
func (h *host) symlink(target, name string) error { return os.Symlink(target, h.path(name)) }
func (h *host) snapshot(name string) error        { return hostio.Snapshot(h.dir, h.path(name)) }
func (h *host) chmod(name string) error           { return unix.Chmod(h.path(name), 0o600) }

func (h *host) setxattr(name string) error {
	return unix.Setxattr(h.path(name), "user.k", []byte("value"), 0)
}

func (h *host) reflink(src, name string) error {
	from, err := h.fd(src)
	if err != nil {
		return err
	}
	to, err := h.fd(name)
	if err != nil {
		return err
	}
	return unix.IoctlFileClone(to, from)
}

func (h *host) fill(name string) error {
	fd, err := h.fd(name)
	if err != nil {
		return err
	}
	return fill(func(off, n int64) error { return unix.Fallocate(fd, 0, off, n) })
}
