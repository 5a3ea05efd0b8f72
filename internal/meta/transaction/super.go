package transaction

import (
	"bytes"
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// WriteSuper makes sb the superblock on the device, in its first copies copies (1 is the primary
// only). Every superblock that an open file system writes goes through here, under a mutex of its
// own, so that a later one never loses to an earlier one:
//
//   - a commit writes a new generation, to all copies;
//   - a change of the superblock alone, such as the address of a log tree, keeps the generation of
//     the last commit, whose trees it points at, and may go to the primary only: the next commit
//     brings the other copies in line.
//
// An older generation is a broken invariant. Models write_all_supers() with its max_mirrors, and
// tree_log_mutex around it.
func (m *Manager) WriteSuper(t *sched.Task, sb *format.Super, copies int) error {
	return m.writeSuper(t, sb, copies, m.checkOursLocked, m.Volumes.WriteSupers)
}

// writeSuper is WriteSuper with what is asked before, and the way to the device.
func (m *Manager) writeSuper(t *sched.Task, sb *format.Super, copies int, check func(t *sched.Task) error, write func(t *sched.Task, sb *format.Super, n int) error) error {
	m.superMu.Lock(t)
	defer m.superMu.Unlock(t)
	if sb.Generation < m.superGen {
		panic(fmt.Sprintf("transaction: superblock of generation %d written over generation %d", sb.Generation, m.superGen))
	}
	if err := check(t); err != nil {
		return err
	}
	if err := write(t, sb, copies); err != nil {
		return fmt.Errorf("write superblocks: %w", err)
	}
	m.superGen = sb.Generation
	for i := range m.guarded {
		m.guarded[i].wrote(sb)
	}
	return nil
}

// WriteLogSuper makes the primary superblock name the tree of logs at bytenr, whose blocks are on
// their way to the device: what was written before is durable first, then the superblock. The open
// handle keeps the transaction of the logs from being committed meanwhile; the commit before it is
// waited for. An error leaves the logs useless. One of the device aborts the transaction: what a
// flush failed to keep may be gone, data of other files too, and no later flush says so.
//
// Without flush nothing before it need be durable: a wrong order, for studies.
//
// Models the end of btrfs_sync_log().
func (m *Manager) WriteLogSuper(t *sched.Task, h *Handle, bytenr uint64, level int, flush bool) error {
	m.logMu.Lock(t)
	defer m.logMu.Unlock(t)
	if err := m.Aborted(t); err != nil {
		return err
	}
	sb := *m.Super(t)
	if sb.Generation+1 != h.Transid() {
		return fmt.Errorf("log of transaction %d: the commit before it failed, have generation %d: %w", h.Transid(), sb.Generation, errno.EIO)
	}
	sb.LogRoot, sb.LogRootLevel = bytenr, uint8(level)
	// Whether Linux has mounted the image is not asked for each log, as it is for a commit: that
	// takes longer than all else. The device asks now and then, before any write.
	write := m.Volumes.WriteSupers
	if !flush {
		write = m.Volumes.PutSupers
	}
	err := m.writeSuper(t, &sb, 1, m.sameSuperLocked, write)
	if err != nil {
		m.abort(t, err)
	}
	return err
}

// guarded is a device that other programs can get at, with the superblock that it has if none does.
type guarded struct {
	dev  *volumes.Device
	file *blockdev.File
	off  int64 // of the primary superblock in file
	ours []byte
}

// wrote notes that sb is the superblock now.
func (g *guarded) wrote(sb *format.Super) {
	s := *sb
	s.DevItem, s.Bytenr = g.dev.Item(), format.SuperOffset
	s.Encode(g.ours)
}

// guard begins to watch the devices for other programs, if they can get at them.
func (m *Manager) guard(t *sched.Task) error {
	m.guarded = nil
	for _, d := range m.Volumes.Devices() {
		base, off := blockdev.Base(d.Device)
		file, ok := base.(*blockdev.File)
		if !ok {
			continue
		}
		g := guarded{d, file, off + format.SuperOffset, make([]byte, format.SuperSize)}
		if err := blockdev.Read(t, file, g.ours, g.off); err != nil {
			return err
		}
		m.guarded = append(m.guarded, g)
	}
	return nil
}

// checkOurs is an error once another program uses the image: Linux has mounted it, or somebody has
// written a superblock. From then on nobody knows here which blocks are free, so a commit that
// wrote even one would destroy theirs. A commit asks before its first tree block and before its
// superblock. Difference: the kernel claims its device and needs no such question.
func (m *Manager) checkOurs(t *sched.Task) error {
	m.superMu.Lock(t)
	defer m.superMu.Unlock(t)
	return m.checkOursLocked(t)
}

// checkOursLocked is checkOurs under superMu.
func (m *Manager) checkOursLocked(t *sched.Task) error {
	m.superMu.AssertHeld(t)
	for _, g := range m.guarded {
		if err := g.file.Taken(t); err != nil {
			return err
		}
	}
	return m.sameSuperLocked(t)
}

// sameSuperLocked is the half of checkOurs that costs little: is the superblock of each device the
// one that was read or written here last? superMu is held.
func (m *Manager) sameSuperLocked(t *sched.Task) error {
	m.superMu.AssertHeld(t)
	for _, g := range m.guarded {
		b := make([]byte, format.SuperSize)
		if err := blockdev.Read(t, g.file, b, g.off); err != nil {
			return fmt.Errorf("read superblock: %w", err)
		}
		if !bytes.Equal(b, g.ours) {
			var sb format.Super
			sb.Decode(b)
			return fmt.Errorf("%w: another program has written a superblock while the image was open, have generation %d want %d",
				blockdev.ErrInUse, sb.Generation, m.superGen)
		}
	}
	return nil
}

// nextSuper makes the superblock of the commit. No handle is open.
func (m *Manager) nextSuper(t *sched.Task, tx *Transaction) *format.Super {
	sb := *m.Super(t)
	old := sb.Generation
	sb.Generation = tx.id
	// A profile's feature goes with the last of its chunks: clear_incompat_bg_bits().
	sb.IncompatFlags = sb.IncompatFlags&^format.ProfileIncompat | m.incompat.Load() | m.Volumes.Incompat()
	if l := m.label.Load(); l != nil {
		sb.Label = *l
	}
	sb.TotalBytes += uint64(m.grown.Swap(0))
	sb.NumDevices += uint64(m.devices.Swap(0))
	bytenr, level, _ := m.Root(format.ROOT_TREE_OBJECTID).Pointer()
	sb.Root, sb.RootLevel = bytenr, uint8(level)
	bytenr, level, gen := m.Root(format.CHUNK_TREE_OBJECTID).Pointer()
	sb.ChunkRoot, sb.ChunkRootLevel, sb.ChunkRootGeneration = bytenr, uint8(level), gen
	// A commit has all that a log tree adds to the last one.
	sb.LogRoot, sb.LogRootLevel = 0, 0
	sb.BytesUsed = m.Extents.BytesUsed()
	listed := false
	for i, n := range m.Extents.DeviceBytesUsed() {
		d := m.Volumes.Devices()[i]
		d.SetBytesUsed(n)
		if d.Devid() == sb.DevItem.Devid {
			sb.DevItem.BytesUsed, sb.DevItem.TotalBytes = n, d.Item().TotalBytes
			listed = true
		}
	}
	if !listed { // it has left
		sb.DevItem = m.Volumes.Devices()[0].Item()
	}
	if sb.UUIDTreeGeneration == old {
		sb.UUIDTreeGeneration = tx.id // the uuid tree is as right as it was
	}
	sb.SysChunkArray = sysChunkArray(m.Volumes)
	m.backupRoots(&sb)
	return &sb
}

func sysChunkArray(v *volumes.Volumes) []byte {
	var a []byte
	for _, c := range v.Chunks() {
		if c.Chunk.Type&format.BlockGroupSystem == 0 {
			continue
		}
		b := make([]byte, format.KeySize+c.Chunk.Size())
		format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: c.Logical}.Encode(b)
		c.Chunk.Encode(b[format.KeySize:])
		a = append(a, b...)
	}
	return a
}

// backupRoots writes the oldest of the four backup slots. Models backup_super_roots().
func (m *Manager) backupRoots(sb *format.Super) {
	slot := 0
	for i := range sb.Backups {
		if sb.Backups[i].TreeRootGen > sb.Backups[slot].TreeRootGen {
			slot = i
		}
	}
	if sb.Backups[slot].TreeRootGen != 0 {
		slot = (slot + 1) % len(sb.Backups)
	}
	b := format.RootBackup{TotalBytes: sb.TotalBytes, BytesUsed: sb.BytesUsed, NumDevices: sb.NumDevices}
	set := func(id uint64, bytenr, gen *uint64, level *uint8) {
		if r := m.Root(id); r != nil {
			p, l, g := r.Pointer()
			*bytenr, *gen, *level = p, g, uint8(l)
		}
	}
	set(format.ROOT_TREE_OBJECTID, &b.TreeRoot, &b.TreeRootGen, &b.TreeRootLevel)
	set(format.CHUNK_TREE_OBJECTID, &b.ChunkRoot, &b.ChunkRootGen, &b.ChunkRootLevel)
	set(format.EXTENT_TREE_OBJECTID, &b.ExtentRoot, &b.ExtentRootGen, &b.ExtentRootLevel)
	set(format.FS_TREE_OBJECTID, &b.FSRoot, &b.FSRootGen, &b.FSRootLevel)
	set(format.DEV_TREE_OBJECTID, &b.DevRoot, &b.DevRootGen, &b.DevRootLevel)
	set(format.CSUM_TREE_OBJECTID, &b.CsumRoot, &b.CsumRootGen, &b.CsumRootLevel)
	sb.Backups[slot] = b
}
