package transaction

import (
	"errors"
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/extenttree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// Config has the arguments of Open.
type Config struct {
	Volumes     *volumes.Volumes // with the system chunks of Super
	Super       *format.Super    // checked; Open takes it over
	ReadOnly    bool
	CacheBlocks int                        // clean tree blocks kept; 0 is ctree's default
	NewNode     func(size int) format.Node // ctree.Config's
	BadCopy     func(err error)            // ctree.Config's
	// DirtyLimit is the bytes of changed tree blocks and queued references above which a commit
	// begins; 0 is none.
	DirtyLimit int64
}

// Open reads the chunk tree, opens the trees that every file system has and, unless it is
// read-only, loads the block groups. Errors name the tree and the block. Models open_ctree() from
// btrfs_read_chunk_tree() to btrfs_read_block_groups(); labs/reference 10.2.
func Open(t *sched.Task, c Config) (*Manager, error) {
	sb := c.Super
	m := &Manager{Volumes: c.Volumes, readOnly: c.ReadOnly, dirtyLimit: c.DirtyLimit, super: sb, roots: make(map[uint64]*ctree.Root)}
	m.commitMu.Init(classCommit)
	m.superMu.Init(classSuper)
	m.logMu.Init(classLog)
	m.superGen = sb.Generation
	m.mu.Init(classMu)
	m.quotaMu.Init(classQuota)
	m.waiters.Init(&m.mu, classWait)
	m.writers.Init(&m.mu, classWriters)
	m.ended.Init(&m.mu, classWait)

	uuid, err := chunkTreeUUID(t, c.Volumes, sb)
	if err != nil {
		return nil, err
	}
	m.Forest = ctree.NewForest(ctree.Config{NodeSize: int(sb.NodeSize), SectorSize: int(sb.SectorSize), Csum: sb.CsumType, FSID: sb.TreeFSID(),
		ChunkTreeUUID: uuid, Reader: c.Volumes, CacheBlocks: c.CacheBlocks, NewNode: c.NewNode, BadCopy: c.BadCopy})
	if err := m.openChunkTree(t, sb); err != nil {
		return nil, err
	}
	if !c.ReadOnly {
		if err := c.Volumes.CheckWritable(); err != nil {
			return nil, err
		}
		if c.Volumes.Writable() < len(c.Volumes.Devices()) {
			m.skip = volumes.LagMax
		}
	}
	if err := m.openRoot(t, format.ROOT_TREE_OBJECTID, sb.Root, int(sb.RootLevel), sb.Generation, 0); err != nil {
		return nil, err
	}
	for _, id := range []uint64{format.EXTENT_TREE_OBJECTID, format.DEV_TREE_OBJECTID, format.CSUM_TREE_OBJECTID,
		format.FS_TREE_OBJECTID} {
		if err := m.openTree(t, id); err != nil {
			return nil, err
		}
	}
	if c.ReadOnly {
		m.Space = spaceinfo.New(sb.NodeSize, 1)
		return m, m.openQuota(t)
	}
	if err := m.openTree(t, format.UUID_TREE_OBJECTID); err != nil && !errors.Is(err, ErrNoRoot) {
		return nil, err
	}
	// A free space tree that is not marked valid is rebuilt by the kernel at mount: nothing to
	// keep.
	if sb.CompatROFlags&format.CompatROFreeSpaceTreeValid != 0 {
		if err := m.openTree(t, format.FREE_SPACE_TREE_OBJECTID); err != nil {
			return nil, err
		}
	}
	if sb.CompatROFlags&format.CompatROBlockGroupTree != 0 {
		if err := m.openTree(t, format.BLOCK_GROUP_TREE_OBJECTID); err != nil {
			return nil, err
		}
	}
	m.Space = spaceinfo.New(sb.NodeSize, m.copies(format.BlockGroupMetadata))
	if sb.IncompatFlags&format.IncompatMixedGroups != 0 {
		m.Space = spaceinfo.NewMixed(sb.NodeSize, m.copies(format.BlockGroupMetadata))
	}
	m.Extents = extenttree.New(extenttree.Config{Forest: m.Forest, Volumes: c.Volumes, Space: m.Space,
		Extent: m.roots[format.EXTENT_TREE_OBJECTID], Chunk: m.roots[format.CHUNK_TREE_OBJECTID],
		Dev: m.roots[format.DEV_TREE_OBJECTID], FreeSpace: m.roots[format.FREE_SPACE_TREE_OBJECTID],
		Groups:   m.roots[format.BLOCK_GROUP_TREE_OBJECTID],
		NodeSize: sb.NodeSize, ChunkTreeUUID: uuid, Skinny: sb.IncompatFlags&format.IncompatSkinnyMetadata != 0})
	m.Forest.SetAllocator(m.Extents)
	if err := m.guard(t); err != nil {
		return nil, err
	}
	if err := m.Extents.Load(t); err != nil {
		return nil, err
	}
	return m, m.openQuota(t)
}

// chunkTreeUUID reads it from the header of the chunk tree's root, which is the first block to be
// trusted.
func chunkTreeUUID(t *sched.Task, v *volumes.Volumes, sb *format.Super) (uuid format.UUID, err error) {
	b := make(format.Node, sb.NodeSize)
	for mirror := range v.Mirrors(sb.ChunkRoot) {
		if err = v.Read(t, b, sb.ChunkRoot, mirror); err != nil {
			continue
		}
		if sb.CsumType.BlockMatch(b) && b.Bytenr() == sb.ChunkRoot {
			return b.ChunkTreeUUID(), nil
		}
		have, want := sb.CsumType.BlockText(b)
		err = fmt.Errorf("corrupt node: root=3 block=%d, bad csum or bytenr, have %s %d want %s %d",
			sb.ChunkRoot, have, b.Bytenr(), want, sb.ChunkRoot)
	}
	if err == nil {
		err = fmt.Errorf("chunk tree root %d lies in no system chunk", sb.ChunkRoot)
	}
	return uuid, fmt.Errorf("open chunk tree: %w", err)
}

func (m *Manager) openRoot(t *sched.Task, id, bytenr uint64, level int, generation, lastSnapshot uint64) error {
	r, err := m.Forest.OpenRoot(t, id, bytenr, level, generation, lastSnapshot)
	if err != nil {
		return fmt.Errorf("open tree %d: %w", int64(id), err)
	}
	m.roots[id] = r
	return nil
}

func (m *Manager) openChunkTree(t *sched.Task, sb *format.Super) error {
	if err := m.openRoot(t, format.CHUNK_TREE_OBJECTID, sb.ChunkRoot, int(sb.ChunkRootLevel), sb.ChunkRootGeneration, 0); err != nil {
		return err
	}
	var p ctree.Path
	defer p.Release(t)
	r := m.roots[format.CHUNK_TREE_OBJECTID]
	key := format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY}
	more, err := m.Forest.SearchForward(t, r, key, &p)
	for ; more && err == nil; more, err = m.Forest.NextItem(t, r, &p) {
		if err := m.addVolume(p.Key(), p.Item()); err != nil {
			return fmt.Errorf("read chunk tree: %w", err)
		}
	}
	if err == nil {
		err = m.Volumes.Settle()
	}
	if err != nil {
		return fmt.Errorf("read chunk tree: %w", err)
	}
	return nil
}

// addVolume takes an item of the chunk tree: a device or a chunk.
func (m *Manager) addVolume(k format.Key, b []byte) error {
	switch k.Type {
	case format.DEV_ITEM_KEY:
		var d format.DevItem
		d.Decode(b)
		return m.Volumes.AddDevice(d)
	case format.CHUNK_ITEM_KEY:
		var c format.Chunk
		c.Decode(b)
		return m.Volumes.Add(k.Offset, c)
	}
	return nil
}

// copies is how many copies a new chunk of the type has: 2 when it is DUP.
func (m *Manager) copies(typ uint64) int {
	return format.ProfileOf(format.BestProfile(m.Volumes.Profiles(typ), m.Volumes.Writable())).Copies
}

// findRootItem puts p, read-locked, on the ROOT_ITEM of a tree.
func (m *Manager) findRootItem(t *sched.Task, id uint64, p *ctree.Path) (format.Key, error) {
	key := format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY, Offset: ^uint64(0)}
	more, err := m.Forest.SearchBackward(t, m.roots[format.ROOT_TREE_OBJECTID], key, p)
	if err != nil {
		return key, err
	}
	if !more || p.Key().Objectid != id || p.Key().Type != format.ROOT_ITEM_KEY {
		return key, ErrNoRoot
	}
	return p.Key(), nil
}

// openTree opens a tree that every file system has, by its ROOT_ITEM.
func (m *Manager) openTree(t *sched.Task, id uint64) error {
	r, _, err := m.OpenSubvol(t, id)
	if err == nil {
		m.roots[id] = r
	}
	return err
}

// OpenSubvol opens the tree of a subvolume by its ROOT_ITEM. The caller keeps the root and opens
// each subvolume once.
func (m *Manager) OpenSubvol(t *sched.Task, id uint64) (*ctree.Root, format.RootItem, error) {
	it, err := m.RootItem(t, id)
	if err != nil {
		return nil, it, err
	}
	r, err := m.Forest.OpenRoot(t, id, it.Bytenr, int(it.Level), it.Generation, it.LastSnapshot)
	if err != nil {
		return nil, it, fmt.Errorf("open tree %d: %w", int64(id), err)
	}
	return r, it, nil
}

// SubvolRef says where subvolume child is linked in subvolume parent: directory and name. ErrNoRoot
// when it is not: the name of a subvolume in a snapshot of its parent leads nowhere.
func (m *Manager) SubvolRef(t *sched.Task, parent, child uint64) (ref format.RootRef, err error) {
	_, ref, err = m.rootRef(t, format.Key{Objectid: parent, Type: format.ROOT_REF_KEY, Offset: child}, func(k format.Key) bool { return k.Offset == child })
	return ref, err
}

// SubvolParent says in which subvolume, directory and name subvolume child is linked. ErrNoRoot
// when it is nowhere.
func (m *Manager) SubvolParent(t *sched.Task, child uint64) (parent uint64, ref format.RootRef, err error) {
	k, ref, err := m.rootRef(t, format.Key{Objectid: child, Type: format.ROOT_BACKREF_KEY}, func(format.Key) bool { return true })
	return k.Offset, ref, err
}

// rootRef reads the first ROOT_REF or ROOT_BACKREF at or after key that has key's object and type
// and that want accepts.
func (m *Manager) rootRef(t *sched.Task, key format.Key, want func(format.Key) bool) (k format.Key, ref format.RootRef, err error) {
	var p ctree.Path
	defer p.Release(t)
	more, err := m.Forest.SearchForward(t, m.roots[format.ROOT_TREE_OBJECTID], key, &p)
	if err != nil {
		return k, ref, err
	}
	if !more || p.Key().Objectid != key.Objectid || p.Key().Type != key.Type || !want(p.Key()) {
		return k, ref, ErrNoRoot
	}
	ref.Decode(p.Item())
	return p.Key(), ref, nil
}

// RootItem reads a tree's ROOT_ITEM as the last commit left it.
func (m *Manager) RootItem(t *sched.Task, id uint64) (it format.RootItem, err error) {
	var p ctree.Path
	defer p.Release(t)
	if _, err := m.findRootItem(t, id, &p); err != nil {
		return it, fmt.Errorf("open tree %d: %w", int64(id), err)
	}
	it.Decode(p.Item())
	return it, nil
}
