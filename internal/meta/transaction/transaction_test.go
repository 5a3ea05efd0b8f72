package transaction_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

func newImage(tb testing.TB, t *sched.Task, size int64) blockdev.Device {
	dev := blockdev.NewMemory(size)
	if err := mkfs.Make(t, dev, mkfs.Options{Now: time.Unix(1e9, 0)}); err != nil {
		tb.Fatal(err)
	}
	return dev
}

type flushers struct{ m *transaction.Manager }

func (f flushers) FlushDelalloc(t *sched.Task, bytes uint64, wait bool) {}
func (f flushers) CommitTransaction(t *sched.Task) error                { return f.m.Commit(t) }
func (f flushers) AllocChunk(t *sched.Task, typ uint64) (bool, error) {
	return f.m.Extents.AllocChunk(t, typ)
}
func (f flushers) DirtyDelalloc() uint64   { return 0 }
func (flushers) Preempt(*sched.Task)       {}
func (f flushers) FreeDeviceBytes() uint64 { return f.m.Volumes.FreeDeviceBytes() }

func open(tb testing.TB, t *sched.Task, dev blockdev.Device) *transaction.Manager {
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(t, dev, b, format.SuperOffset); err != nil {
		tb.Fatal(err)
	}
	if err := format.CheckSuper(b, dev.Size()); err != nil {
		tb.Fatal(err)
	}
	sb := new(format.Super)
	sb.Decode(b)
	v, err := volumes.Open([]volumes.Member{{Dev: dev, Super: sb}}, false)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := transaction.Open(t, transaction.Config{Volumes: v, Super: sb})
	if err != nil {
		tb.Fatal(err)
	}
	m.Space.SetFlushers(flushers{m})
	return m
}

// makeInodes inserts the inode items that file extents must come after, for inodes 1000 to 1000+n.
func makeInodes(tb testing.TB, t *sched.Task, m *transaction.Manager, n uint64) {
	tb.Helper()
	h, err := m.Start(t, int(n))
	if err != nil {
		tb.Fatal(err)
	}
	for ino := uint64(1000); ino < 1000+n; ino++ {
		it := format.InodeItem{Generation: h.Transid(), Transid: h.Transid(), Nlink: 1, Mode: format.S_IFREG | 0o644}
		var b [format.InodeItemSize]byte
		it.Encode(b[:])
		k := format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}
		if err := m.Forest.InsertItem(t, h.Trans(), m.Root(format.FS_TREE_OBJECTID), k, b[:]); err != nil {
			tb.Fatal(err)
		}
	}
	if err := h.End(t); err != nil {
		tb.Fatal(err)
	}
}

// extents is a model of the files: which data extent each item of the fs tree points at.
type extents map[format.Key]format.FileExtent

// verify opens the image anew and compares all there is with the model: Load itself checks used
// bytes and overlaps.
func verify(tb testing.TB, t *sched.Task, dev blockdev.Device, model extents) {
	tb.Helper()
	m := open(tb, t, dev)
	var p ctree.Path
	defer p.Release(t)
	fs := m.Root(format.FS_TREE_OBJECTID)
	more, err := m.Forest.SearchForward(t, fs, format.Key{Objectid: 1000}, &p)
	n := 0
	for ; more && err == nil; more, err = m.Forest.NextItem(t, fs, &p) {
		if p.Key().Type != format.EXTENT_DATA_KEY {
			continue
		}
		var fe format.FileExtent
		fe.Decode(p.Item())
		if want := model[p.Key()]; want.DiskBytenr != fe.DiskBytenr || want.DiskNumBytes != fe.DiskNumBytes {
			tb.Fatalf("item %v: have extent %d+%d, want %d+%d", p.Key(), fe.DiskBytenr, fe.DiskNumBytes, want.DiskBytenr, want.DiskNumBytes)
		}
		n++
	}
	if err != nil {
		tb.Fatal(err)
	}
	if n != len(model) {
		tb.Fatalf("%d items in the tree, model has %d", n, len(model))
	}
	p.Release(t)
	if err := freeSpaceTreeExact(t, m); err != nil {
		tb.Fatal(err)
	}
}

// freeSpaceTreeExact compares the free space tree with the gaps between the extent items.
func freeSpaceTreeExact(t *sched.Task, m *transaction.Manager) error {
	var have, want []string
	var p ctree.Path
	defer p.Release(t)
	fst := m.Root(format.FREE_SPACE_TREE_OBJECTID)
	count, group := uint32(0), uint64(0)
	more, err := m.Forest.SearchForward(t, fst, format.Key{}, &p)
	for ; more && err == nil; more, err = m.Forest.NextItem(t, fst, &p) {
		k := p.Key()
		if k.Type == format.FREE_SPACE_INFO_KEY {
			if count != 0 {
				return fmt.Errorf("group %d: %d free extents are missing", group, count)
			}
			var info format.FreeSpaceInfo
			info.Decode(p.Item())
			count, group = info.ExtentCount, k.Objectid
			continue
		}
		count--
		have = append(have, fmt.Sprintf("%d+%d", k.Objectid, k.Offset))
	}
	if err != nil {
		return err
	}
	p.Release(t)
	chunks := m.Volumes.Chunks()
	ext := m.Root(format.EXTENT_TREE_OBJECTID)
	for _, c := range chunks {
		pos, end := c.Logical, c.Logical+c.Chunk.Length
		more, err := m.Forest.SearchForward(t, ext, format.Key{Objectid: c.Logical}, &p)
		for ; more && err == nil && p.Key().Objectid < end; more, err = m.Forest.NextItem(t, ext, &p) {
			k := p.Key()
			length := k.Offset
			if k.Type == format.METADATA_ITEM_KEY {
				length = format.NodeSize
			} else if k.Type != format.EXTENT_ITEM_KEY {
				continue
			}
			if k.Objectid > pos {
				want = append(want, fmt.Sprintf("%d+%d", pos, k.Objectid-pos))
			}
			pos = k.Objectid + length
		}
		p.Release(t)
		if err != nil {
			return err
		}
		if pos < end {
			want = append(want, fmt.Sprintf("%d+%d", pos, end-pos))
		}
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		return fmt.Errorf("free space tree has %v, extents leave %v", have, want)
	}
	return nil
}

// refAt is the reference of the whole extent at a key of the top-level subvolume.
func refAt(k format.Key) format.DataRef {
	return format.DataRef{Root: format.FS_TREE_OBJECTID, Ino: format.Ino(k.Objectid), Offset: format.FileOff(k.Offset)}
}

// insert allocates a data extent and gives it to an item.
func insert(t *sched.Task, m *transaction.Manager, model extents, k format.Key, bytes uint64) error {
	if err := m.Space.Data().Reserve(t, bytes, spaceinfo.FlushData); err != nil {
		return err
	}
	h, err := m.Start(t, 1)
	if err != nil {
		m.Space.Data().Release(t, bytes)
		return err
	}
	defer h.End(t)
	start, length, err := m.Extents.ReserveExtent(t, bytes, format.SectorSize, 0)
	if err != nil {
		m.Space.Data().Release(t, bytes)
		return err
	}
	m.Space.Data().Release(t, bytes-length)
	fe := format.FileExtent{Generation: h.Transid(), RAMBytes: length, Type: format.FileExtentTypeReg, DiskBytenr: uint64(start),
		DiskNumBytes: length, NumBytes: length}
	b := make([]byte, fe.Size())
	fe.Encode(b)
	if err := m.Forest.InsertItem(t, h.Trans(), m.Root(format.FS_TREE_OBJECTID), k, b); err != nil {
		return err
	}
	model[k] = fe
	return m.Extents.AllocReservedFileExtent(t, h.Trans(), refAt(k), start, length)
}

func remove(t *sched.Task, m *transaction.Manager, model extents, k format.Key) error {
	h, err := m.Start(t, 1)
	if err != nil {
		return err
	}
	defer h.End(t)
	var p ctree.Path
	defer p.Release(t)
	fs := m.Root(format.FS_TREE_OBJECTID)
	found, err := m.Forest.SearchSlot(t, h.Trans(), fs, k, &p, -1, true)
	if err != nil || !found {
		return fmt.Errorf("search %v: found %v, %v", k, found, err)
	}
	if err := m.Forest.DelItems(t, h.Trans(), fs, &p, p.Slot(), 1); err != nil {
		return err
	}
	p.Release(t)
	fe := model[k]
	delete(model, k)
	return m.Extents.FreeExtent(t, h.Trans(), refAt(k), format.Logical(fe.DiskBytenr), fe.DiskNumBytes)
}

// Thousands of extents come and go over many commits, some within one; the books agree after each
// reopening.
func TestRandomCommits(t *testing.T) {
	task := sched.NewTask("test")
	dev := newImage(t, task, 256<<20)
	m := open(t, task, dev)
	model := extents{}
	makeInodes(t, task, m, 100)
	rng := rand.New(rand.NewPCG(1, 2))
	var keys []format.Key
	for commit := range 40 {
		for range 200 {
			if len(keys) > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(len(keys))
				if err := remove(task, m, model, keys[i]); err != nil {
					t.Fatal(err)
				}
				keys[i] = keys[len(keys)-1]
				keys = keys[:len(keys)-1]
				continue
			}
			k := format.Key{Objectid: 1000 + rng.Uint64N(100), Type: format.EXTENT_DATA_KEY, Offset: rng.Uint64N(1000) << 20}
			if _, ok := model[k]; ok {
				continue
			}
			if err := insert(task, m, model, k, (1+rng.Uint64N(8))*format.SectorSize); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, k)
		}
		if err := m.Commit(task); err != nil {
			t.Fatal(err)
		}
		if commit%8 == 7 {
			verify(t, task, dev, model)
		}
	}
	checkAccounts(t, task, m)
}

// checkAccounts: at rest nothing is promised but the global reserve, nothing reserved, nothing
// pinned.
func checkAccounts(tb testing.TB, t *sched.Task, m *transaction.Manager) {
	tb.Helper()
	for name, i := range map[string]*spaceinfo.Info{"data": m.Space.Data(), "metadata": m.Space.Metadata(), "system": m.Space.System()} {
		u := i.Usage(t)
		if i == m.Space.Metadata() {
			u.MayUse -= m.Space.Global.Reserved(t)
		}
		if u.MayUse != 0 || u.Reserved != 0 || u.Pinned != 0 {
			tb.Errorf("%s at rest: %+v", name, u)
		}
	}
}

// The device fills up: inserts fail with ENOSPC, commits go on working, and what was freed can be
// had again.
func TestFull(t *testing.T) {
	task := sched.NewTask("test")
	dev := newImage(t, task, 128<<20)
	m := open(t, task, dev)
	makeInodes(t, task, m, 1)
	model := extents{}
	var keys []format.Key
	fill := func() (n int) {
		for {
			k := format.Key{Objectid: 1000, Type: format.EXTENT_DATA_KEY, Offset: uint64(len(keys)) << 20}
			err := insert(task, m, model, k, 64<<10)
			if errors.Is(err, errno.ENOSPC) {
				return n
			}
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, k)
			n++
		}
	}
	first := fill()
	if first < 100 {
		t.Errorf("only %d extents of 64 KiB fit 128 MiB", first)
	}
	if err := m.Commit(task); err != nil {
		t.Fatal(err)
	}
	verify(t, task, dev, model)
	for _, k := range keys[:first/2] {
		if err := remove(task, m, model, k); err != nil {
			t.Fatal(err)
		}
	}
	keys = append([]format.Key(nil), keys...)
	if again := fill(); again < first/2-1 {
		t.Errorf("%d extents freed, only %d fit again", first/2, again)
	}
	if err := m.Commit(task); err != nil {
		t.Fatal(err)
	}
	verify(t, task, dev, model)
	checkAccounts(t, task, m)
}

// Handles of several tasks are open while commits run; every change is in one commit or the next.
func TestConcurrentCommits(t *testing.T) {
	task := sched.NewTask("test")
	dev := newImage(t, task, 256<<20)
	m := open(t, task, dev)
	makeInodes(t, task, m, 4)
	models := make([]extents, 4)
	errs := make([]error, len(models))
	var tasks []*sched.Task
	for w := range models {
		models[w] = extents{}
		tasks = append(tasks, task.Go(fmt.Sprint("writer", w), func(t *sched.Task) {
			for i := range 300 {
				k := format.Key{Objectid: 1000 + uint64(w), Type: format.EXTENT_DATA_KEY, Offset: uint64(i) << 20}
				if errs[w] = insert(t, m, models[w], k, 16<<10); errs[w] != nil {
					return
				}
				if i%3 == 2 {
					if errs[w] = remove(t, m, models[w], k); errs[w] != nil {
						return
					}
				}
				if i%50 == 49 {
					if errs[w] = m.Commit(t); errs[w] != nil {
						return
					}
				}
			}
		}))
	}
	all := extents{}
	for w, c := range tasks {
		task.Join(c)
		if errs[w] != nil {
			t.Fatal(errs[w])
		}
		for k, fe := range models[w] {
			all[k] = fe
		}
	}
	if err := m.Commit(task); err != nil {
		t.Fatal(err)
	}
	verify(t, task, dev, all)
	checkAccounts(t, task, m)
}

// A transaction that was joined and not used is committed like any other, and the image can be
// opened again: the superblock's new generation is that of the root tree's root. An fsync whose
// inode another commit had just written made such a transaction (found by the explorer, scenario
// fsync-writer with every class a switch point).
func TestEmptyCommit(tt *testing.T) {
	t := sched.NewTask("test")
	dev := newImage(tt, t, 128<<20)
	for round := range 3 {
		m := open(tt, t, dev)
		for range 2 {
			h, err := m.Join(t)
			if err == nil {
				err = h.End(t)
			}
			if err == nil {
				err = m.Commit(t)
			}
			if err != nil {
				tt.Fatalf("round %d: %v", round, err)
			}
		}
		_, _, gen := m.Root(format.ROOT_TREE_OBJECTID).Pointer()
		if have := m.Super(t).Generation; have != gen {
			tt.Fatalf("round %d: superblock generation %d, root tree %d", round, have, gen)
		}
	}
}

// TestChunkBesideCommit: a task makes a chunk while a commit is between its last look for new
// chunks and its superblock, or while it enters another one. The chunk is in the map and its items
// come with the next commit: neither the superblock's bytes_used of the device nor DEV_ITEM's may
// count it, or they differ from each other and from the dev extents. A put that grew its data did
// that.
func TestChunkBesideCommit(t *testing.T) {
	for _, other := range []bool{false, true} {
		tk := sched.NewTask(t.Name())
		dev := newImage(t, tk, 256<<20)
		m := open(t, tk, dev)
		makeInodes(t, tk, m, 1)
		if other {
			if added, err := m.Extents.AllocChunk(tk, format.BlockGroupData); err != nil || !added {
				t.Fatal(added, err)
			}
		}
		// the first step of AllocChunk
		if _, err := m.Volumes.AllocChunk(tk, format.BlockGroupData, 16<<20); err != nil {
			t.Fatal(err)
		}
		if err := m.Commit(tk); err != nil {
			t.Fatal(err)
		}
		r, err := check.Check(tk, dev, check.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if f.Rule == "super.dev_item" || f.Rule == "dev.bytes_used" {
				t.Errorf("beside another chunk %v: %v", other, f)
			}
		}
	}
}
