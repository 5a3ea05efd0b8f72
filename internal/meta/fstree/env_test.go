package fstree

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

const sector = format.SectorSize

// env is a forest in memory with a subvolume, a csum tree and an extent tree that only counts.
type env struct {
	testing.TB
	t    *sched.Task
	f    *ctree.Forest
	tr   *ctree.Trans
	fs   *ctree.Root
	s    *Store
	refs *fakeRefs
	disk *fakeDisk
}

// fakeDisk holds written tree blocks, and hands out their addresses.
type fakeDisk struct {
	mu     sync.Mutex
	blocks map[uint64][]byte
	next   uint64
	node   uint64
}

func (d *fakeDisk) Mirrors(uint64) int { return 1 }

func (d *fakeDisk) Read(t *sched.Task, p []byte, logical uint64, mirror int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.blocks[logical]
	if !ok {
		return fmt.Errorf("read of block %d: %w", logical, errno.EIO)
	}
	copy(p, b)
	return nil
}

func (d *fakeDisk) Submit(t *sched.Task, b *blockdev.Bio) {
	off := uint64(b.Off)
	d.mu.Lock()
	for _, v := range b.Vecs {
		d.blocks[off] = append([]byte(nil), v...)
		off += uint64(len(v))
	}
	d.mu.Unlock()
	b.EndIO(t, b)
}

func (d *fakeDisk) AllocTreeBlock(t *sched.Task, tr *ctree.Trans, r *ctree.Root, hint uint64) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next += d.node
	return d.next, nil
}

func (d *fakeDisk) RefTreeBlock(*sched.Task, *ctree.Root, uint64, int, format.Key) {}

func (d *fakeDisk) FreeTreeBlock(*sched.Task, *ctree.Trans, *ctree.Root, *ctree.Buffer, bool) error {
	return nil
}

func (d *fakeDisk) UpdateRefForCow(*sched.Task, *ctree.Trans, *ctree.Root, *ctree.Buffer, *ctree.Buffer) (bool, error) {
	return true, nil
}

func (d *fakeDisk) IncRefs(*sched.Task, *ctree.Trans, *ctree.Root, *ctree.Buffer) error { return nil }

type dataExtent struct {
	numBytes uint64
	refs     map[format.DataRef]int
}

// fakeRefs counts references of data extents and refuses what the real extent tree could not do.
type fakeRefs struct {
	mu      sync.Mutex
	extents map[format.Logical]*dataExtent
	busy    bool
}

func (x *fakeRefs) AllocReservedFileExtent(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.extents[bytenr] != nil {
		return fmt.Errorf("extent %d allocated twice", bytenr)
	}
	x.extents[bytenr] = &dataExtent{numBytes, map[format.DataRef]int{ref: 1}}
	return nil
}

func (x *fakeRefs) IncExtentRef(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.extents[bytenr]
	if e == nil || e.numBytes != numBytes {
		return fmt.Errorf("reference to unknown extent %d+%d", bytenr, numBytes)
	}
	e.refs[ref]++
	return nil
}

func (x *fakeRefs) FreeExtent(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.extents[bytenr]
	if e == nil || e.numBytes != numBytes || e.refs[ref] == 0 {
		return fmt.Errorf("free of unknown reference %v to extent %d+%d", ref, bytenr, numBytes)
	}
	if e.refs[ref]--; e.refs[ref] == 0 {
		delete(e.refs, ref)
	}
	if len(e.refs) == 0 {
		delete(x.extents, bytenr)
	}
	return nil
}

func (x *fakeRefs) MayWrite(t *sched.Task, bytenr format.Logical) bool { return true }

func (x *fakeRefs) CrossRefExist(t *sched.Task, own format.DataRef, bytenr format.Logical, p *ctree.Path) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p.Nowait && x.busy {
		return false, kiocb.AgainRefs
	}
	e := x.extents[bytenr]
	if e == nil {
		return false, fmt.Errorf("unknown extent %d", bytenr)
	}
	return len(e.refs) != 1 || e.refs[own] == 0, nil
}

// newEnv makes empty trees of small nodes, so that few items make several levels.
func newEnv(tb testing.TB, nodeSize int) *env {
	tb.Helper()
	return newEnvOf(tb, nodeSize, format.CsumCRC32C)
}

func newEnvOf(tb testing.TB, nodeSize int, csum format.CsumType) *env {
	tb.Helper()
	e := &env{TB: tb, t: sched.NewTask("test"), refs: &fakeRefs{extents: map[format.Logical]*dataExtent{}}}
	e.disk = &fakeDisk{blocks: map[uint64][]byte{}, next: 1 << 30, node: uint64(nodeSize)}
	e.f = ctree.NewForest(ctree.Config{NodeSize: nodeSize, Csum: csum, FSID: format.UUID{1}, ChunkTreeUUID: format.UUID{2}, Reader: e.disk, CacheBlocks: 64})
	e.f.SetAllocator(e.disk)
	e.tr = &ctree.Trans{ID: 7, Dirty: ctree.NewDirtySet()}
	var err error
	if e.fs, err = e.f.NewRoot(e.t, e.tr, format.FS_TREE_OBJECTID); err != nil {
		tb.Fatal(err)
	}
	csums, err := e.f.NewRoot(e.t, e.tr, format.CSUM_TREE_OBJECTID)
	if err != nil {
		tb.Fatal(err)
	}
	e.s = New(e.f, e.refs, csums, sector)
	return e
}

// commit writes the transaction out, which runs the tree checker over every block, and starts the
// next.
func (e *env) commit() {
	e.Helper()
	e.f.Seal(e.t, e.tr.Dirty)
	e.ok(e.f.WriteOut(e.t, e.tr.Dirty, e.disk))
	e.tr = &ctree.Trans{ID: e.tr.ID + 1, Dirty: ctree.NewDirtySet()}
}

func (e *env) ok(err error) {
	if err != nil {
		e.Helper()
		e.Fatal(err)
	}
}

func (e *env) want(err, want error) {
	if !errors.Is(err, want) || want == nil && err != nil {
		e.Helper()
		e.Fatalf("have error %v want %v", err, want)
	}
}

// keys lists the keys of a tree.
func (e *env) keys(r *ctree.Root) (keys []format.Key) {
	e.Helper()
	e.ok(e.s.each(e.t, r, format.Key{}, func(p *ctree.Path, k format.Key) (bool, error) {
		keys = append(keys, k)
		return true, nil
	}))
	return keys
}

// inode adds a regular file's inode item, without which the tree checker refuses its extents.
func (e *env) inode(ino format.Ino, mode uint32) {
	e.Helper()
	e.ok(e.s.InsertInode(e.t, e.tr, e.fs, ino, &format.InodeItem{Generation: e.tr.ID, Transid: e.tr.ID, Nlink: 1, Mode: mode}))
}
