// Package datatest is a file system without names for the tests of the rooms of data: everything
// under iopath, wired as package fs does, with a buffered write in its plainest order. A World
// checks the image when it closes.
package datatest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/data/delalloc"
	"btrlab/internal/data/fileread"
	"btrlab/internal/data/finish"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/place"
	"btrlab/internal/data/writeback"
	"btrlab/internal/format"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// Nocow are the flags of a file that is overwritten in place.
const Nocow = format.InodeNoDataCow | format.InodeNoDataSum

const pageSize = pagecache.PageSize

// World is a file system without names: everything under iopath, wired as package fs does.
type World struct {
	TB       testing.TB
	T        *sched.Task
	Dev      blockdev.Device
	Manager  *transaction.Manager
	Items    *fstree.Store
	FS       *inode.FS
	Reader   *fileread.Reader
	Finisher *finish.Finisher
	Engine   *writeback.Engine
	ino      format.Ino
	open     []*inode.Inode
}

type flushers struct{ w *World }

func (f flushers) FlushDelalloc(t *sched.Task, n uint64, wait bool) {
	f.w.Engine.FlushDelalloc(t, n, wait)
}
func (f flushers) CommitTransaction(t *sched.Task) error { return f.w.Manager.Commit(t) }
func (f flushers) AllocChunk(t *sched.Task, typ uint64) (bool, error) {
	return f.w.Manager.Extents.AllocChunk(t, typ)
}
func (f flushers) DirtyDelalloc() uint64   { return f.w.FS.DelallocBytes() }
func (f flushers) Preempt(t *sched.Task)   { f.w.Engine.Kick(t) }
func (f flushers) FreeDeviceBytes() uint64 { return f.w.Manager.Volumes.FreeDeviceBytes() }

// New makes a World on a new image in memory.
func New(tb testing.TB, size int64) *World {
	t := sched.NewTask("test")
	dev := blockdev.NewMemory(size)
	if err := mkfs.Make(t, dev, mkfs.Options{Now: time.Unix(1e9, 0)}); err != nil {
		tb.Fatal(err)
	}
	return Mount(tb, t, dev, dev)
}

// Mount makes a World of the image on dev; under is the device that the checker reads at the end.
func Mount(tb testing.TB, t *sched.Task, dev, under blockdev.Device) *World {
	tb.Helper()
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(t, dev, b, format.SuperOffset); err != nil {
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
	w := &World{TB: tb, T: t, Dev: under, Manager: m, ino: 257}
	w.Items = fstree.New(m.Forest, m.Extents, m.Root(format.CSUM_TREE_OBJECTID), format.SectorSize)
	m.Extents.SetCsums(w.Items)
	w.FS = inode.NewFS(m.Space, pagecache.NewCache(0, 16<<20, 32<<20))
	m.OnCommit(func(t *sched.Task, h *transaction.Handle) error { return w.FS.WriteDirty(t, h.Trans(), w.Items) })
	pl := place.New(w.Items, m.Extents)
	w.Reader = fileread.New(w.FS, pl, w.Items, v)
	w.Finisher = finish.New(t, finish.Config{FS: w.FS, Items: w.Items, Extents: m.Extents, Workers: 2,
		Join: func(t *sched.Task, bytes uint64) (*transaction.Handle, error) {
			h, err := m.JoinReserved(t, bytes)
			if err != nil {
				return nil, err
			}
			return h, nil
		}})
	w.Engine = writeback.New(t, writeback.Config{FS: w.FS, Place: pl, Finish: w.Finisher, Store: v, Tight: m.Space.Metadata().Tight})
	m.Space.SetFlushers(flushers{w})
	return w
}

// Create makes a file with the inode flags.
func (w *World) Create(flags uint64) *inode.Inode {
	w.TB.Helper()
	h, err := w.Manager.Start(w.T, 5)
	if err != nil {
		w.TB.Fatal(err)
	}
	root := w.Manager.Root(format.FS_TREE_OBJECTID)
	ino := w.ino
	w.ino++
	now := format.Timespec{Sec: 1e9}
	it := format.InodeItem{Generation: h.Transid(), Transid: h.Transid(), Nlink: 1, Mode: format.S_IFREG | 0o644, Flags: flags, Atime: now, Ctime: now, Mtime: now, Otime: now}
	if err := w.Items.InsertInode(w.T, h.Trans(), root, ino, &it); err != nil {
		w.TB.Fatal(err)
	}
	name := fmt.Sprintf("f%d", ino)
	if err := w.Items.AddLink(w.T, h.Trans(), root, 256, ino, name, format.FtRegFile, uint64(ino)); err != nil {
		w.TB.Fatal(err)
	}
	dir, err := w.Items.ReadInode(w.T, root, 256)
	if err != nil {
		w.TB.Fatal(err)
	}
	dir.Size += uint64(2 * len(name))
	if err := w.Items.UpdateInode(w.T, h.Trans(), root, 256, &dir); err != nil {
		w.TB.Fatal(err)
	}
	if err := h.End(w.T); err != nil {
		w.TB.Fatal(err)
	}
	ip := w.FS.New(root, ino, &it)
	w.open = append(w.open, ip)
	return ip
}

// Write is a buffered write in its plainest order: i_rwsem over everything, one page at a time.
func (w *World) Write(t *sched.Task, ip *inode.Inode, data []byte, off uint64) error {
	ip.Lock(t)
	defer ip.Unlock(t)
	for len(data) > 0 {
		n := min(uint64(len(data)), pageSize-off%pageSize)
		if err := w.WritePage(t, ip, data[:n], off); err != nil {
			return err
		}
		data = data[n:]
		off += n
	}
	return nil
}

// WritePage writes data, which lies in one page, without i_rwsem.
func (w *World) WritePage(t *sched.Task, ip *inode.Inode, data []byte, off uint64) error {
	var r delalloc.Reservation
	end := off + uint64(len(data))
	if err := r.ReserveData(t, ip, off, end, spaceinfo.FlushData); err != nil {
		if !r.NoSnapshot(t, ip) {
			return err
		}
		if n, nerr := w.Reader.Place.CanNocow(t, ip, off, end, false); nerr != nil || n < end {
			r.Release(t, ip)
			return err
		}
		r.Nocow(off, end)
	}
	if err := r.ReserveMetadata(t, ip, spaceinfo.FlushAll); err != nil {
		r.Release(t, ip)
		return err
	}
	for {
		p := ip.Pages.Grab(t, off/pageSize)
		if !p.Uptodate() && len(data) < pageSize {
			busy, err := w.Reader.FillPage(t, ip, p)
			if busy != nil || err != nil {
				p.UnlockPut(t)
			}
			if err != nil {
				r.Release(t, ip)
				return err
			}
			if busy != nil {
				busy.WaitPut(t)
				continue
			}
		}
		p.WaitWriteback(t)
		ip.IOTree.Lock(t, r.Start, r.End)
		if oe := ip.Ordered.First(t, r.Start, r.End); oe != nil {
			ip.IOTree.Unlock(t, r.Start, r.End)
			p.UnlockPut(t)
			oe.Wait(t)
			oe.Put(t)
			continue
		}
		copy(p.Data()[off%pageSize:], data)
		r.SetDelalloc(t, ip, true)
		p.SetUptodate()
		ip.Pages.SetDirty(t, p)
		if end > ip.Size(t) {
			ip.SetSize(t, end)
		}
		r.Finish(t, ip, true)
		p.UnlockPut(t)
		w.FS.Cache.BDI.BalanceDirty(t)
		return nil
	}
}

// Read reads [off, off+n) through the page cache.
func (w *World) Read(t *sched.Task, ip *inode.Inode, off, n uint64) []byte {
	w.TB.Helper()
	var out []byte
	var ra fileread.State
	for n > 0 {
		p, err := w.Reader.ReadPage(t, ip, off/pageSize, int((n+pageSize-1)/pageSize), &ra)
		if err != nil {
			w.TB.Fatal(err)
		}
		k := min(n, pageSize-off%pageSize)
		out = append(out, p.Data()[off%pageSize:off%pageSize+k]...)
		p.Put(t)
		off += k
		n -= k
	}
	return out
}

// Expect reads the file from the page cache and, after its clean pages are dropped, from the disk.
func (w *World) Expect(ip *inode.Inode, want []byte) {
	w.TB.Helper()
	for _, where := range []string{"cache", "disk"} {
		if got := w.Read(w.T, ip, 0, uint64(len(want))); !bytes.Equal(got, want) {
			for i := range got {
				if got[i] != want[i] {
					w.TB.Fatalf("ino=%d from %s: byte %d is %d, want %d", ip.Ino, where, i, got[i], want[i])
				}
			}
		}
		w.FS.Cache.DropClean(w.T)
		ip.Extents.DropAll(w.T)
	}
}

// Sync writes everything back and commits.
func (w *World) Sync() {
	w.TB.Helper()
	if err := w.Engine.SyncAll(w.T); err != nil {
		w.TB.Fatal(err)
	}
	if err := w.Manager.Commit(w.T); err != nil {
		w.TB.Fatal(err)
	}
}

// Quiescent checks that nothing is left reserved, dirty or in flight.
func (w *World) Quiescent() {
	w.TB.Helper()
	for _, ip := range w.open {
		ip.CheckQuiescent(w.T)
		if err := ip.IOTree.CheckInvariants(w.T); err != nil {
			w.TB.Fatal(err)
		}
	}
	w.FS.CheckQuiescent(w.T)
	if u := w.Manager.Space.Data().Usage(w.T); u.MayUse != 0 || u.Reserved != 0 {
		w.TB.Fatalf("at rest the data account has may_use=%d reserved=%d", u.MayUse, u.Reserved)
	}
	if u, g := w.Manager.Space.Metadata().Usage(w.T), w.Manager.Space.Global.Reserved(w.T); u.MayUse != g {
		w.TB.Fatalf("at rest the metadata account has may_use=%d, the global reserve %d", u.MayUse, g)
	}
}

// Close syncs and lets the checker judge the image.
func (w *World) Close() {
	w.TB.Helper()
	w.Stop()
	CheckImage(w.TB, w.T, w.Dev)
}

// Stop is Close without the checker.
func (w *World) Stop() {
	w.TB.Helper()
	w.Sync()
	w.Quiescent()
	w.CloseTasks()
	lockdep.AssertNone(w.T)
}

// CloseTasks ends the tasks of the World.
func (w *World) CloseTasks() {
	w.Engine.Close(w.T)
	w.Finisher.Close(w.T)
}

// CheckImage lets the checker judge the image.
func CheckImage(tb testing.TB, t *sched.Task, dev blockdev.Device) {
	tb.Helper()
	r, err := check.Check(t, dev, check.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range r.Findings {
		tb.Error(f)
	}
}

// Pattern is n bytes that depend on the seed.
func Pattern(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Must ends the test at an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Prealloc is fallocate of [0, n) in an empty file.
func (w *World) Prealloc(ip *inode.Inode, n uint64) {
	w.TB.Helper()
	t := w.T
	rsv := w.Manager.Space.CalcInsert(3)
	Must(w.TB, w.Manager.Space.Data().Reserve(t, n, spaceinfo.FlushData))
	Must(w.TB, w.Manager.Space.Metadata().Reserve(t, rsv, spaceinfo.FlushAll))
	ip.Lock(t)
	ip.IOTree.Lock(t, 0, n)
	start, got, err := w.Manager.Extents.ReserveExtent(t, n, n, 0)
	if err != nil || got != n {
		w.TB.Fatal(got, err)
	}
	h, err := w.Manager.JoinReserved(t, rsv)
	Must(w.TB, err)
	fe := format.FileExtent{Generation: h.Transid(), RAMBytes: n, Type: format.FileExtentTypePrealloc, DiskBytenr: uint64(start), DiskNumBytes: n, NumBytes: n}
	Must(w.TB, w.Items.InsertFileExtent(t, h.Trans(), ip.Root, ip.Ino, 0, &fe))
	ref := format.DataRef{Root: ip.Root.ID, Ino: ip.Ino}
	Must(w.TB, w.Manager.Extents.AllocReservedFileExtent(t, h.Trans(), ref, start, n))
	ip.Extents.Drop(t, 0, n)
	ip.AddFlags(format.InodePrealloc)
	ip.AddBytes(t, int64(n))
	ip.SetSize(t, n)
	ip.SetDiskSize(t, n)
	ip.MarkDirty(t)
	Must(w.TB, h.End(t))
	ip.IOTree.Unlock(t, 0, n)
	ip.Unlock(t)
}

// Physical is where the file's byte off lies on the device.
func (w *World) Physical(ino format.Ino, off uint64) int64 {
	w.TB.Helper()
	start, fe, ok, err := w.Items.LookupFileExtent(w.T, w.Manager.Root(format.FS_TREE_OBJECTID), ino, off)
	if err != nil || !ok || fe.DiskBytenr == 0 {
		w.TB.Fatalf("no extent of ino=%d at %d: %v", ino, off, err)
	}
	return w.Logical(fe.DiskBytenr + fe.Offset + off - start)
}

// Logical is where a logical address lies on the device.
func (w *World) Logical(bytenr uint64) int64 {
	c, ok := w.Manager.Volumes.Lookup(bytenr)
	if !ok {
		w.TB.Fatalf("logical %d has no chunk", bytenr)
	}
	return int64(bytenr - c.Logical + c.Chunk.Stripes[0].Offset)
}

// Flaky is New on a device that can be told to fail.
func Flaky(tb testing.TB, size int64) (*World, *dm.Flakey) {
	t := sched.NewTask("test")
	mem := blockdev.NewMemory(size)
	Must(tb, mkfs.Make(t, mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	f := dm.NewFlakey(mem)
	return Mount(tb, t, f, mem), f
}
