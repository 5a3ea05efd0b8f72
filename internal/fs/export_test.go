package fs

import (
	"fmt"
	"math"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// SpoilQuota sets the counts of all qgroups on the device to zero, and the flags in the status that
// say so. Nothing may be dirty, and the file system is closed next.
func (f *FS) SpoilQuota(t *sched.Task, flags uint64) {
	r, _, err := f.trans.OpenSubvol(t, format.QUOTA_TREE_OBJECTID)
	if err != nil {
		panic(err)
	}
	at, _, _ := r.Pointer()
	n := make(format.Node, f.trans.Forest.NodeSize())
	if err := f.vols.Read(t, n, at, 0); err != nil {
		panic(err)
	}
	for i := range n.Nritems() {
		switch b := n.Item(i); n.Key(i).Type {
		case format.QGROUP_STATUS_KEY:
			var s format.QgroupStatus
			s.Decode(b)
			s.Flags |= flags
			s.Encode(b)
		case format.QGROUP_INFO_KEY:
			clear(b[8:])
		}
	}
	sum := f.trans.Forest.CsumType().Sum(n[format.CsumField:])
	copy(n, sum[:])
	done := make(chan error)
	f.vols.Submit(t, &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(at), Vecs: [][]byte{n}, EndIO: func(_ *sched.Task, b *blockdev.Bio) { go func() { done <- b.Err }() }})
	if err := <-done; err != nil {
		panic(err)
	}
}

// QuotaStatus is the status item of the quota tree as of the last commit.
func (f *FS) QuotaStatus(t *sched.Task) (s format.QgroupStatus) {
	r, _, err := f.trans.OpenSubvol(t, format.QUOTA_TREE_OBJECTID)
	if err != nil {
		panic(err)
	}
	defer r.Close()
	var p ctree.Path
	defer p.Release(t)
	if found, err := f.trans.Forest.SearchSlot(t, nil, r, format.Key{Type: format.QGROUP_STATUS_KEY}, &p, 0, false); err != nil || !found {
		panic(fmt.Sprint("no status: ", err))
	}
	s.Decode(p.Item())
	return s
}

// SetISize sets i_size of an inode that is in memory, and nothing else.
func (n *Node) SetISize(t *sched.Task, size uint64) {
	n.lock(t)
	n.ip.SetSize(t, size)
	n.ip.Unlock(t)
}

// DirtyBlocks is the tree blocks in memory that wait to be written.
func (f *FS) DirtyBlocks(t *sched.Task) int { return f.trans.Forest.Stats(t).Dirty }

// RootItem is the root item of a subvolume.
func (f *FS) RootItem(t *sched.Task, id uint64) (format.RootItem, error) {
	return f.trans.RootItem(t, id)
}

// Scatter moves a stripe of the chunk at logical into the smallest hole that has room, wherever it
// is, which leaves one where it was.
func (f *FS) Scatter(t *sched.Task, logical uint64, stripe int) error {
	c, _ := f.vols.Lookup(logical)
	m := volumes.Move{Logical: logical, Stripe: stripe, From: c.Chunk.Stripes[stripe]}
	if err := f.vols.MoveStripe(t, &m, uint64(f.vols.Devices()[0].Size())); err != nil {
		return err
	}
	return f.change(t, func(h *transaction.Handle) error { return f.trans.Extents.MoveStripe(t, h.Trans(), m) })
}

// Chunks lists the chunks.
func (f *FS) Chunks() []volumes.ChunkInfo { return f.vols.Chunks() }

// DiskBytenr is the logical address of the byte at off, as the inode knows it.
func (f *File) DiskBytenr(t *sched.Task, off uint64) (uint64, error) {
	m, err := f.mapAt(t, off, math.MaxUint64)
	return m.Bytenr(off), err
}

// RelocOrphans counts the inodes without names in the tree of relocated data.
func (f *FS) RelocOrphans(t *sched.Task) (int, error) {
	r, _, err := f.trans.OpenSubvol(t, format.DATA_RELOC_TREE_OBJECTID)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	list, err := f.store.Orphans(t, r)
	return len(list), err
}

// FreeSpans is what is free in block groups and outside of them, in bytes of the devices.
func (f *FS) FreeSpans(t *sched.Task) (n uint64) {
	for _, g := range f.trans.Extents.Groups(t) {
		n += g.Free()
	}
	return n + f.vols.FreeDeviceBytes()
}
