package treelog

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/policy"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// What a log has of a regular file or a directory:
//
//	INODE_ITEM             always, as the inode in memory says
//	INODE_REF, EXTREF      when the transaction has given it a name or taken one; what must come with it says plan.go
//	XATTR_ITEM             all, with the first log: what is not there is deleted at replay
//	EXTENT_DATA            what lies in the ranges that have changed since the last log; their holes as items of disk address 0;
//	                       and with the first log what lies beyond EOF, which replay drops unless it is there
//	EXTENT_CSUM            of what was written in these ranges
//	DIR_INDEX              of a directory, the entries that came in the transaction
//	DIR_LOG_INDEX          the ranges of indices of which the log has all entries
//
// What an ordered extent writes is logged from the ordered extent, whose items the tree does not
// have yet.
//
// Model: fs/btrfs/tree-log.c:btrfs_log_inode() and btrfs_log_changed_extents(). Differences: all
// other extents are those of the subvolume's tree, not of extent maps; there is one way for first
// and later logs of an inode.

// noRefs is the references to data extents from a log: none is counted.
type noRefs struct{}

func (noRefs) AllocReservedFileExtent(*sched.Task, *ctree.Trans, format.DataRef, format.Logical, uint64) error {
	return nil
}
func (noRefs) IncExtentRef(*sched.Task, *ctree.Trans, format.DataRef, format.Logical, uint64) error {
	return nil
}
func (noRefs) FreeExtent(*sched.Task, *ctree.Trans, format.DataRef, format.Logical, uint64) error {
	return nil
}
func (noRefs) CrossRefExist(*sched.Task, format.DataRef, format.Logical, *ctree.Path) (bool, error) {
	return true, nil
}
func (noRefs) MayWrite(*sched.Task, format.Logical) bool { return false }

// maxFileEnd is beyond the end of every file.
const maxFileEnd = 1 << 63

// copier copies one inode to a log.
type copier struct {
	t     *sched.Task
	tr    ctree.Trans
	src   *fstree.Store // of the subvolume
	dst   *fstree.Store // of the log
	log   *tree
	root  *ctree.Root // of the subvolume
	ip    *inode.Inode
	last  inode.Logged
	again bool   // the log has the inode: last is of this transaction
	names bool   // the transaction has changed its names or attributes since
	dir   bool   // it is a directory
	done  uint64 // file extents that end here or before are in the log
	*orders
	path  ctree.Path // for file extents
	item  func(t *sched.Task, s ItemSteps) error
	inMem func(t *sched.Task, subvol uint64, ino format.Ino) (format.InodeItem, bool)

	// in flight, ascending; those of LoggedIn are in the log, unless over has their place
	ordered []*ordered.Extent
	// what the log has from the subvolume's tree now, as it is without the ordered extents
	over []inode.Range
	ends uint64 // where the last ordered extent ends, logged or not
}

func (l *Logs) copier(t *sched.Task, h *transaction.Handle, log *tree, ip *inode.Inode, dir bool, last inode.Logged) *copier {
	c := &copier{t: t, tr: log.trans(h), src: l.cfg.Store, dst: log.store, log: log, root: ip.Root, ip: ip,
		last: last, again: last.Transid == h.Transid(), dir: dir, orders: l.orders.Load(), item: l.cfg.Item, inMem: l.cfg.InMemory}
	c.tr.Leaves = c.leaves()
	c.tr.Leaves.Small = l.cfg.SmallLeaf
	return c
}

// mayLog is ErrCommit for an inode of which a log cannot tell all.
func (l *Logs) mayLog(t *sched.Task, h *transaction.Handle, ip *inode.Inode) (dir bool, err error) {
	it := ip.Item(t)
	kind := it.Mode & format.S_IFMT
	dir = kind == format.S_IFDIR
	if kind != format.S_IFREG && !dir || it.Nlink == 0 || ip.Barred(h.Transid()) || !l.usable(h) {
		return false, ErrCommit
	}
	return dir, nil
}

// copyNamed copies the inode with its names, and what must come with them. The error before
// anything is in the log is ErrCommit.
func (c *copier) copyNamed() (size uint64, changed bool, err error) {
	pin := &c.log.pin
	pin.Lock(c.t)
	defer pin.Unlock(c.t)
	p, err := c.plan()
	if err != nil {
		return 0, false, err
	}
	if err := c.logNames(p); err != nil {
		return 0, true, err
	}
	if size, err = c.copyInode(); err == nil {
		c.log.named.known[c.ip.Ino] = true
		err = c.logDirs(p)
	}
	return size, true, err
}

// copy copies the inode, with its names and attributes if items says that they have changed, and
// returns the size that the log says. After an error the log has a part of it if changed is true.
func (c *copier) copy(items bool) (size uint64, changed bool, err error) {
	c.names = items || c.dir
	if c.names {
		size, changed, err = c.copyNamed()
	} else {
		size, err = c.copyInode()
		changed = true
	}
	if err != nil || c.dir {
		return size, changed, err
	}
	return size, true, c.extents(size)
}

// copyInode copies the inode's item, names and attributes.
func (c *copier) copyInode() (size uint64, err error) {
	it := c.ip.Item(c.t)
	it.Transid = c.tr.ID
	if c.ends > it.Size {
		// the completion makes the size follow: FollowSize
		it.Size = max(it.Size, min(c.ip.Size(c.t), c.ends))
	}
	has := c.again || c.names && c.log.named.known[c.ip.Ino]
	if err := c.putInode(&it, has); err != nil {
		return 0, err
	}
	return it.Size, c.steps.items(c, has)
}

// putInode puts the inode's item into the log, which has one already or not.
func (c *copier) putInode(it *format.InodeItem, has bool) error {
	if has {
		return c.dst.UpdateInode(c.t, &c.tr, c.log.root, c.ip.Ino, it)
	}
	return c.dst.InsertInode(c.t, &c.tr, c.log.root, c.ip.Ino, it)
}

// items copies names and attributes, as far as the log does not have them as they are.
func (c *copier) items(has bool) error {
	from := uint8(format.INODE_REF_KEY)
	switch {
	case !c.names && has:
		return nil
	case !c.names:
		from = format.XATTR_ITEM_KEY
	case has:
		if err := c.dropItems(c.ip.Ino, from, format.XATTR_ITEM_KEY); err != nil {
			return err
		}
	}
	return c.copyItems(c.ip.Ino, from, format.XATTR_ITEM_KEY)
}

// item is a copy of an item.
type item struct {
	key  format.Key
	data []byte
}

// itemsOf are the subvolume's items from key on, of its inode and with types up to last.
func (c *copier) itemsOf(key format.Key, last uint8) (list []item, err error) {
	var p ctree.Path
	defer p.Release(c.t)
	more, err := c.src.Forest.SearchForward(c.t, c.root, key, &p)
	for more && err == nil {
		k := p.Key()
		if k.Objectid != key.Objectid || k.Type > last {
			break
		}
		list = append(list, item{k, append([]byte{}, p.Item()...)})
		more, err = c.src.Forest.NextItem(c.t, c.root, &p)
	}
	return list, err
}

// copyItems copies the items of ino with types from first to last.
func (c *copier) copyItems(ino format.Ino, first, last uint8) error {
	list, err := c.itemsOf(format.Key{Objectid: uint64(ino), Type: first}, last)
	for i := 0; i < len(list) && err == nil; i++ {
		err = c.dst.Forest.InsertItem(c.t, &c.tr, c.log.root, list[i].key, list[i].data)
	}
	return err
}

// dropItems deletes what the log has of ino with types from first to last. Models
// drop_inode_items().
func (c *copier) dropItems(ino format.Ino, first, last uint8) error {
	var p ctree.Path
	defer p.Release(c.t)
	f := c.dst.Forest
	for {
		more, err := f.SearchForward(c.t, c.log.root, format.Key{Objectid: uint64(ino), Type: first}, &p)
		if err != nil || !more {
			return err
		}
		key := p.Key()
		p.Release(c.t)
		if key.Objectid != uint64(ino) || key.Type > last {
			return nil
		}
		if found, err := c.dropItem(key); err != nil || !found {
			return errors.Join(err, fmt.Errorf("item %v of a log went away", key))
		}
	}
}

// extents copies the file extents that have changed. size is the logged size in bytes.
func (c *copier) extents(size uint64) error {
	size = format.AlignUp(size, c.src.SectorSize)
	list := c.ip.TakeModified(c.t, c.tr.ID, nil)
	if was := format.AlignUp(c.last.Size, c.src.SectorSize); c.again && was < size {
		// The last log had no holes beyond the size that it logged: replay dropped what the last
		// commit had there.
		list = inode.AddRange(list, inode.Range{Start: was, End: size})
	}
	if !c.again && c.ip.Flags()&format.InodePrealloc != 0 {
		list = inode.AddRange(list, inode.Range{Start: size, End: maxFileEnd})
	}
	for _, r := range list {
		if err := c.extentsIn(r.Start, min(r.End, maxFileEnd), size); err != nil {
			return err
		}
	}
	c.again = c.again || len(list) > 0 // the log may have items in the way
	for _, e := range c.ordered {
		// A preallocated extent that reaches here, or a hole, has gone over one that was logged.
		gone := func(r inode.Range) bool { return r.Start < e.End() && e.Start < r.End }
		if e.LoggedIn == c.tr.ID && !slices.ContainsFunc(c.over, gone) {
			continue
		}
		if err := c.inFlight(e); err != nil {
			return err
		}
	}
	if !c.set.Has(policy.LogNoExtraRelease) {
		c.release()
	}
	return nil
}

// inFlight copies what the ordered extent will put into the tree.
func (c *copier) inFlight(e *ordered.Extent) error {
	if e.Type == ordered.Nocow {
		return nil
	}
	if e.Type == ordered.Prealloc {
		return c.written(e)
	}
	fe := format.FileExtent{Generation: c.tr.ID, RAMBytes: e.Len, Type: format.FileExtentTypeReg, Compression: e.Compression,
		DiskBytenr: uint64(e.DiskBytenr), DiskNumBytes: e.DiskLen, NumBytes: e.Len}
	return c.put(logged{fe: &fe, start: e.Start, end: e.End(), from: e})
}

// written copies the part of a preallocated extent that the ordered extent writes.
func (c *copier) written(e *ordered.Extent) error {
	start, fe, ok, err := c.src.LookupFileExtent(c.t, c.root, c.ip.Ino, e.Start)
	if err != nil {
		return err
	}
	if !ok || start > e.Start || start+fe.NumBytes < e.End() || fe.DiskBytenr+fe.Offset+e.Start-start != uint64(e.DiskBytenr) {
		return ErrCommit
	}
	fe.Type, fe.Generation = format.FileExtentTypeReg, c.tr.ID
	fe.Offset, fe.NumBytes = fe.Offset+e.Start-start, e.Len
	return c.put(logged{fe: &fe, start: e.Start, end: e.End(), from: e})
}

// extentsIn copies the file extents and holes of [lo, hi).
func (c *copier) extentsIn(lo, hi, size uint64) error {
	for pos := lo; pos < hi; {
		start, fe, ok, err := c.src.LookupFileExtent(c.t, c.root, c.ip.Ino, pos)
		if err != nil {
			return err
		}
		from, end := pos, min(start, hi)
		if ok {
			from, end = start, start+fe.NumBytes
			if fe.Type == format.FileExtentTypeInline {
				end = start + format.AlignUp(max(fe.RAMBytes, 1), c.src.SectorSize)
			}
		}
		c.over = append(c.over, inode.Range{Start: from, End: end})
		if ok {
			err = c.extent(logged{fe: &fe, start: start, end: end, lo: max(lo, start), hi: min(hi, end)})
		} else {
			err = c.steps.hole(c, from, end, size)
		}
		if err != nil {
			return err
		}
		pos = end
	}
	return nil
}

// hole says that [start, end) has no file extents. Beyond the size nothing needs to be said but
// what the log said before. Models btrfs_log_holes().
func (c *copier) hole(start, end, size uint64) error {
	if c.again {
		if _, err := c.dst.DropExtents(c.t, &c.tr, c.log.root, c.ip.Ino, start, end, fstree.DropOptions{}); err != nil {
			return err
		}
	}
	if end = min(end, size); start >= end {
		return nil
	}
	fe := format.FileExtent{Generation: c.tr.ID, RAMBytes: end - start, NumBytes: end - start, Type: format.FileExtentTypeReg}
	return c.dst.InsertFileExtent(c.t, &c.tr, c.log.root, c.ip.Ino, start, &fe)
}

// logged is a file extent on its way into the log: the item fe for [start, end), and the checksums
// of what an ordered extent writes or of [lo, hi).
type logged struct {
	fe         *format.FileExtent
	start, end uint64
	lo, hi     uint64
	from       *ordered.Extent
}

// extent copies the file extent x. Models log_one_extent().
func (c *copier) extent(x logged) error {
	if x.end <= c.done {
		return c.steps.sums(c, &x) // it reaches from one changed range into the next
	}
	c.done = x.end
	return c.put(x)
}

// sumsOf copies the checksums of x.
func (c *copier) sumsOf(x *logged) error {
	if x.from == nil {
		return c.sums(x.fe, x.start, x.lo, x.hi)
	}
	if sums := x.from.Checksums(c.t); len(sums) > 0 {
		return c.dst.InsertCsums(c.t, &c.tr, uint64(x.from.DiskBytenr), sums)
	}
	return nil
}

// put makes the log have x.
func (c *copier) put(x logged) error {
	defer c.release()
	if c.item != nil && x.fe.Type != format.FileExtentTypeInline {
		return c.item(c.t, &itemSteps{c: c, of: x, item: c.dst.Replacement(&c.tr, c.log.root, c.ip.Ino, x.start, x.end, x.fe, &c.path)})
	}
	if err := c.steps.sums(c, &x); err != nil {
		return err
	}
	_, err := c.dst.ReplaceFileExtent(c.t, &c.tr, c.log.root, c.ip.Ino, x.start, x.end, x.fe,
		fstree.Replace{Drop: c.again, OneLeaf: !c.set.Has(policy.LogReplaceMulti), FieldByField: !c.set.Has(policy.LogPrepareFirst)}, &c.path)
	return err
}

// release lets the path of file extents go.
func (c *copier) release() {
	c.t.CountLog(sched.LogReleases, 1)
	c.path.Release(c.t)
}

// sums copies the checksums of [lo, hi), a part of the file extent fe at start, if this transaction
// has written it. Models log_extent_csums().
func (c *copier) sums(fe *format.FileExtent, start, lo, hi uint64) error {
	if fe.Type != format.FileExtentTypeReg || fe.DiskBytenr == 0 || fe.Generation != c.tr.ID || !c.ip.Sums() {
		return nil
	}
	if fe.Compression != format.CompressNone {
		return ErrCommit // its checksums are in the log once, however many items it has
	}
	at := fe.DiskBytenr + fe.Offset + lo - start
	const most = 1024 // sectors at once
	for ; lo < hi; lo, at = lo+most*c.src.SectorSize, at+most*c.src.SectorSize {
		n := min(most, (hi-lo)/c.src.SectorSize)
		sums, have := make([]byte, uint64(c.src.CsumType().Size())*n), make([]bool, n)
		if err := c.src.LookupCsums(c.t, at, n*c.src.SectorSize, sums, have); err != nil {
			return err
		}
		if slices.Contains(have, false) {
			return ErrCommit
		}
		if err := c.dst.InsertCsums(c.t, &c.tr, at, sums); err != nil {
			return err
		}
	}
	return nil
}
