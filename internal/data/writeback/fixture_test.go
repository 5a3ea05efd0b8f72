package writeback_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"btrlab/internal/blockdev"
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

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

const pageSize = pagecache.PageSize

// world is a file system without names: everything under iopath, wired as package fs does.
type world struct {
	tb    testing.TB
	t     *sched.Task
	dev   blockdev.Device
	m     *transaction.Manager
	items *fstree.Store
	fs    *inode.FS
	rd    *fileread.Reader
	fin   *finish.Finisher
	e     *writeback.Engine
	ino   uint64
	open  []*inode.Inode
}

type flushers struct{ w *world }

func (f flushers) FlushDelalloc(t *sched.Task, n uint64, wait bool) { f.w.e.FlushDelalloc(t, n, wait) }
func (f flushers) CommitTransaction(t *sched.Task) error            { return f.w.m.Commit(t) }
func (f flushers) AllocChunk(t *sched.Task, typ uint64) (bool, error) {
	return f.w.m.Extents.AllocChunk(t, typ)
}
func (f flushers) DirtyDelalloc() uint64   { return f.w.fs.DelallocBytes() }
func (f flushers) FreeDeviceBytes() uint64 { return f.w.m.Volumes.FreeDeviceBytes() }

func newWorld(tb testing.TB, size int64) *world {
	t := sched.NewTask("test")
	dev := blockdev.NewMemory(size)
	if err := mkfs.Make(t, dev, mkfs.Options{Now: time.Unix(1e9, 0)}); err != nil {
		tb.Fatal(err)
	}
	return mount(tb, t, dev, dev)
}

func mount(tb testing.TB, t *sched.Task, dev, under blockdev.Device) *world {
	tb.Helper()
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(t, dev, b, format.SuperOffset); err != nil {
		tb.Fatal(err)
	}
	sb := new(format.Super)
	sb.Decode(b)
	v, err := volumes.Open(dev, sb)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := transaction.Open(t, transaction.Config{Volumes: v, Super: sb})
	if err != nil {
		tb.Fatal(err)
	}
	w := &world{tb: tb, t: t, dev: under, m: m, ino: 257}
	w.items = fstree.New(m.Forest, m.Extents, m.Root(format.CSUM_TREE_OBJECTID), format.SectorSize)
	m.Extents.SetCsums(w.items)
	w.fs = inode.NewFS(m.Space, pagecache.NewCache(0, 16<<20, 32<<20))
	m.OnCommit(func(t *sched.Task, h *transaction.Handle) error { return w.fs.WriteDirty(t, h.Trans(), w.items) })
	pl := place.New(w.items, m.Extents)
	w.rd = fileread.New(w.fs, pl, w.items, v)
	w.fin = finish.New(t, finish.Config{FS: w.fs, Items: w.items, Extents: m.Extents, Workers: 2,
		Join: func(t *sched.Task, bytes uint64) (finish.Handle, error) {
			h, err := m.JoinReserved(t, bytes)
			if err != nil {
				return nil, err
			}
			return h, nil
		}})
	w.e = writeback.New(t, writeback.Config{FS: w.fs, Place: pl, Finish: w.fin, Store: v})
	m.Space.SetFlushers(flushers{w})
	return w
}

// create makes a file with the inode flags.
func (w *world) create(flags uint64) *inode.Inode {
	w.tb.Helper()
	h, err := w.m.Start(w.t, 5)
	if err != nil {
		w.tb.Fatal(err)
	}
	root := w.m.Root(format.FS_TREE_OBJECTID)
	ino := w.ino
	w.ino++
	now := format.Timespec{Sec: 1e9}
	it := format.InodeItem{Generation: h.Transid(), Transid: h.Transid(), Nlink: 1, Mode: format.S_IFREG | 0o644, Flags: flags, Atime: now, Ctime: now, Mtime: now, Otime: now}
	if err := w.items.InsertInode(w.t, h.Trans(), root, ino, &it); err != nil {
		w.tb.Fatal(err)
	}
	name := fmt.Sprintf("f%d", ino)
	if err := w.items.AddLink(w.t, h.Trans(), root, 256, ino, name, format.FtRegFile, ino); err != nil {
		w.tb.Fatal(err)
	}
	dir, err := w.items.ReadInode(w.t, root, 256)
	if err != nil {
		w.tb.Fatal(err)
	}
	dir.Size += uint64(2 * len(name))
	if err := w.items.UpdateInode(w.t, h.Trans(), root, 256, &dir); err != nil {
		w.tb.Fatal(err)
	}
	if err := h.End(w.t); err != nil {
		w.tb.Fatal(err)
	}
	ip := w.fs.New(root, ino, &it)
	w.open = append(w.open, ip)
	return ip
}

// write is a buffered write in its plainest order: i_rwsem over everything, one page at a time.
func (w *world) write(t *sched.Task, ip *inode.Inode, data []byte, off uint64) error {
	ip.Lock(t)
	defer ip.Unlock(t)
	for len(data) > 0 {
		n := min(uint64(len(data)), pageSize-off%pageSize)
		if err := w.writePage(t, ip, data[:n], off); err != nil {
			return err
		}
		data = data[n:]
		off += n
	}
	return nil
}

func (w *world) writePage(t *sched.Task, ip *inode.Inode, data []byte, off uint64) error {
	var r delalloc.Reservation
	end := off + uint64(len(data))
	if err := r.ReserveData(t, ip, off, end, spaceinfo.FlushData); err != nil {
		if n, nerr := w.rd.Place.CanNocow(t, ip, off, end, false); nerr != nil || n < end {
			return err
		}
		r.Nocow(off, end)
	}
	if err := r.ReserveMetadata(t, w.rd.Place, ip, spaceinfo.FlushAll); err != nil {
		r.Release(t, ip)
		return err
	}
	for {
		p := ip.Pages.Grab(t, off/pageSize)
		if !p.Uptodate() && len(data) < pageSize {
			busy, err := w.rd.FillPage(t, ip, p)
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
		p.UnlockPut(t)
		w.fs.Cache.BDI.BalanceDirty(t)
		return nil
	}
}

func (w *world) read(t *sched.Task, ip *inode.Inode, off, n uint64) []byte {
	w.tb.Helper()
	var out []byte
	var ra fileread.State
	for n > 0 {
		p, err := w.rd.ReadPage(t, ip, off/pageSize, int((n+pageSize-1)/pageSize), &ra)
		if err != nil {
			w.tb.Fatal(err)
		}
		k := min(n, pageSize-off%pageSize)
		out = append(out, p.Data()[off%pageSize:off%pageSize+k]...)
		p.Put(t)
		off += k
		n -= k
	}
	return out
}

// expect reads the file from the page cache and, after its clean pages are dropped, from the disk.
func (w *world) expect(ip *inode.Inode, want []byte) {
	w.tb.Helper()
	for _, where := range []string{"cache", "disk"} {
		if got := w.read(w.t, ip, 0, uint64(len(want))); !bytes.Equal(got, want) {
			for i := range got {
				if got[i] != want[i] {
					w.tb.Fatalf("ino=%d from %s: byte %d is %d, want %d", ip.Ino, where, i, got[i], want[i])
				}
			}
		}
		w.fs.Cache.DropClean(w.t)
		ip.Extents.DropAll(w.t)
	}
}

func (w *world) sync() {
	w.tb.Helper()
	if err := w.e.SyncAll(w.t); err != nil {
		w.tb.Fatal(err)
	}
	if err := w.m.Commit(w.t); err != nil {
		w.tb.Fatal(err)
	}
}

// quiescent checks that nothing is left reserved, dirty or in flight.
func (w *world) quiescent() {
	w.tb.Helper()
	for _, ip := range w.open {
		ip.CheckQuiescent(w.t)
		if err := ip.IOTree.CheckInvariants(w.t); err != nil {
			w.tb.Fatal(err)
		}
	}
	w.fs.CheckQuiescent(w.t)
	if u := w.m.Space.Data().Usage(w.t); u.MayUse != 0 || u.Reserved != 0 {
		w.tb.Fatalf("at rest the data account has may_use=%d reserved=%d", u.MayUse, u.Reserved)
	}
	if u, g := w.m.Space.Metadata().Usage(w.t), w.m.Space.Global.Reserved(w.t); u.MayUse != g {
		w.tb.Fatalf("at rest the metadata account has may_use=%d, the global reserve %d", u.MayUse, g)
	}
}

// close syncs and lets the checker judge the image.
func (w *world) close() {
	w.tb.Helper()
	w.stop()
	checkImage(w.tb, w.t, w.dev)
}

func (w *world) stop() {
	w.tb.Helper()
	w.sync()
	w.quiescent()
	w.closeTasks()
	lockdep.AssertNone(w.t)
}

func (w *world) closeTasks() {
	w.e.Close(w.t)
	w.fin.Close(w.t)
}

func checkImage(tb testing.TB, t *sched.Task, dev blockdev.Device) {
	tb.Helper()
	r, err := check.Check(t, dev, check.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range r.Findings {
		tb.Error(f)
	}
}

func pattern(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// report prints the share of task time that was waited for each class.
func report(b *testing.B, waits sched.Waits, tasks int) {
	total := float64(b.Elapsed().Nanoseconds()) * float64(tasks)
	for _, c := range lockdep.Classes() {
		if w := waits.Of(c.ID); w.Count > 0 {
			b.Logf("%-16s %9d waits %6.2f %% of task time", c.Name, w.Count, 100*float64(w.Nanos)/total)
		}
	}
}
