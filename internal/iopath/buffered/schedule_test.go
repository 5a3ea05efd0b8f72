package buffered_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/fstest"
)

const k = 1024

// calls is POSIX: writes whole, the size with them, reads page by page as Linux has it.
var calls = oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesWith}

func all(n int64) []oracle.Range { return []oracle.Range{{Lo: 0, Hi: n}} }

// orderedClasses are where a writer meets a completion that is on its way.
var orderedClasses = []string{"i_rwsem", "page", "extent", "ordered_extent", "workqueue_idle"}

// Meetings that the catalogue of scenarios does not have, because they show nothing to a student,
// and a few that it has, each so short that every run of the tests has them. No schedule breaks
// what the policy promises.
func TestSchedules(t *testing.T) {
	var list []*scenario.Scenario
	for _, name := range []string{"truncate-race", "writer-punch", "writer-fallocate", "stable-pages", "fsync-writeback", "ordered-retry"} {
		s, err := scenario.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	list = append(list, &scenario.Scenario{
		// The last page is not in memory, and its data not yet in the trees, when the first ones
		// are locked already.
		Name:   "ordered-fill",
		File:   scenario.File{Size: 12 * k, Dirty: all(12 * k)},
		Tasks:  []scenario.Task{{Name: "writer", Ops: []scenario.Op{scenario.Write(0, 10*k)}}, {Name: "writeback", Ops: []scenario.Op{scenario.Flush(), scenario.Drop()}}},
		Switch: orderedClasses, Rule: calls, Deep: true,
	}, &scenario.Scenario{
		// A write across EOF while the last block's data gets into the trees.
		Name:   "ordered-eof",
		File:   scenario.File{Size: 6 * k, Dirty: all(6 * k)},
		Tasks:  []scenario.Task{{Name: "writer", Ops: []scenario.Op{scenario.Write(4*k, 8*k), scenario.Fsync()}}, {Name: "writeback", Ops: []scenario.Op{scenario.Flush()}}},
		Switch: orderedClasses, Rule: calls, Deep: true,
	}, &scenario.Scenario{
		// A hole that fallocate is about to fill is filled by a writer.
		Name: "punch-fallocate",
		File: scenario.File{Size: 8 * k, Cached: all(8 * k)},
		Tasks: []scenario.Task{{Name: "writer", Ops: []scenario.Op{scenario.Write(4*k, 4*k)}}, {Name: "writeback", Ops: []scenario.Op{scenario.Flush()}},
			{Name: "fallocate", Ops: []scenario.Op{scenario.Punch(4*k, 4*k), scenario.Fallocate(0, 8*k)}}},
		Switch: []string{"i_rwsem", "extent"}, Rule: calls, Deep: true, Policies: []string{"unlocked", "unlocked-drain"},
	}, &scenario.Scenario{
		// A punch beyond EOF looks for the next extent while the last one of the file gets into the
		// tree.
		Name:   "punch-beyond",
		File:   scenario.File{Size: 4 * k},
		Tasks:  []scenario.Task{{Name: "writer", Ops: []scenario.Op{scenario.Write(4*k, 4*k), scenario.Flush()}}, {Name: "punch", Ops: []scenario.Op{scenario.Punch(16*k, 4*k)}}},
		Switch: []string{"tree_fs", "workqueue_idle"}, Rule: calls, Deep: true,
	}, &scenario.Scenario{
		// A file is cut while the data beyond the cut gets into the trees, and grows again.
		Name:   "truncate-ordered",
		File:   scenario.File{Size: 12 * k, Dirty: all(12 * k)},
		Tasks:  []scenario.Task{{Name: "writeback", Ops: []scenario.Op{scenario.Flush()}}, {Name: "truncate", Ops: []scenario.Op{scenario.Truncate(4 * k), scenario.Truncate(12 * k)}}},
		Switch: orderedClasses, Rule: calls, Deep: true,
	})
	for _, s := range list {
		names, limit, preemptions := policy.Names(), 200, 2
		if s.Policies != nil {
			names, limit, preemptions = s.Policies, 8000, 3
		}
		if s.Name == "fsync-writeback" {
			names = append(names, "locked!FSYNC_LOG") // a commit waits otherwise than a log
		}
		for _, name := range names {
			t.Run(s.Name+"/"+name, func(t *testing.T) {
				p := policy.MustParse(name)
				r, err := scenario.Run(s, p, scenario.Options{Own: true, Config: func(c *explore.Config) {
					c.Schedules, c.NoShrink, c.Method, c.Preemptions = fstest.Schedules(limit), true, explore.Bound, preemptions
				}})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%v after %d schedules", r.Verdict, r.Schedules)
				if r.Verdict == explore.Violated || r.Schedules < 2 {
					t.Errorf("%v after %d schedules: %s: %s; schedule %q", r.Verdict, r.Schedules, r.Kind, r.Violation, r.Schedule)
				}
			})
		}
	}
}

// A file is cut in the middle of a page while somebody reads it and the page comes from the device:
// the reader gets as many bytes as the file had before or after, all of them the file's. The test
// sees a reader that takes i_size from before the page came. It does not see the short window of
// the kernel, between the last look at i_size and the copy, in which a truncate can put its zeros
// into a page that nobody has locked: no scheduling point lies in it.
func TestReadAndTruncate(t *testing.T) {
	const size, cut = 8 * k, 6 * k
	image := blockdev.NewMemory(128 << 20)
	if err := mkfs.Make(sched.NewTask("mkfs"), image, mkfs.Options{Now: fstest.Epoch}); err != nil {
		t.Fatal(err)
	}
	cfg := explore.Config{Preemptions: 2, Schedules: fstest.Schedules(3000), Switch: []sched.ClassID{inode.Class.ID, pagecache.PageClass.ID}}
	r := explore.Run(cfg, func(w *explore.World) {
		must := func(err error) {
			if err != nil {
				panic(err)
			}
		}
		x, err := fs.Open(w.Task(), []blockdev.Device{image.Snapshot()}, fstest.Explored("locked"))
		must(err)
		f, err := x.Create(w.Task(), "/f", 0o644)
		must(err)
		_, err = f.WriteAt(w.Task(), bytes.Repeat([]byte{0xff}, size), 0)
		must(err)
		must(x.Sync(w.Task()))
		x.DropCaches(w.Task())
		var bad error
		w.Go("reader", func(t *sched.Task) {
			w.Call(t)
			p := make([]byte, size-4096) // the last page, which is not in memory
			n, err := f.ReadAt(t, p, 4096)
			if err != nil && err != io.EOF {
				bad = err
			}
			own := n
			if sched.UnderRace && n > cut-4096 && bytes.Equal(p[cut-4096:n], make([]byte, n-(cut-4096))) {
				// Readers lock the page that they copy there, and a truncate gets between i_size
				// and the lock: the same window.
				own = cut - 4096
			}
			if n != size-4096 && n != cut-4096 || !bytes.Equal(p[:own], bytes.Repeat([]byte{0xff}, own)) {
				bad = fmt.Errorf("read %d bytes, and %d of them are the file's", n, bytes.Count(p[:n], []byte{0xff}))
			}
		})
		w.Go("truncate", func(t *sched.Task) { w.Call(t); must(f.Truncate(t, cut)) })
		w.Check(func() error { return bad })
	})
	if r.Verdict == explore.Violated || r.Schedules < 5 {
		t.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
	}
	t.Logf("%d schedules", r.Schedules)
}

// torn is a source that ends in memory that is not mapped.
type torn struct{ good int }

func (s torn) FaultIn(t *sched.Task, from, to int) int { return max(min(to, s.good)-from, 0) }
func (s torn) Present(from, to int) int                { return max(min(to, s.good)-from, 0) }

// A batch that fails holds nothing, whatever it had: no page, no range, no promise; and the file
// has the bytes that the write says it has copied, and those of before around them. The policies
// take the steps of a batch in orders of their own, so a step that fails finds different things
// taken.
func TestBatchFails(t *testing.T) {
	orders := map[string]*policy.Policy{}
	for _, name := range policy.Names() {
		orders[name] = policy.MustParse(name)
	}
	// the source is touched when all is locked, as an order that a student may try
	late := *policy.MustParse("locked")
	late.WriteSteps = policy.WriteOrder{policy.Reserve, policy.PreparePages, policy.LockExtent, policy.FaultIn, policy.CopyFromUser,
		policy.DirtyPages, policy.ISizeWrite, policy.SetDelalloc, policy.DropPages, policy.BalanceDirty}
	orders["fault late"] = &late
	for name, p := range orders {
		t.Run(name, func(t *testing.T) {
			// no check: a page that stays locked stops it
			x := fstest.New(t, fstest.NoCheck(), fstest.FSOptions(func(o *fs.Options) { o.Policy = p }))
			f := x.Create("/f")
			want := bytes.Repeat([]byte{0xee}, 64*k)
			x.WriteAt(f, want, 0)
			x.Must(x.FS.Sync(x.T))
			for i, good := range []int{0, 100, 4096, 8192 + 100} {
				for _, pos := range []int{4096, 8192 + 10, len(want)} { // the last one beyond EOF
					// a page that is not in memory has bytes of anything until it is read
					x.FS.DropCaches(x.T)
					buf := bytes.Repeat([]byte{byte(1 + i)}, 32*k)
					n, err := f.WriteIter(x.T, kiocb.Request{Pos: uint64(pos)}, iopath.Source{Buf: buf, Faults: torn{good}})
					if n > good || !errors.Is(err, errno.EFAULT) {
						t.Errorf("source of %d bytes: wrote %d, %v; want EFAULT", good, n, err)
					}
					idle(t, x, f.Inode())
					want = append(want[:pos], append(buf[:n:n], want[min(pos+n, len(want)):]...)...)
					if have := x.ReadFile("/f"); !bytes.Equal(have, want) {
						t.Fatalf("source of %d bytes at %d, wrote %d: the file has %d bytes, want %d, or others", good, pos, n, len(have), len(want))
					}
				}
			}
			x.Must(f.Close(x.T))
			x.Must(x.FS.Sync(x.T))
			x.Check(x.Dev)
		})
	}
}

// idle holds that another task gets every page and the whole range of ip without a wait.
func idle(t *testing.T, x *fstest.Fixture, ip *inode.Inode) {
	t.Helper()
	other := sched.NewTask("other")
	for i := range uint64(32) {
		p, busy := ip.Pages.TryLock(other, i)
		if busy {
			t.Fatalf("page %d is still locked", i)
		}
		if p != nil {
			p.UnlockPut(other)
		}
	}
	if !ip.IOTree.TryLock(other, 0, 128*k) {
		t.Fatal("some of the range is still locked")
	}
	ip.IOTree.Unlock(other, 0, 128*k)
	x.Must(x.FS.Sync(x.T))
	ip.CheckQuiescent(x.T)
}
