package delalloc

import (
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

const (
	bs     = 4096
	blocks = 256
)

// newInode gives an inode of a file system with so many bytes of data and metadata space and nobody
// to win more.
func newInode(t *sched.Task, data, metadata uint64, flags uint64) *inode.Inode {
	s := spaceinfo.New(16384, 1)
	s.Data().AddTotal(t, data, 0, 0)
	s.Metadata().AddTotal(t, metadata, 0, 0)
	fs := inode.NewFS(s, pagecache.NewCache(0, 1<<30, 1<<31))
	return fs.New(ctree.BareRoot(format.FS_TREE_OBJECTID), 257, &format.InodeItem{Flags: flags, Size: blocks * bs, Mode: format.S_IFREG})
}

func usage(t *sched.Task, ip *inode.Inode) (data, metadata uint64) {
	return ip.FS.Space.Data().Usage(t).MayUse, ip.FS.Space.Metadata().Usage(t).MayUse
}

// The counter of outstanding extents goes 1, 2, 1 for one small write, 2, 1, 0 on its way to the
// disk (labs/reference 5.2), and the promises follow.
func TestLifeOfOneWrite(tt *testing.T) {
	t := sched.NewTask("test")
	ip := newInode(t, 1<<20, 64<<20, 0)
	var r Reservation
	step := func(what string, extents int64, data uint64, meta bool) {
		tt.Helper()
		d, m := usage(t, ip)
		if ip.Outstanding() != extents || d != data || (m != 0) != meta {
			tt.Fatalf("%s: outstanding %d want %d, data %d want %d, metadata %d", what, ip.Outstanding(), extents, d, data, m)
		}
	}
	if err := r.ReserveData(t, ip, 100, 200, spaceinfo.NoFlush); err != nil {
		tt.Fatal(err)
	}
	if r.Start != 0 || r.End != bs {
		tt.Fatalf("not a whole block: %s", r.String())
	}
	step("data", 0, bs, false)
	if err := r.ReserveMetadata(t, ip, spaceinfo.NoFlush); err != nil {
		tt.Fatal(err)
	}
	step("metadata", 1, bs, true)
	ip.IOTree.Lock(t, 0, bs)
	r.SetDelalloc(t, ip, true)
	r.Finish(t, ip, true)
	step("delalloc", 1, bs, true)
	ip.IOTree.Lock(t, 0, bs)
	oe := ip.AddOrdered(t, ordered.Regular, 0, bs, 1<<30)
	step("ordered", 2, bs, true)
	ip.IOTree.Change(t, 0, bs, extentio.Locked|extentio.Delalloc, 0)
	ip.Settle(t)
	step("allocated", 1, bs, true)
	ip.FS.Space.Data().Release(t, bs) // ReserveExtent turned it into reserved bytes
	n := ip.LendOrdered(t, oe)
	if want := ip.FS.Space.CalcInsert(2) + ip.FS.Space.CalcUpdate(1); n != want {
		tt.Fatalf("the transaction gets %d, want %d", n, want)
	}
	ip.ReturnOrdered(t, oe, n)
	ip.Ordered.Remove(t, oe)
	oe.Put(t)
	step("finished", 0, 0, false)
	ip.CheckQuiescent(t)
}

// Random batches, some given back, some cut short, some in NOCOW mode, over and over the same
// blocks: the data promise is always the delalloc bytes that were not dirtied in NOCOW mode, and
// when all is dropped nothing is left.
func TestAccountingModel(tt *testing.T) {
	for _, flags := range []uint64{0, format.InodeNoDataCow | format.InodeNoDataSum} {
		for seed := range uint64(10) {
			t := sched.NewTask("test")
			ip := newInode(t, 400*bs, 100<<20, flags)
			rng := rand.New(rand.NewPCG(seed, flags))
			var dirty, noReserve [blocks]bool
			for range 800 {
				a := rng.IntN(blocks)
				b := a + 1 + rng.IntN(min(12, blocks-a))
				if rng.IntN(4) == 0 {
					ip.Invalidate(t, uint64(a)*bs, uint64(b)*bs)
					clear(dirty[a:b])
					clear(noReserve[a:b])
				} else {
					var r Reservation
					nocow := rng.IntN(5) == 0
					if nocow {
						r.NoSnapshot(t, ip)
						r.Nocow(uint64(a)*bs+1, uint64(b)*bs-1)
					} else if err := r.ReserveData(t, ip, uint64(a)*bs+1, uint64(b)*bs-1, spaceinfo.NoFlush); err != nil {
						if !errors.Is(err, errno.ENOSPC) {
							tt.Fatal(err)
						}
						continue
					}
					if err := r.ReserveMetadata(t, ip, spaceinfo.NoFlush); err != nil {
						r.Release(t, ip)
						continue
					}
					switch rng.IntN(4) {
					case 0:
						r.Release(t, ip)
						b = a
					case 1:
						b = a + rng.IntN(b-a)
						r.Shrink(t, ip, uint64(b)*bs)
					}
					if r.Active() {
						locked := rng.IntN(2) == 0
						if locked {
							ip.IOTree.Lock(t, r.Start, r.End)
						}
						r.SetDelalloc(t, ip, locked)
						r.Finish(t, ip, locked)
					}
					for i := a; i < b; i++ {
						dirty[i], noReserve[i] = true, nocow
					}
				}
				var want, bytes uint64
				for i := range dirty {
					if dirty[i] {
						bytes += bs
						if !noReserve[i] {
							want += bs
						}
					}
				}
				d, m := usage(t, ip)
				if d != want || ip.DelallocBytes() != bytes || ip.FS.DelallocBytes() != bytes {
					tt.Fatalf("seed %d: data may_use %d want %d, delalloc %d want %d", seed, d, want, ip.DelallocBytes(), bytes)
				}
				if (m != 0) != (bytes != 0) {
					tt.Fatalf("seed %d: metadata may_use %d with %d delalloc bytes", seed, m, bytes)
				}
				if err := ip.IOTree.CheckInvariants(t); err != nil {
					tt.Fatal(err)
				}
			}
			ip.Invalidate(t, 0, blocks*bs)
			ip.CheckQuiescent(t)
			if d, m := usage(t, ip); d != 0 || m != 0 {
				tt.Fatalf("seed %d: at rest may_use %d data, %d metadata", seed, d, m)
			}
		}
	}
}

// A reservation that fails leaves the accounts as they were.
func TestNoSpace(tt *testing.T) {
	t := sched.NewTask("test")
	ip := newInode(t, 10*bs, 1<<20, 0)
	var r Reservation
	if err := r.ReserveData(t, ip, 0, 11*bs, spaceinfo.NoFlush); !errors.Is(err, errno.ENOSPC) || r.Active() {
		tt.Fatalf("have %v, %s", err, r.String())
	}
	if err := r.ReserveData(t, ip, 0, 10*bs, spaceinfo.NoFlush); err != nil {
		tt.Fatal(err)
	}
	// One insert, its checksums and the inode fit into 1 MiB; a second extent does not.
	if err := r.ReserveMetadata(t, ip, spaceinfo.NoFlush); err != nil {
		tt.Fatal(err)
	}
	_, before := usage(t, ip)
	if err := ip.ReserveExtents(t, inode.MaxExtent*3, spaceinfo.NoFlush); !errors.Is(err, errno.ENOSPC) {
		tt.Fatalf("have %v", err)
	}
	if _, after := usage(t, ip); after != before || ip.Outstanding() != 1 {
		tt.Fatalf("metadata %d, was %d, outstanding %d", after, before, ip.Outstanding())
	}
	r.Release(t, ip)
	ip.CheckQuiescent(t)
	if d, m := usage(t, ip); d != 0 || m != 0 {
		tt.Fatalf("at rest may_use %d data, %d metadata", d, m)
	}
}

// Writers and an invalidator at once end with nothing.
func TestParallel(tt *testing.T) {
	t := sched.NewTask("test")
	ip := newInode(t, 300*bs, 40<<20, 0)
	var pages sync.Mutex // in the place of their locks
	var tasks []*sched.Task
	for w := range 4 {
		tasks = append(tasks, t.Go("writer", func(t *sched.Task) {
			rng := rand.New(rand.NewPCG(uint64(w), 5))
			for range 1500 {
				a := uint64(rng.IntN(blocks-8)) * bs
				b := a + uint64(1+rng.IntN(8))*bs
				if w == 0 {
					pages.Lock()
					ip.Invalidate(t, a, b)
					pages.Unlock()
					continue
				}
				var r Reservation
				if r.ReserveData(t, ip, a, b, spaceinfo.NoFlush) != nil {
					continue
				}
				if r.ReserveMetadata(t, ip, spaceinfo.NoFlush) != nil || rng.IntN(3) == 0 {
					r.Release(t, ip)
					continue
				}
				pages.Lock()
				ip.IOTree.Lock(t, a, b)
				r.SetDelalloc(t, ip, true)
				r.Finish(t, ip, true)
				pages.Unlock()
			}
		}))
	}
	for _, c := range tasks {
		t.Join(c)
	}
	ip.Invalidate(t, 0, blocks*bs)
	ip.CheckQuiescent(t)
	if d, m := usage(t, ip); d != 0 || m != 0 {
		tt.Fatalf("at rest may_use %d data, %d metadata", d, m)
	}
}

// A dirty range longer than an extent may be counts as several, however it is merged, split and
// written back.
func TestLongRanges(tt *testing.T) {
	t := sched.NewTask("test")
	const size = 5*inode.MaxExtent/2 + 3*bs
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		ip := newInode(t, 2*size, 1<<30, 0)
		for _, half := range rng.Perm(5) { // out of order: ranges merge with both neighbours
			var r Reservation
			from := uint64(half) * size / 5 &^ (bs - 1)
			to := uint64(half+1) * size / 5 &^ (bs - 1)
			if half == 4 {
				to = size
			}
			if err := r.ReserveData(t, ip, from, to, spaceinfo.NoFlush); err != nil {
				tt.Fatal(err)
			}
			if err := r.ReserveMetadata(t, ip, spaceinfo.NoFlush); err != nil {
				tt.Fatal(err)
			}
			r.SetDelalloc(t, ip, false)
			r.Finish(t, ip, false)
		}
		if n := ip.Outstanding(); n != 3 || ip.IOTree.Len(t) != 1 {
			tt.Fatalf("%d outstanding extents, %d states", n, ip.IOTree.Len(t))
		}
		for ip.DelallocBytes() > 0 {
			s, e, _ := ip.IOTree.FindDelalloc(t, rng.Uint64N(size), inode.MaxExtent)
			if s == e {
				s, e, _ = ip.IOTree.FindDelalloc(t, 0, inode.MaxExtent)
			}
			if rng.IntN(2) == 0 {
				e = s + max((e-s)/2&^(bs-1), bs)
			}
			if rng.IntN(3) == 0 {
				ip.Invalidate(t, s, e)
				continue
			}
			ip.IOTree.Lock(t, s, e)
			oe := ip.AddOrdered(t, ordered.Regular, s, e-s, 1<<30)
			ip.IOTree.Change(t, s, e, extentio.Locked|extentio.Delalloc, 0)
			ip.Settle(t)
			ip.FS.Space.Data().Release(t, e-s)
			ip.ReturnOrdered(t, oe, ip.LendOrdered(t, oe))
			ip.Ordered.Remove(t, oe)
			oe.Put(t)
		}
		ip.CheckQuiescent(t)
		if d, m := usage(t, ip); d != 0 || m != 0 {
			tt.Fatalf("seed %d: at rest may_use %d data, %d metadata", seed, d, m)
		}
	}
}
