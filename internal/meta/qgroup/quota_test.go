package qgroup_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// The counts follow what is written, overwritten, punched, truncated and deleted, over commits and
// mounts, and are those that the checker makes.
func TestQuotaCounts(t *testing.T) {
	x := fstest.New(t)
	tk := x.T
	old := x.Create("/before")
	x.WriteAt(old, make([]byte, 100<<10), 0)
	x.Must(old.Close(tk))
	if q, err := x.FS.Quotas(tk); err != nil || q.On || len(q.Groups) != 0 {
		t.Fatalf("without quotas: %v, %v", q, err)
	}
	x.Must(x.FS.EnableQuota(tk))
	const node = 16 << 10
	if rfer, excl := fstest.Counts(x, format.FS_TREE_OBJECTID); rfer != node+100<<10 || excl != rfer {
		t.Errorf("one file of 100 KiB: rfer %d excl %d", rfer, excl)
	}
	x.Reopen()
	fstest.JudgedQuota(x)
	w := &fstest.Workload{Tb: t, T: tk, F: x.FS, Model: fstest.Tree{}, Rng: rand.New(rand.NewPCG(3, 4))}
	for range 8 {
		for range 30 {
			w.Step()
		}
		x.Must(x.FS.Sync(tk))
		fstest.JudgedQuota(x)
	}
	x.Reopen()
	w.F = x.FS
	for name := range w.Model {
		x.Must(x.FS.Unlink(tk, "/"+name))
	}
	x.Must(x.FS.Unlink(tk, "/before"))
	x.Must(x.FS.Sync(tk))
	fstest.JudgedQuota(x)
	if rfer, excl := fstest.Counts(x, format.FS_TREE_OBJECTID); rfer != node || excl != node {
		t.Errorf("with nothing left: rfer %d excl %d, want %d", rfer, excl, node)
	}
}

// Quotas go off with all that they had, and on again.
func TestQuotaOnOff(t *testing.T) {
	x := fstest.New(t)
	for range 2 {
		x.Must(x.FS.EnableQuota(x.T))
		x.Must(x.FS.EnableQuota(x.T))
		x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 1<<20, false, false))
		if err := x.FS.LimitQuota(x.T, 300, 1<<20, false, false); !errors.Is(err, errno.ENOENT) {
			t.Errorf("limit of a qgroup that is not there: %v", err)
		}
		x.Reopen()
		fstest.JudgedQuota(x)
		q, err := x.FS.Quotas(x.T)
		x.Must(err)
		if g := q.Groups[0]; !q.On || len(q.Groups) != 1 || g.Path != "/" || g.MaxRfer != 1<<20 || g.LimitFlags != format.QgroupLimitMaxRfer {
			t.Errorf("after the limit: %+v", q)
		}
		x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 0, false, true))
		x.Must(x.FS.DisableQuota(x.T))
		x.Must(x.FS.DisableQuota(x.T))
		x.Reopen()
		if q, err := x.FS.Quotas(x.T); err != nil || q.On || len(q.Groups) != 0 {
			t.Errorf("after disable: %+v, %v", q, err)
		}
		if err := x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 1<<20, false, false); !errors.Is(err, qgroup.ErrOff) {
			t.Errorf("limit with quotas off: %v", err)
		}
		if err := x.FS.RescanQuota(x.T); !errors.Is(err, qgroup.ErrOff) {
			t.Errorf("rescan with quotas off: %v", err)
		}
	}
}

// Subvolumes that share extents with snapshots: what only one reaches is exclusive, and what is
// written or freed in one changes the others' counts as well.
func TestQuotaShared(t *testing.T) {
	x := fstest.New(t, fstest.Image("../../fs/testdata/nested.blocks.gz"))
	tk := x.T
	x.Must(x.FS.EnableQuota(tk))
	fstest.JudgedQuota(x)
	q, err := x.FS.Quotas(tk)
	x.Must(err)
	var paths []string
	for _, g := range q.Groups {
		paths = append(paths, g.Path)
	}
	if have := strings.Join(paths, " "); have != "/ /sub /sub/d/deep /dir/src /snap /ro" {
		t.Errorf("paths %q", have)
	}
	for _, dir := range []string{"/", "/sub/d/deep"} {
		for _, name := range []string{"a", "b", "c"} {
			f := x.Create(dir + "/" + name)
			x.WriteAt(f, make([]byte, 70000), 0)
			x.Must(f.Close(tk))
		}
	}
	x.Must(x.FS.Sync(tk))
	fstest.JudgedQuota(x)
	x.Must(x.FS.Unlink(tk, "/sub/d/deep/b"))
	x.Reopen()
	fstest.JudgedQuota(x)
}

// A tree of three levels, of which a snapshot shares the one in the middle: a leaf's only reference
// is by the tree that made it, and both reach it.
func TestQuotaDeep(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.EnableQuota(x.T))
	x.Must(x.FS.Subvolume(x.T, "/sub", 0o755))
	target := strings.Repeat("t", 2000)
	for i := range 4500 {
		x.Must(x.FS.Symlink(x.T, target, fmt.Sprintf("/sub/link%d", i)))
	}
	x.Must(x.FS.Snapshot(x.T, "/sub", "/snap", false))
	rfer, excl := fstest.Counts(x, 256)
	if rfer < 500*16<<10 || excl != 16<<10 {
		t.Fatalf("rfer %d excl %d: the tree is not high enough, or more than its root is its alone", rfer, excl)
	}
	for i, dir := range []string{"/sub", "/snap", "/sub"} {
		for k := range 3 {
			x.Must(x.FS.Unlink(x.T, fmt.Sprintf("%s/link%d", dir, 1400*k+i*9)))
		}
		x.Must(x.FS.Sync(x.T))
		fstest.JudgedQuota(x)
	}
}

// limited makes a file system whose top-level subvolume may have n bytes beyond what an empty one
// has, 16 KiB.
func limited(t *testing.T, n uint64, opts ...fstest.Option) *fstest.Fixture {
	t.Helper()
	x := fstest.New(t, opts...)
	x.Must(x.FS.EnableQuota(x.T))
	x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 16<<10+n, false, false))
	return x
}

// Every operation that needs room stops at the limit with EDQUOT, not before there is none, and
// leaves nothing reserved; those that make room go on, and then there is room again. Without the
// limit all goes on.
func TestQuotaLimit(t *testing.T) {
	fstest.OneTask(t)
	const limit = 2 << 20
	chunk := make([]byte, 64<<10)
	fill := func(x *fstest.Fixture, f *fs.File, off int64) (int64, error) {
		for {
			n, err := f.WriteAt(x.T, chunk, off)
			off += int64(n)
			if err != nil {
				return off, err
			}
		}
	}
	for _, c := range []struct {
		name string
		do   func(x *fstest.Fixture, f *fs.File) error // until the limit stops it
		// it needs the whole limit but for a few nodes
		full bool
	}{
		{"write", func(x *fstest.Fixture, f *fs.File) error { _, err := fill(x, f, 0); return err }, true},
		{"append", func(x *fstest.Fixture, f *fs.File) error {
			for {
				if _, err := f.WriteIter(x.T, kiocb.Request{Flags: kiocb.Append}, iopath.Source{Buf: chunk}); err != nil {
					return err
				}
			}
		}, true},
		{"write of one batch", func(x *fstest.Fixture, f *fs.File) error {
			n, err := f.WriteAt(x.T, make([]byte, 4<<20), 0)
			if n == 0 || n >= limit {
				x.Errorf("%d bytes of 4 MiB, want what fits", n)
			}
			return err
		}, true},
		{"synced writes", func(x *fstest.Fixture, f *fs.File) error {
			for off := int64(0); ; off += int64(len(chunk)) {
				if _, err := f.WriteAt(x.T, chunk, off); err != nil {
					return err
				}
				x.Must(f.Fsync(x.T))
			}
		}, true},
		{"small extents", func(x *fstest.Fixture, f *fs.File) error {
			for off := int64(0); ; off += 3 * 4096 {
				if _, err := f.WriteAt(x.T, chunk[:4096], off); err != nil {
					return err
				}
			}
		}, true},
		{"fallocate", func(x *fstest.Fixture, f *fs.File) error {
			for off := int64(0); ; off += int64(len(chunk)) {
				if err := f.Fallocate(x.T, 0, off, int64(len(chunk))); err != nil {
					return err
				}
			}
		}, true},
		{"one fallocate", func(x *fstest.Fixture, f *fs.File) error { return f.Fallocate(x.T, 0, 0, limit) }, false},
		{"direct write", func(x *fstest.Fixture, f *fs.File) error {
			x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
			for off := int64(0); ; off += int64(len(chunk)) {
				if _, err := f.WriteDirect(x.T, chunk, off); err != nil {
					return err
				}
			}
		}, true},
		{"create", func(x *fstest.Fixture, f *fs.File) error {
			for i := 0; ; i++ {
				g, err := x.FS.Create(x.T, "/"+strings.Repeat("n", 200)+strings.Repeat("x", i%40)+string(rune('a'+i/40%26))+string(rune('a'+i/1040)), 0o644)
				if err != nil {
					return err
				}
				x.Must(g.Close(x.T))
			}
		}, true},
		{"grow", func(x *fstest.Fixture, f *fs.File) error {
			if _, err := fill(x, f, 0); !errors.Is(err, errno.EDQUOT) {
				return err
			}
			x.Must(x.FS.Sync(x.T))
			q, err := x.FS.Quotas(x.T)
			x.Must(err)
			x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, q.Groups[0].Rfer, false, false))
			return f.Truncate(x.T, 8<<20)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := limited(t, limit)
			f := x.Create("/f")
			if err := c.do(x, f); !errors.Is(err, errno.EDQUOT) {
				t.Fatalf("at the limit: %v", err)
			}
			fstest.WantWithin(x)
			if rfer, _ := fstest.Counts(x, format.FS_TREE_OBJECTID); c.full && rfer < limit*3/4 {
				t.Errorf("EDQUOT at %d of %d bytes", rfer, limit)
			}
			x.Must(f.Truncate(x.T, 0))
			x.Must(f.Close(x.T))
			list, err := x.FS.ReadDir(x.T, "/")
			x.Must(err)
			for _, e := range list {
				x.Must(x.FS.Unlink(x.T, "/"+e.Name))
			}
			fstest.WantWithin(x)
			f = x.Create("/again")
			x.WriteAt(f, make([]byte, 1<<20), 0)
			fstest.WantWithin(x)
			x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 0, false, true))
			x.WriteAt(f, make([]byte, 8<<20), 0)
			x.Must(f.Close(x.T))
			fstest.WantWithin(x)
		})
	}
}

// A file at its limit may be written over as long as it is dirty: its blocks are reserved already.
// One that is on disk needs room for the copy, unless it is overwritten in place. A full device is
// ENOSPC, with or without room in the quota.
func TestQuotaOverwrite(t *testing.T) {
	fstest.OneTask(t)
	x := limited(t, 512<<10+2*16<<10) // a node for the dirty extent, and one for the block at hand
	f := x.Create("/f")
	x.Must(x.FS.Sync(x.T)) // the nodes that the transaction has reserved
	part := make([]byte, 4096)
	for off := int64(0); off < 512<<10; off += 4096 {
		x.WriteAt(f, part, off)
		x.WriteAt(f, part, off)
	}
	before := x.FS.Super(x.T).Generation
	for range 3 {
		for off := int64(0); off < 512<<10; off += 64 << 10 { // more than the spare node
			x.WriteAt(f, make([]byte, 64<<10), off)
		}
	}
	if now := x.FS.Super(x.T).Generation; now != before {
		t.Errorf("writing over dirty blocks has flushed: generation %d, was %d", now, before)
	}
	x.Must(f.Close(x.T))
	fstest.WantWithin(x)

	y := limited(t, 1<<20)
	g := y.Create("/nocow")
	y.Must(g.SetFlags(y.T, format.InodeNoDataCow))
	for off := int64(0); off < 1008<<10; off += 16 << 10 {
		y.WriteAt(g, make([]byte, 16<<10), off)
		y.Must(g.Fsync(y.T))
	}
	fstest.WantWithin(y)
	for range 3 {
		// 16 KiB are left: no data, but the node of one extent
		for off := int64(0); off < 960<<10; off += 64 << 10 {
			y.WriteAt(g, make([]byte, 64<<10), off)
		}
		y.Must(y.FS.Sync(y.T))
	}
	if _, err := g.WriteAt(y.T, make([]byte, 1<<20), 1<<20); !errors.Is(err, errno.EDQUOT) {
		t.Errorf("new blocks of a NOCOW file: %v", err)
	}
	y.Must(g.Close(y.T))
	fstest.WantWithin(y)

	z := limited(t, 1<<40, fstest.Size(128<<20))
	h := z.Create("/full")
	var err error
	for off := int64(0); err == nil; off += 1 << 20 {
		_, err = h.WriteAt(z.T, make([]byte, 1<<20), off)
	}
	if !errors.Is(err, errno.ENOSPC) {
		t.Errorf("a full device within its quota: %v", err)
	}
	z.Must(h.Close(z.T))
	fstest.WantWithin(z)
}

// A write at the limit flushes, and the extents that its flush finishes leave it all that they do
// not need: two writes of four blocks, apart from each other, fit where there is room for the first
// one's data, the second one's and a node. Linux 6.18 answers the same at each limit.
func TestQuotaFlushFrees(t *testing.T) {
	const part, node = 16 << 10, 16 << 10
	for _, c := range []struct {
		room          uint64
		first, second error
	}{
		{part, errno.EDQUOT, errno.EDQUOT},
		{part + node, nil, errno.EDQUOT},
		{2*part + node, nil, nil},
		{2*part + 2*node, nil, nil},
	} {
		for _, flags := range []uint64{0, format.InodeNoDataCow} {
			x := fstest.New(t)
			x.Must(x.FS.EnableQuota(x.T))
			f := x.Create("/f")
			x.Must(f.SetFlags(x.T, flags))
			// commits: nothing is reserved now
			x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, node+c.room, false, false))
			for i, want := range []error{c.first, c.second} {
				if _, err := f.WriteAt(x.T, make([]byte, part), int64(i)*4*part); !errors.Is(err, want) {
					t.Errorf("%d KiB, flags %#x, write %d: have %v want %v", c.room>>10, flags, i, err, want)
				}
			}
			x.Must(f.Close(x.T))
			fstest.WantWithin(x)
		}
	}
}

// zeroedIn reads the file after a failure that may have left zeros in [from, to) where m has other
// bytes.
func zeroedIn(x *fstest.Fixture, f *fs.File, m []byte, from, to int) []byte {
	x.Helper()
	have := make([]byte, f.Size(x.T))
	if n, err := f.ReadAt(x.T, have, 0); n != len(have) || n != len(m) {
		x.Fatalf("read of %d bytes: %d, %v, want %d", len(have), n, err, len(m))
	}
	for i := range have {
		if have[i] != m[i] && (have[i] != 0 || i < from || i >= to) {
			x.Fatalf("byte %d: have %#x want %#x", i, have[i], m[i])
		}
	}
	return have
}

// Random operations at a limit that is often in the way: a write has what it says, nothing else of
// the file changes, and a punch or truncate that fails may have zeroed edges. At each sync nothing
// is reserved, the subvolume is within its limit, and the checker counts the same.
func TestQuotaModel(t *testing.T) {
	fstest.OneTask(t)
	for seed := range uint64(4) {
		x := limited(t, 1<<20)
		rng := rand.New(rand.NewPCG(seed, 77))
		model := fstest.Tree{}
		stopped, wrote := 0, 0
		may := func(err error) bool {
			t.Helper()
			if errors.Is(err, errno.EDQUOT) {
				stopped++
			} else if err != nil {
				t.Fatal(err)
			}
			return err == nil
		}
		for i := range 600 {
			name := []string{"a", "b", "c", "nocow", "nocow2"}[rng.IntN(5)]
			f, err := x.FS.OpenFile(x.T, "/"+name, fs.O_RDWR|fs.O_CREAT, 0o644)
			if !may(err) {
				continue
			}
			if fstest.IsNocow(name) && model[name] == nil && !may(f.SetFlags(x.T, format.InodeNoDataCow)) {
				x.Must(f.Close(x.T))
				x.Must(x.FS.Unlink(x.T, "/"+name))
				continue
			}
			m := model[name]
			grown := func(n int) {
				if n > len(m) {
					m = append(m, make([]byte, n-len(m))...)
				}
			}
			off, n := rng.IntN(512<<10), 1+rng.IntN(128<<10)
			switch k := rng.IntN(12); {
			case k < 6:
				b := make([]byte, n)
				fstest.Random(rng, b)
				got, err := f.WriteAt(x.T, b, int64(off))
				may(err)
				if got > 0 {
					grown(off + got)
					copy(m[off:], b[:got])
					wrote += got
				}
			case k == 6:
				if may(f.Truncate(x.T, int64(off))) {
					m = m[:min(off, len(m))]
					grown(off)
				} else {
					m = zeroedIn(x, f, m, off, off+4096)
				}
			case k == 7:
				if may(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))) {
					wrote++
				}
			case k == 8:
				if !may(f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))) {
					m = zeroedIn(x, f, m, off, off+n)
				} else if off < len(m) {
					clear(m[off:min(len(m), off+n)])
				}
			case k == 9:
				x.Must(f.Fsync(x.T))
			case k == 10 && rng.IntN(2) == 0:
				x.Must(x.FS.Unlink(x.T, "/"+name))
				m = nil
			}
			if model[name] = m; m == nil {
				delete(model, name)
			}
			if f.Size(x.T) == 0 && m == nil {
				model[name] = []byte{}
			}
			x.Must(f.Close(x.T))
			if _, err := x.FS.Stat(x.T, "/"+name); errors.Is(err, errno.ENOENT) {
				delete(model, name)
			}
			if i%60 == 59 {
				fstest.WantWithin(x)
				have, err := fstest.ReadTree(x.T, x.FS)
				x.Must(err)
				if d := fstest.Diff(have, model, false); d != "" {
					t.Fatalf("seed %d, step %d: %s", seed, i, d)
				}
			}
		}
		if stopped < 10 || wrote < 4<<20 {
			t.Errorf("seed %d: %d operations were stopped by the limit, %d bytes written", seed, stopped, wrote)
		}
		x.Close()
	}
}

// A crash at any flush leaves the counts of the commit that it leaves, or the mark that they are
// out of date.
func TestQuotaCrash(t *testing.T) {
	base := blockdev.NewMemory(128 << 20)
	var log *dm.LogWrites
	x := fstest.New(t, fstest.Size(base.Size()), fstest.Wrap(func(dev blockdev.Device) blockdev.Device {
		log = dm.NewLogWrites(dev, dev.(*blockdev.Memory).Snapshot())
		return log
	}))
	x.Must(x.FS.EnableQuota(x.T))
	w := &fstest.Workload{Tb: t, T: x.T, F: x.FS, Model: fstest.Tree{}, Rng: rand.New(rand.NewPCG(17, 8))}
	for range 6 {
		for range 20 {
			w.Step()
		}
		x.Must(x.FS.Sync(x.T))
	}
	x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 1<<30, false, false))
	x.Must(x.FS.DisableQuota(x.T))
	images, with := 0, 0
	err := log.Images(x.T, dm.ImageOptions{SectorBytes: format.SectorSize, Subsets: 2, Seed: 9}, func(t *sched.Task, m dm.Image) error {
		images++
		r, err := check.Check(t, m.Dev, check.Options{})
		if err != nil {
			return fmt.Errorf("%s: check: %w", m.Name, err)
		}
		if !r.Clean {
			return fmt.Errorf("%s: %d findings, first %v", m.Name, len(r.Findings), r.Findings[0])
		}
		f, err := fs.Open(t, []blockdev.Device{m.Dev}, fs.Options{ReadOnly: true})
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		q, err := f.Quotas(t)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if q.On {
			with++
		}
		if noted := slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "quota") }); noted != (q.Inconsistent || q.Rescan) {
			return fmt.Errorf("%s: quotas %+v, notes %q", m.Name, q, r.Notes)
		}
		return f.Close(t)
	})
	if err != nil {
		t.Fatal(err)
	}
	if with < 20 || with == images {
		t.Errorf("quotas are on in %d of %d images", with, images)
	}
	t.Logf("quotas are on in %d of %d images", with, images)
}

// Writers that come to the limit at once stop there, and what one deletes another gets.
func TestQuotaWriters(t *testing.T) {
	const limit = 4 << 20
	x := limited(t, limit)
	var files []*fs.File
	for i := range 4 {
		files = append(files, x.Create(fmt.Sprintf("/f%d", i))) // before the limit is in reach
	}
	var tasks []*sched.Task
	for i, f := range files {
		tasks = append(tasks, x.T.Go(fmt.Sprint("writer", i), func(t *sched.Task) {
			full, off := 0, int64(0)
			for full < 3 {
				n, err := f.WriteAt(t, make([]byte, 32<<10), off)
				off += int64(n)
				switch {
				case errors.Is(err, errno.EDQUOT):
					full++
					if err := f.Truncate(t, off/2); err != nil && !errors.Is(err, errno.EDQUOT) {
						x.Error(err)
					}
					off = f.Size(t)
				case err != nil:
					x.Error(err)
					return
				}
			}
			if err := f.Close(t); err != nil {
				x.Error(err)
			}
		}))
	}
	for _, task := range tasks {
		x.T.Join(task)
	}
	fstest.WantWithin(x)
}

// What a snapshot shares is exclusive to neither; writes, deletes and reflinks on both sides, and
// the end of one, move bytes between the two counts. The trees are higher than a leaf, so most of
// them is shared by way of a block above.
func TestQuotaSnapshots(t *testing.T) {
	x := fstest.New(t)
	tk, rng := x.T, rand.New(rand.NewPCG(5, 6))
	x.Must(x.FS.EnableQuota(tk))
	x.Must(x.FS.Subvolume(tk, "/sub", 0o755))
	name := func(dir string) string { return fmt.Sprintf("%s/file%d", dir, rng.IntN(200)) }
	write := func(path string) {
		f, err := x.FS.OpenFile(tk, path, fs.O_RDWR|fs.O_CREAT, 0o644)
		x.Must(err)
		b := make([]byte, 1+rng.IntN(20000))
		fstest.Random(rng, b)
		x.WriteAt(f, b, int64(rng.IntN(3)*4096))
		x.Must(f.Close(tk))
	}
	for i := range 200 {
		write(fmt.Sprintf("/sub/file%d", i))
	}
	dirs := []string{"/sub"}
	for i := range 4 {
		snap := fmt.Sprintf("/snap%d", i)
		x.Must(x.FS.Snapshot(tk, dirs[rng.IntN(len(dirs))], snap, false))
		dirs = append(dirs, snap)
		fstest.JudgedQuota(x)
		for range 3 {
			for range 8 {
				dir := dirs[rng.IntN(len(dirs))]
				switch rng.IntN(4) {
				case 0:
					if err := x.FS.Unlink(tk, name(dir)); err != nil && !errors.Is(err, errno.ENOENT) {
						t.Fatal(err)
					}
				case 1:
					src, err := x.FS.OpenFile(tk, name(dirs[0]), fs.O_RDONLY, 0)
					if errors.Is(err, errno.ENOENT) {
						continue
					}
					x.Must(err)
					dst, err := x.FS.OpenFile(tk, name(dir), fs.O_RDWR|fs.O_CREAT, 0o644)
					x.Must(err)
					if n := src.Size(tk) &^ 4095; n > 0 && dst.Ino() != src.Ino() {
						x.Must(dst.Reflink(tk, src, 0, n, 0))
					}
					x.Must(errors.Join(src.Close(tk), dst.Close(tk)))
				default:
					write(name(dir))
				}
			}
			x.Must(x.FS.Sync(tk))
			fstest.JudgedQuota(x)
		}
	}
	if rfer, excl := fstest.Counts(x, 256); excl == 0 || excl > rfer/2 {
		t.Errorf("the subvolume with snapshots: rfer %d excl %d", rfer, excl)
	}
	x.Must(x.FS.DeleteSubvolume(tk, "/snap1"))
	x.Must(x.FS.Sync(tk))
	x.Reopen()
	fstest.JudgedQuota(x)
}

// A NOWAIT write at the limit flushes for data space, as in Linux, and sleeps. Where that gap is
// closed it does not, and gets EAGAIN if a flush might have given it data space; for metadata
// EDQUOT as in Linux, EAGAIN where that gap is closed as well. A blocking write flushes and goes
// on.
func TestQuotaNowait(t *testing.T) {
	for _, c := range []struct {
		policy     string
		want, more error // of an overwrite, and of a write that needs data space
	}{
		{"nowait-6.1", nil, errno.EDQUOT},
		{"nowait-6.1+NOWAIT_TRY_QUOTA", errno.EDQUOT, kiocb.AgainQuota},
		{"nowait-6.1+NOWAIT_TRY_QUOTA+NOWAIT_EDQUOT", errno.EAGAIN, kiocb.AgainQuota},
		{"nowait-strict", errno.EAGAIN, kiocb.AgainQuota},
	} {
		x := limited(t, 1<<20, fstest.Policy(c.policy))
		f := x.Create("/nocow")
		x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
		for off := int64(0); off < 1008<<10; off += 16 << 10 { // what is left is one node
			x.WriteAt(f, make([]byte, 16<<10), off)
			x.Must(f.Fsync(x.T))
		}
		x.Must(x.FS.Sync(x.T))
		part := make([]byte, 64<<10)
		write := func(flags kiocb.Flags, off uint64) error {
			_, err := f.WriteIter(x.T, kiocb.Request{Pos: off, Flags: flags}, iopath.Source{Buf: part})
			return err
		}
		x.Must(write(kiocb.Nowait, 0)) // takes the node
		if err := write(kiocb.Nowait, 512<<10); !errors.Is(err, c.want) {
			t.Errorf("%s: NOWAIT at the limit: have %v want %v", c.policy, err, c.want)
		}
		// Whether a flush finds something to wait for is the machine's to say; without one nothing
		// sleeps.
		if slept := fmt.Sprint(x.T.NowaitSleeps()); c.want != nil && strings.Contains(slept, "{reserve ") {
			t.Errorf("%s: slept %s", c.policy, slept)
		}
		if err := write(kiocb.Nowait, 1008<<10); !errors.Is(err, c.more) {
			t.Errorf("%s: NOWAIT append at the limit: have %v want %v", c.policy, err, c.more)
		}
		x.Must(write(0, 512<<10))
		x.Must(f.Close(x.T))
		fstest.WantWithin(x)
	}
}
