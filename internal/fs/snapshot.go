package fs

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	gopath "path"
	"slices"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// How a snapshot is made, and what keeps it whole:
//
//	Node.Snapshot   SnapshotLock.ReadLock       no writer is between the question "may I overwrite in place?" and its dirty pages;
//	                                            from here on the answer is no, and writers reserve space for a copy
//	                SyncRoot                    what was dirty before gets its place; in place, if it was promised no other
//	                ForceDataCOW                from here on writeback copies
//	                SyncRoot                    ... and what has found a place before is on the device
//	  enterSubvols  i_rwsem of the directory    the name stays free
//	    Make        transaction                 the commit copies the root node, makes root item and name
//	                ReadUnlock, ForceDataCOW    the generation of the extents says no from here on (fstree.CanNocow)
//
// Without the lock a writer's range could be found free to overwrite before the snapshot and be
// dirty after it: writeback must then copy what has no space reserved. Without ForceDataCOW it
// could be overwritten in the snapshot as well (labs/reference 9.2).

// Snapshot makes name in the directory d a snapshot of the subvolume whose top directory is src,
// and commits. What has been written to the source before the call is in it. readOnly makes it one
// that takes no writes. Errors: EINVAL when src is no top directory; those of a creation; those of
// the write-back of the source. The caller gets the top directory of the snapshot, with one
// reference.
//
// Models btrfs_mksnapshot() and create_snapshot().
func (d *Node) Snapshot(t *sched.Task, name string, src *Node, readOnly bool) (top *Node, err error) {
	err = d.snapshots(t, []string{name}, src, readOnly, func(id uint64) error {
		top, err = d.fs.topOf(t, id)
		return err
	})
	return top, err
}

// Snapshots is Snapshot with several names, which get as few commits as the free space allows. The
// first that fails is the last that is tried; those before it are made.
func (d *Node) Snapshots(t *sched.Task, names []string, src *Node, readOnly bool) (made int, err error) {
	err = d.snapshots(t, names, src, readOnly, func(uint64) error {
		made++
		return nil
	})
	return made, err
}

// snapshots makes snapshots, and calls each with the id of each that is made, while no writer of
// src can begin.
func (d *Node) snapshots(t *sched.Task, names []string, src *Node, readOnly bool, each func(id uint64) error) error {
	f := d.fs
	switch {
	case !d.IsDir():
		return errno.ENOTDIR
	case !src.isTop():
		return fmt.Errorf("only a subvolume can be the source of a snapshot, inode %d of tree %d is not its top directory: %w",
			src.ip.Ino, src.Subvol(), errno.EINVAL)
	}
	if err := d.fs.writable(); err != nil {
		return err
	}
	r := src.vol.root
	r.SnapshotLock.ReadLock(t)
	defer r.SnapshotLock.ReadUnlock(t)
	if err := f.engine.SyncRoot(t, r.ID); err != nil {
		return err
	}
	f.steps.forceDataCOW(r, t, 1)
	defer f.steps.forceDataCOW(r, t, -1)
	if err := f.engine.SyncRoot(t, r.ID); err != nil {
		return err
	}
	for len(names) > 0 {
		var list []*transaction.NewSubvol
		for range names {
			list = append(list, &transaction.NewSubvol{Source: r, ReadOnly: readOnly})
		}
		made, err := f.enterSubvols(t, d, names, list)
		for _, s := range list[:made] {
			if eerr := each(s.ID); err == nil {
				err = eerr
			}
		}
		if err != nil {
			return err
		}
		names = names[made:]
	}
	return nil
}

// Subvolume makes name in the directory d an empty subvolume, and commits. The caller gets its top
// directory, with one reference. It does not inherit the flags of d: chattr +C ends at a subvolume.
// Properties it has from the top directory of d's subvolume.
//
// Models create_subvol(), and btrfs_create_new_inode() of a subvolume. Difference: it commits, and
// properties come in the transaction after that.
func (d *Node) Subvolume(t *sched.Task, name string, mode uint32, own Owner) (*Node, error) {
	if !d.IsDir() {
		return nil, errno.ENOTDIR
	}
	now := d.fs.now()
	s := &transaction.NewSubvol{Dir: format.InodeItem{Nlink: 1, UID: own.UID, GID: own.GID,
		Mode: format.S_IFDIR | mode&0o7777, Atime: now, Ctime: now, Mtime: now, Otime: now}}
	if _, err := d.fs.enterSubvols(t, d, []string{name}, []*transaction.NewSubvol{s}); err != nil {
		return nil, err
	}
	n, err := d.fs.topOf(t, s.ID)
	if err != nil {
		return nil, err
	}
	// The subvolume is there: as in Linux it stays when it can have no property.
	if top, err := d.fs.iget(t, d.vol, format.FIRST_FREE_OBJECTID); err == nil {
		if prop := inherited(top, format.S_IFDIR, 0); prop != "" {
			_ = n.setProperty(t, Compression, prop, false)
		}
		d.fs.put(t, top)
	}
	return n, nil
}

// topOf is the top directory of a subvolume, with one reference.
func (f *FS) topOf(t *sched.Task, id uint64) (*Node, error) {
	v, err := f.subvol(t, id)
	if err != nil {
		return nil, err
	}
	return f.iget(t, v, format.FIRST_FREE_OBJECTID)
}

// enterSubvols makes the subvolumes of list with names in the directory d, by one commit: the first
// made of them, if an error is in the way or there is no place for more at once.
func (f *FS) enterSubvols(t *sched.Task, d *Node, names []string, list []*transaction.NewSubvol) (made int, err error) {
	d.lockParent(t)
	defer d.ip.Unlock(t)
	f.subvolSem.RLock(t)
	defer f.subvolSem.RUnlock(t)
	if d.vol.dead.Load() { // models the look at root_refs in btrfs_mksubvol()
		return 0, errno.ENOENT
	}
	ready := 0
	for ready < len(list) {
		if slices.Contains(names[:ready], names[ready]) {
			err = errno.EEXIST
			break
		}
		if err = f.readySubvol(t, d, names[ready], list[ready]); err != nil {
			break
		}
		ready++
	}
	if ready == 0 {
		return 0, err
	}
	made, merr := f.trans.Make(t, list[:ready]...)
	if made < ready {
		d.nextIndex = list[made].Ref.Sequence // the others have none
		err = merr
	}
	return made, err
}

// readySubvol fills in s, a subvolume that gets a name in d.
func (f *FS) readySubvol(t *sched.Task, d *Node, name string, s *transaction.NewSubvol) error {
	if err := f.mayCreate(t, d, name); err != nil {
		return err
	}
	index, err := f.takeDirIndex(t, d)
	if err != nil {
		return err
	}
	s.Now = f.now()
	s.UUID = f.newUUID(t, d, name, s.Now)
	s.Parent = d.vol.root.ID
	s.Ref = format.RootRef{Dirid: uint64(d.ip.Ino), Sequence: index, Name: name}
	s.Link = func(t *sched.Task, h *transaction.Handle, id uint64) error {
		if err := f.store.AddSubvol(t, h.Trans(), d.vol.root, d.ip.Ino, id, name, index); err != nil {
			return err
		}
		f.dirSizeChanged(t, d, h, int64(2*len(name)), s.Now)
		return nil
	}
	return nil
}

// newUUID is a uuid that no other subvolume has: a hash of what makes this one different. Of a
// given image at a given time it is always the same. Difference: the kernel draws one by lot.
func (f *FS) newUUID(t *sched.Task, dir *Node, name string, now format.Timespec) (u format.UUID) {
	sb := f.trans.Super(t)
	h := sha256.New()
	h.Write(sb.FSID[:])
	for _, x := range []uint64{sb.Generation, dir.vol.root.ID, uint64(dir.ip.Ino), uint64(now.Sec), uint64(now.Nsec)} {
		_ = binary.Write(h, binary.LittleEndian, x)
	}
	h.Write([]byte(name))
	copy(u[:], h.Sum(nil))
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // version 8, made by a rule of one's own
	return u
}

// Snapshot makes path a snapshot of the subvolume at src; see Node.Snapshot.
func (f *FS) Snapshot(t *sched.Task, src, path string, readOnly bool) error {
	return f.at(t, "snapshot", src, true, func(n *Node) error {
		return f.in(t, "snapshot", path, func(dir *Node, name string) error {
			s, err := dir.Snapshot(t, name, n, readOnly)
			if err == nil {
				f.put(t, s)
			}
			return err
		})
	})
}

// Snapshots makes several paths, all in one directory, snapshots of the subvolume at src; see
// Node.Snapshots. It made the first made of them.
func (f *FS) Snapshots(t *sched.Task, src string, paths []string, readOnly bool) (made int, err error) {
	err = f.at(t, "snapshot", src, true, func(n *Node) error {
		dir, first, err := f.walkParent(t, paths[0])
		if err == nil {
			names := []string{first}
			for _, p := range paths[1:] {
				names = append(names, gopath.Base(p))
			}
			made, err = dir.Snapshots(t, names, n, readOnly)
			f.put(t, dir)
		}
		if err != nil {
			err = opError("snapshot", paths[made], err)
		}
		return err
	})
	return made, err
}

// Subvolume makes path an empty subvolume; see Node.Subvolume.
func (f *FS) Subvolume(t *sched.Task, path string, mode uint32) error {
	return f.in(t, "subvolume", path, func(dir *Node, name string) error {
		s, err := dir.Subvolume(t, name, mode, f.owner())
		if err == nil {
			f.put(t, s)
		}
		return err
	})
}

// DeleteSubvolume deletes the subvolume that the directory d calls name, with all that is in it:
// its name first, which a commit makes durable, then its tree, transaction by transaction. After a
// crash in between, the next open goes on, or Linux does. Errors: EINVAL when it is no subvolume,
// ENOTEMPTY when it has another one in it, EBUSY when somebody uses a file of it.
//
// Models btrfs_delete_subvolume() and the cleaner. Difference: the caller drops the tree, and files
// of it must be closed.
func (d *Node) DeleteSubvolume(t *sched.Task, name string) error {
	return d.deleteSubvolume(t, name, false)
}

// deleteSubvolume is DeleteSubvolume, or rmdir of an empty subvolume: ENOTEMPTY of another.
func (d *Node) deleteSubvolume(t *sched.Task, name string, rmdir bool) error {
	f := d.fs
	if !d.IsDir() {
		return errno.ENOTDIR
	}
	if err := f.writable(); err != nil {
		return err
	}
	top, err := d.Lookup(t, name)
	if err != nil {
		return err
	}
	v := top.vol
	isSubvol := top.isTop() && v != d.vol
	f.put(t, top)
	if err := d.mayChange(); err != nil {
		return err
	}
	if !isSubvol {
		return fmt.Errorf("%q is no subvolume: %w", name, errno.EINVAL)
	}
	// What is dirty goes to disk, because an inode that waits for writeback cannot be dropped.
	if err := f.engine.SyncRoot(t, v.root.ID); err != nil {
		return err
	}
	if err := f.unlinkSubvol(t, d, name, v, rmdir); err != nil {
		return err
	}
	f.subvolMu.Lock(t)
	delete(f.subvols, v.root.ID)
	f.subvolMu.Unlock(t)
	// Before the commit: what others have changed in the tree until now is in it, and if nobody is
	// there nobody comes; who is on the way out is waited for.
	busy := f.busy(t, v)
	if !busy {
		f.inodes.wait.Wait(t, func() bool { return v.evicting.Load() == 0 })
		// of those who came and went since; what cannot be written is deleted anyway
		_ = f.engine.SyncRoot(t, v.root.ID)
	}
	if err := f.trans.Commit(t); err != nil {
		return err
	}
	if busy {
		return nil // somebody was quicker than the unlink: the next open drops the tree
	}
	f.discard(t, v)
	return f.trans.DropSubvol(t, v.root.ID, nil)
}

// unlinkSubvol takes the name of v from d, and v's links from the root tree. With wantEmpty it is
// ENOTEMPTY when v has a name in it.
func (f *FS) unlinkSubvol(t *sched.Task, d *Node, name string, v *subvol, wantEmpty bool) error {
	d.lockParent(t)
	defer d.ip.Unlock(t)
	f.subvolSem.Lock(t)
	defer f.subvolSem.Unlock(t)
	id := v.root.ID
	it, err := f.store.Lookup(t, d.vol.root, d.ip.Ino, name)
	if err != nil {
		return err
	}
	ref, err := f.trans.SubvolRef(t, d.vol.root.ID, id)
	def, derr := f.DefaultSubvolume(t)
	has, herr := f.trans.HasSubvols(t, id)
	switch {
	case err != nil || herr != nil:
		return errors.Join(err, herr)
	case it.Location.Type != format.ROOT_ITEM_KEY || it.Location.Objectid != id || ref.Dirid != uint64(d.ip.Ino) || ref.Name != name:
		return errno.ENOENT
	case d.mayTake(nil) != nil:
		return d.mayTake(nil)
	case derr == nil && def == id:
		return errno.EPERM // the default subvolume is what a mount shows
	case has:
		return errno.ENOTEMPTY
	case f.busy(t, v):
		return errno.EBUSY
	}
	if wantEmpty { // nobody is in it, and nobody comes in while subvolSem is held
		if err := f.wantEmpty(t, v, format.FIRST_FREE_OBJECTID); err != nil {
			return err
		}
	}
	h, err := f.trans.StartDelete(t, transaction.UnitsUnlinkSubvol)
	if err != nil {
		return err
	}
	f.logs.Pin(t, d.vol.root)
	f.logs.RemovedSubvol(t, d.vol.root, h.Transid(), d.ip.Ino, id, name, ref.Sequence)
	err = f.store.DelSubvol(t, h.Trans(), d.vol.root, d.ip.Ino, id, name, ref.Sequence)
	f.logs.Unpin(t, d.vol.root)
	if err == nil {
		err = f.trans.UnlinkSubvol(t, h, id, d.vol.root.ID)
	}
	if err != nil {
		return f.abort(t, h, err)
	}
	f.dirSizeChanged(t, d, h, -int64(2*len(name)), f.now())
	v.dead.Store(true) // for a task that has looked up the subvolume and no inode of it yet
	return f.end(t, h, nil)
}

// DeleteSubvolume deletes the subvolume at path; see Node.DeleteSubvolume.
func (f *FS) DeleteSubvolume(t *sched.Task, path string) error {
	return f.in(t, "delete", path, func(dir *Node, name string) error { return dir.DeleteSubvolume(t, name) })
}

// Subvol is a subvolume as Subvolumes lists it.
type Subvol struct {
	ID, Generation   uint64
	Parent           uint64 // the subvolume that it is linked in
	Path             string // from the top directory of the image
	ReadOnly         bool
	UUID, ParentUUID format.UUID
	ReceivedUUID     format.UUID // of the subvolume that was sent; zero if it was not received
}

// Snapshot reports whether it was made as a snapshot.
func (s *Subvol) Snapshot() bool { return !s.ParentUUID.IsZero() }

// TopUUID is the identifier of the top-level subvolume, of which a snapshot has it as its
// ParentUUID; zero in images of old programs.
func (f *FS) TopUUID(t *sched.Task) (format.UUID, error) {
	it, err := f.trans.RootItem(t, format.FS_TREE_OBJECTID)
	return it.UUID, err
}

// Subvolumes lists all subvolumes but the top-level one, by id. One that is deleted meanwhile may
// be missing.
func (f *FS) Subvolumes(t *sched.Task) (list []Subvol, err error) {
	ids, items, err := f.trans.Subvols(t)
	if err != nil {
		return nil, err
	}
	for i, it := range items {
		s := Subvol{ID: ids[i], Generation: it.Generation, ReadOnly: it.Flags&format.RootSubvolReadonly != 0, UUID: it.UUID, ParentUUID: it.ParentUUID,
			ReceivedUUID: it.ReceivedUUID}
		if s.Parent, _, err = f.subvolParent(t, s.ID); err == nil {
			s.Path, err = f.subvolPath(t, s.ID)
		}
		if err != nil {
			f.subvolSem.RLock(t) // after a deletion that has taken some of its links
			now, gone := f.trans.RootItem(t, s.ID)
			f.subvolSem.RUnlock(t)
			if errors.Is(gone, transaction.ErrNoRoot) || gone == nil && now.Refs == 0 {
				continue
			}
			return list, fmt.Errorf("path of subvolume %d: %w", s.ID, err)
		}
		list = append(list, s)
	}
	return list, nil
}
