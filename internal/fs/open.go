package fs

import (
	"errors"
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/treelog"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// compatROWritable is the compat_ro features that a writer here keeps right.
const compatROWritable = format.CompatROFreeSpaceTree | format.CompatROFreeSpaceTreeValid | format.CompatROBlockGroupTree

// readSuper reads and checks the primary superblock, as the kernel does: a good copy does not help.
func readSuper(t *sched.Task, dev blockdev.Device) (*format.Super, error) {
	if dev.Size() < format.SuperOffset+format.SuperSize {
		return nil, fmt.Errorf("not a btrfs: %d bytes are too small for a superblock at %d", dev.Size(), format.SuperOffset)
	}
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(t, dev, b, format.SuperOffset); err != nil {
		return nil, fmt.Errorf("read superblock at %d: %w", format.SuperOffset, err)
	}
	if err := format.CheckSuper(b, dev.Size()); err != nil {
		return nil, err
	}
	sb := new(format.Super)
	sb.Decode(b)
	return sb, nil
}

// checkWritable says why an image that can be read must not be written by this program.
func checkWritable(sb *format.Super) error {
	switch {
	case sb.Flags&format.SuperFlagSeeding != 0:
		return errors.New("image is a seed device: open read-only")
	case sb.Metadump():
		return errors.New("image was restored by btrfs-image and has no file data: open read-only")
	case sb.CompatROFlags&^compatROWritable != 0:
		return fmt.Errorf("unsupported feature for writing: compat_ro %#x: open read-only", sb.CompatROFlags&^compatROWritable)
	}
	return nil
}

// Open reads the trees of the image on devs, all devices of one file system in any order, in the
// order of labs/reference 10.2: superblocks, system chunks, chunk tree, root tree, the trees that
// every file system has, block groups, and when it may write, orphans. Errors are one line that
// starts with the name of a device.
func Open(t *sched.Task, devs []blockdev.Device, o Options) (*FS, error) {
	if len(devs) == 0 {
		return nil, errors.New("have no device, want those of the file system")
	}
	f, err := open(t, devs, o)
	if err != nil {
		if _, ok := err.(*blockdev.NameError); ok {
			return nil, err
		}
		return nil, blockdev.Errorf(devs[0], "%w", err)
	}
	return f, nil
}

// readMembers reads the superblock of each device.
func readMembers(t *sched.Task, devs []blockdev.Device) ([]volumes.Member, error) {
	members := make([]volumes.Member, len(devs))
	for i, dev := range devs {
		sb, err := readSuper(t, dev)
		if err != nil {
			return nil, blockdev.Errorf(dev, "%w", err)
		}
		members[i] = volumes.Member{Dev: dev, Super: sb}
	}
	return members, nil
}

// settle replays the log, and leaves devices that are missing a generation too old.
func (f *FS) settle(t *sched.Task, sb *format.Super) error {
	if sb.LogRoot != 0 {
		if err := f.replayLog(t, sb); err != nil {
			return &logError{sb.LogRoot, err}
		}
	}
	return f.trans.LeaveBehind(t)
}

func open(t *sched.Task, devs []blockdev.Device, o Options) (*FS, error) {
	members, err := readMembers(t, devs)
	if err != nil {
		return nil, err
	}
	sb := volumes.Newest(members)
	if !o.ReadOnly {
		if err := checkWritable(sb); err != nil {
			return nil, err
		}
	}
	vols, err := volumes.Open(members, o.Degraded)
	if err != nil {
		return nil, err
	}
	f := &FS{opt: o, vols: vols}
	vols.LostCopy = o.LostCopy
	if f.opt.Now == nil {
		f.opt.Now = new(sched.CoarseClock).Now
	}
	if f.opt.Memory == 0 && t.Runtime() == nil && f.opt.CacheLimit == 0 {
		f.opt.Memory = DefaultMemory()
	}
	f.opt.bound(sb.NodeSize)
	if f.opt.Policy == nil {
		f.opt.Policy = policy.MustParse("locked")
	}
	if f.trans, err = transaction.Open(t, transaction.Config{Volumes: vols, Super: sb, ReadOnly: o.ReadOnly, CacheBlocks: f.opt.CacheBlocks, NewNode: o.NewNode, BadCopy: o.BadCopy,
		DirtyLimit: f.opt.DirtyMetadata}); err != nil {
		return nil, err
	}
	if !o.ReadOnly {
		f.trans.Extents.SetDiscard(o.Discard)
	}
	top, err := f.checkRoots(t)
	if err != nil {
		return nil, err
	}
	f.store = fstree.New(f.trans.Forest, f.trans.Extents, f.trans.Root(format.CSUM_TREE_OBJECTID), uint64(sb.SectorSize))
	f.store.Extref = sb.IncompatFlags&format.IncompatExtendedIref != 0
	f.store.Holes = sb.IncompatFlags&format.IncompatNoHoles == 0
	f.logs = treelog.NewLogs()
	vol, err := f.newSubvol(t, f.trans.Root(format.FS_TREE_OBJECTID), top)
	if err != nil {
		return nil, err
	}
	f.subvols = map[uint64]*subvol{format.FS_TREE_OBJECTID: vol}
	f.wire(t)
	if !o.ReadOnly {
		if err := f.settle(t, sb); err != nil {
			f.stop(t)
			return nil, err
		}
	}
	f.startCommitter(t) // replay is alone, and commits by itself
	if f.top, err = f.iget(t, vol, format.FIRST_FREE_OBJECTID); err == nil && !f.top.IsDir() {
		err = fmt.Errorf("inode %d has mode %o, want a directory", f.top.ip.Ino, f.top.typ)
	}
	if err != nil {
		f.stop(t)
		return nil, fmt.Errorf("read top directory: %w", err)
	}
	if f.base, err = f.findBase(t, sb); err != nil {
		f.put(t, f.top)
		f.stop(t)
		return nil, err
	}
	if !o.ReadOnly {
		if err := f.finishDeletes(t); err != nil {
			f.putBase(t)
			f.put(t, f.top)
			f.stop(t)
			return nil, err
		}
	}
	return f, nil
}

// ErrLog is an open that could not replay the log of fsync. The image is as it was.
var ErrLog = errors.New("bad log")

// logError is err of the log at bytenr; it is ErrLog.
type logError struct {
	bytenr uint64
	err    error
}

func (e *logError) Error() string        { return fmt.Sprintf("replay log tree at %d: %v", e.bytenr, e.err) }
func (e *logError) Unwrap() error        { return e.err }
func (e *logError) Is(target error) bool { return target == ErrLog }

// replayLog replays what fsync logged after the last commit, and commits it. No inode is in memory
// yet. After an error the image is as it was. A read-only open leaves the log alone and shows the
// last commit, as Linux does under rescue=nologreplay.
func (f *FS) replayLog(t *sched.Task, sb *format.Super) error {
	h, err := f.trans.Join(t)
	if err != nil {
		return err
	}
	c := treelog.Config{Store: f.store, Extents: f.trans.Extents, Subvol: f.loggedSubvol, Policy: f.Policy().Set}
	if err := treelog.Replay(t, h.Trans(), c, sb.LogRoot, int(sb.LogRootLevel), sb.Generation+1); err != nil {
		return f.abort(t, h, err)
	}
	if err := f.end(t, h, nil); err != nil {
		return err
	}
	for _, v := range f.subvols {
		if err := f.steps.numberInodes(f, t, v); err != nil {
			return err
		}
	}
	return f.trans.Commit(t)
}

// numberInodes finds the number of the subvolume's next inode.
func (f *FS) numberInodes(t *sched.Task, v *subvol) error {
	next, err := f.store.NextObjectid(t, v.root)
	if err == nil {
		v.nextIno.Store(next)
	}
	return err
}

// loggedSubvol opens a subvolume that has a log and leaves its orphans for later.
func (f *FS) loggedSubvol(t *sched.Task, id uint64) (*ctree.Root, error) {
	v := f.subvols[id]
	if v == nil {
		var err error
		if v, err = f.openSubvol(t, id); err != nil {
			return nil, err
		}
		f.subvols[id] = v
	}
	return v.root, v.frozen
}

// finishDeletes finishes the deletes that the last mount began: of inodes in the subvolumes that
// are open, and of subvolumes.
func (f *FS) finishDeletes(t *sched.Task) error {
	for _, v := range f.subvols {
		if err := f.cleanOrphans(t, v); err != nil {
			return fmt.Errorf("delete orphan inodes: %w", err)
		}
	}
	dead, err := f.trans.DeadSubvols(t)
	if err != nil {
		return fmt.Errorf("find deleted subvolumes: %w", err)
	}
	for _, id := range dead {
		if err := f.trans.DropSubvol(t, id, nil); err != nil {
			return err
		}
	}
	return nil
}

// checkRoots refuses what only shows in the root tree, and gives the root item of the top-level
// subvolume.
func (f *FS) checkRoots(t *sched.Task) (*format.RootItem, error) {
	it, err := f.trans.RootItem(t, format.FS_TREE_OBJECTID)
	if err != nil {
		return nil, err
	}
	if it.Refs == 0 {
		return nil, errors.New("corrupt root item: tree 5 has no references")
	}
	return &it, nil
}

// cleanOrphans deletes what was unlinked while it was open when the last user went away. Others
// wait in subvol until it is done, so the subvolume is not deleted meanwhile. Models
// btrfs_orphan_cleanup().
func (f *FS) cleanOrphans(t *sched.Task, vol *subvol) error {
	list, err := f.store.Orphans(t, vol.root)
	if err != nil || len(list) == 0 {
		return err
	}
	for _, ino := range list {
		n, err := f.iget(t, vol, ino)
		switch {
		case err == nil && n.nlink(t) == 0:
			if err := f.putRefs(t, n, 1); err != nil { // evicts
				return err
			}
			continue
		case err == nil:
			f.put(t, n)
		case !errors.Is(err, errno.ENOENT):
			return err
		}
		// The orphan item of a truncate of an old kernel, or of an inode that is gone.
		h, err := f.trans.StartDelete(t, 1)
		if err != nil {
			return err
		}
		if err := f.store.DelOrphan(t, h.Trans(), vol.root, ino); err != nil {
			return f.abort(t, h, err)
		}
		if err := f.end(t, h, nil); err != nil {
			return err
		}
	}
	return nil
}
