package direct_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/inode"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/fstest"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// late is a device that ends each transfer on a task of its own, or with one set all of them, one
// after the other, on one task; with reads set those that write end at once.
type late struct {
	blockdev.Device
	on, one bool
	reads   bool
	list    []*blockdev.Bio // with one: not begun
	busy    bool            // the task of one is there
}

func (d *late) Submit(t *sched.Task, b *blockdev.Bio) {
	if !d.on || b.Op == blockdev.OpFlush || d.reads && b.Op == blockdev.OpWrite {
		d.Device.Submit(t, b)
		return
	}
	if !d.one {
		t.Go("device", func(t *sched.Task) { d.Device.Submit(t, b) })
		return
	}
	d.list = append(d.list, b)
	if d.busy {
		return
	}
	d.busy = true
	t.Go("device", func(t *sched.Task) {
		for len(d.list) > 0 {
			next := d.list[0]
			d.list = d.list[1:]
			d.Device.Submit(t, next)
		}
		d.busy = false
	})
}

// told keeps the end of a request for the one task that waits for it.
type told struct {
	q     lock.WaitQueue
	calls int
	n     int
	err   error
}

func (d *told) Complete(t *sched.Task, n int, err error) {
	d.n, d.err = n, err
	d.calls++
	d.q.Wake(t)
}

// do waits for the end of a request that may have been queued, and says what became of it.
func (d *told) do(t *sched.Task, n int, err error) (int, error) {
	if err != errno.EIOCBQUEUED {
		if d.calls != 0 {
			panic("Done was told of a request that was not queued")
		}
		return n, err
	}
	d.q.Wait(t, func() bool { return d.calls > 0 })
	if d.calls != 1 {
		panic(fmt.Sprintf("Done called %d times", d.calls))
	}
	return d.n, d.err
}

// TestQueuedSchedules: a queued write and a queued read meet a truncate that cuts the file and
// makes it long again, whose zeros are not to be covered by the write's bytes, on a device that
// ends a transfer when it pleases.
func TestQueuedSchedules(t *testing.T) {
	const size = 8192
	image := blockdev.NewMemory(128 << 20)
	if err := mkfs.Make(sched.NewTask("mkfs"), image, mkfs.Options{Now: fstest.Epoch}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"locked", "modern"} {
		for _, sums := range []bool{false, true} {
			cfg := explore.Config{Preemptions: 2, Schedules: fstest.Schedules(300), NoShrink: true, Switch: []sched.ClassID{
				inode.Class.ID, inode.DIOClass.ID, extentio.ExtentClass.ID, extentio.DIOClass.ID, blockdev.WaitClass.ID}}
			queued := 0
			r := explore.Run(cfg, func(w *explore.World) {
				must := func(err error) {
					if err != nil {
						panic(err)
					}
				}
				dev := &late{Device: image.Snapshot()}
				x, err := fs.Open(w.Task(), []blockdev.Device{dev}, fstest.Explored(name+"!DIO_CSUM_BUFFERED"))
				must(err)
				f, err := x.Create(w.Task(), "/f", 0o644)
				must(err)
				if !sums {
					must(f.SetFlags(w.Task(), format.InodeNoDataCow|format.InodeNoDataSum))
				}
				old := bytes.Repeat([]byte{1}, size)
				_, err = f.WriteAt(w.Task(), old, 0)
				must(err)
				must(x.Sync(w.Task()))
				x.DropCaches(w.Task())
				dev.on = true
				seen := make([]byte, size)
				w.Go("writer", func(t *sched.Task) {
					d := new(told)
					d.q.Init(blockdev.WaitClass)
					n, err := f.WriteIter(t, kiocb.Request{Flags: kiocb.Direct, Done: d}, iopath.Source{Buf: bytes.Repeat([]byte{2}, size)})
					if err == errno.EIOCBQUEUED {
						queued++
					}
					if n, err = d.do(t, n, err); n != size || err != nil {
						panic(fmt.Sprint("write: ", n, err))
					}
				})
				w.Go("truncate", func(t *sched.Task) {
					must(f.Truncate(t, 4096))
					must(f.Truncate(t, size))
				})
				w.Go("reader", func(t *sched.Task) {
					d := new(told)
					d.q.Init(blockdev.WaitClass)
					n, err := f.ReadIter(t, kiocb.Request{Flags: kiocb.Direct, Done: d}, seen)
					if err == errno.EIOCBQUEUED {
						queued++
					}
					if n, err = d.do(t, n, err); err != nil && err != io.EOF {
						panic(fmt.Sprint("read: ", n, err))
					}
				})
				w.Check(func() error {
					x.Pause(w.Task())
					x.Resume(w.Task())
					for i, b := range seen {
						if b != seen[i&^4095] || b > 2 {
							return fmt.Errorf("the read is mixed inside a block: byte %d is %d", i, b)
						}
					}
					got := make([]byte, size)
					if n, err := f.ReadAt(w.Task(), got, 0); n != size {
						return fmt.Errorf("at the end: %d bytes, %v", n, err)
					}
					for i, b := range got {
						// The whole write before the truncate, or after it.
						if i < 4096 && b != 2 || i >= 4096 && b != got[4096] || b == 1 {
							return fmt.Errorf("at the end: byte %d is %d", i, b)
						}
					}
					must(x.Sync(w.Task()))
					x.CheckQuiescent(w.Task())
					return nil
				})
			})
			t.Logf("%s, checksums %v: %v after %d schedules, %d requests queued", name, sums, r.Verdict, r.Schedules, queued)
			if r.Verdict == explore.Violated || r.Schedules < fstest.Schedules(100) || queued < fstest.Schedules(100) {
				t.Errorf("%s, checksums %v: %v after %d schedules, %d requests queued: %s; schedule %q", name, sums, r.Verdict, r.Schedules, queued, r.Violation, r.Schedule)
			}
		}
	}
}

// TestQueuedReadOverwritten: the blocks of a queued read are written anew elsewhere, and committed,
// before the device has read them. The read gets its blocks as they were or as they are, and no
// error: their checksums are there until it has looked at them.
func TestQueuedReadOverwritten(t *testing.T) {
	const size = 8192
	image := blockdev.NewMemory(128 << 20)
	if err := mkfs.Make(sched.NewTask("mkfs"), image, mkfs.Options{Now: fstest.Epoch}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"locked", "modern"} {
		cfg := explore.Config{Preemptions: 2, Schedules: fstest.Schedules(150), NoShrink: true, Switch: lockdep.IDs("i_rwsem", "extent", "dio_locked", "device")}
		queued := 0
		r := explore.Run(cfg, func(w *explore.World) {
			must := func(err error) {
				if err != nil {
					panic(err)
				}
			}
			dev := &late{Device: image.Snapshot(), reads: true}
			o := fstest.Explored(name)
			x, err := fs.Open(w.Task(), []blockdev.Device{dev}, o)
			must(err)
			f, err := x.Create(w.Task(), "/f", 0o644)
			must(err)
			_, err = f.WriteAt(w.Task(), bytes.Repeat([]byte{1}, size), 0)
			must(err)
			must(x.Sync(w.Task()))
			x.DropCaches(w.Task())
			dev.on = true
			seen := make([]byte, size)
			w.Go("reader", func(t *sched.Task) {
				d := new(told)
				d.q.Init(blockdev.WaitClass)
				n, err := f.ReadIter(t, kiocb.Request{Flags: kiocb.Direct, Done: d}, seen)
				if err == errno.EIOCBQUEUED {
					queued++
				}
				if n, err = d.do(t, n, err); n != size || err != nil {
					panic(fmt.Sprint("read: ", n, err))
				}
			})
			w.Go("writer", func(t *sched.Task) {
				_, err := f.WriteAt(t, bytes.Repeat([]byte{2}, size), 0)
				must(err)
				must(x.Sync(t))
			})
			w.Check(func() error {
				for i, b := range seen {
					if b != seen[i&^4095] || b != 1 && b != 2 {
						return fmt.Errorf("byte %d of the read is %d", i, b)
					}
				}
				return nil
			})
		})
		t.Logf("%s: %v after %d schedules, %d requests queued", name, r.Verdict, r.Schedules, queued)
		if r.Verdict == explore.Violated || r.Schedules < 5 || queued < 5 {
			t.Errorf("%s: %v after %d schedules, %d requests queued: %s; schedule %q", name, r.Verdict, r.Schedules, queued, r.Violation, r.Schedule)
		}
	}
}

// TestReadPieces: a direct read of two extents waits for an ordered extent in the second while an
// fsync has locked the file up to the first, which is read already. What the fsync waits for, the
// completions wait for, and the read for them: nobody may wait for a reader who has not come to a
// piece that he has.
func TestReadPieces(t *testing.T) {
	const k = 1024
	s := &scenario.Scenario{
		Name: "direct-read-pieces",
		File: scenario.File{Size: 12 * k, Extent: 4 * k},
		Tasks: []scenario.Task{
			{Name: "reader", Ops: []scenario.Op{scenario.DirectRead(4*k, 8*k)}},
			{Name: "writer", Ops: []scenario.Op{scenario.DirectWrite(0, 4*k), scenario.DirectWrite(8*k, 4*k)}},
			{Name: "fsync", Ops: []scenario.Op{scenario.Fsync()}},
		},
		Switch: []string{"extent", "ordered_extent", "workqueue_idle"}, Deep: true,
	}
	for _, name := range []string{"unlocked", "locked"} {
		r, err := scenario.Run(s, policy.MustParse(name), scenario.Options{Own: true, Config: func(c *explore.Config) {
			c.Schedules, c.NoShrink, c.Preemptions = fstest.Schedules(300), true, 2
		}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict == explore.Violated || r.Schedules < 20 {
			t.Errorf("%s: %v after %d schedules: %s: %s; schedule %q", name, r.Verdict, r.Schedules, r.Kind, r.Violation, r.Schedule)
		}
	}
}

// TestEndDoesNotWaitForPages: the end of a queued write finds no page in memory, and a reader
// brings one, locks it and waits for the device, which is still in that end. The end may not wait
// for the page.
func TestEndDoesNotWaitForPages(t *testing.T) {
	image := blockdev.NewMemory(128 << 20)
	if err := mkfs.Make(sched.NewTask("mkfs"), image, mkfs.Options{Now: fstest.Epoch}); err != nil {
		t.Fatal(err)
	}
	cfg := explore.Config{Preemptions: 2, Schedules: fstest.Schedules(300), NoShrink: true, Switch: lockdep.IDs("snapshot_lock", "page", "device")}
	r := explore.Run(cfg, func(w *explore.World) {
		must := func(err error) {
			if err != nil {
				panic(err)
			}
		}
		dev := &late{Device: image.Snapshot(), one: true}
		x, err := fs.Open(w.Task(), []blockdev.Device{dev}, fstest.Explored("unaligned-check-first"))
		must(err)
		f, err := x.Create(w.Task(), "/f", 0o644)
		must(err)
		must(f.SetFlags(w.Task(), format.InodeNoDataCow|format.InodeNoDataSum))
		_, err = f.WriteAt(w.Task(), bytes.Repeat([]byte{1}, 4096), 0)
		must(err)
		must(x.Sync(w.Task()))
		x.DropCaches(w.Task())
		dev.on = true
		seen := make([]byte, 4096)
		w.Go("writer", func(t *sched.Task) {
			d := new(told)
			d.q.Init(blockdev.WaitClass)
			n, err := f.WriteIter(t, kiocb.Request{Pos: 512, Flags: kiocb.Direct, Done: d}, iopath.Source{Buf: bytes.Repeat([]byte{2}, 512)})
			if n, err = d.do(t, n, err); n != 512 || err != nil {
				panic(fmt.Sprint("write: ", n, err))
			}
		})
		w.Go("reader", func(t *sched.Task) {
			_, err := f.ReadAt(t, seen, 0)
			must(err)
		})
		w.Check(func() error {
			want := bytes.Repeat([]byte{1}, 4096)
			if seen[512] == 2 {
				copy(want[512:], bytes.Repeat([]byte{2}, 512))
			}
			if !bytes.Equal(seen, want) {
				return fmt.Errorf("the reader has seen a part of the sector")
			}
			got := make([]byte, 4096)
			_, err := f.ReadAt(w.Task(), got, 0)
			must(err)
			copy(want[512:], bytes.Repeat([]byte{2}, 512))
			if !bytes.Equal(got, want) {
				return fmt.Errorf("at the end: sector 1 is %d, want 2", got[512])
			}
			return nil
		})
	})
	if r.Verdict == explore.Violated || r.Schedules < 5 {
		t.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
	}
	t.Logf("%v after %d schedules", r.Verdict, r.Schedules)
}

// TestUnalignedMark: a direct write of a sector does not zero the block that writeback has written
// and not yet marked.
func TestUnalignedMark(t *testing.T) { searchUnaligned(t, "unaligned-mark") }

// TestUnalignedReader: no ordered extent keeps a reader from a block while a sector is on its way
// to it, so the page that it brings into memory has the old sector, and must go.
func TestUnalignedReader(t *testing.T) { searchUnaligned(t, "unaligned-reader") }

// TestUnalignedZeros: a reader takes a block for zeros until it is marked written, and the page
// with them must go: it may have come when the sectors were on the device.
func TestUnalignedZeros(t *testing.T) { searchUnaligned(t, "unaligned-zeros") }

// searchUnaligned searches the scenario under each design of its policies.
func searchUnaligned(t *testing.T, name string) {
	s, err := scenario.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range s.Policies {
		r, err := scenario.Run(s, policy.MustParse(name), scenario.Options{Config: func(c *explore.Config) { c.Schedules = fstest.Schedules(400) }})
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict == explore.Violated || r.Schedules < 20 {
			t.Errorf("%s: %v after %d schedules: %s; schedule %q", name, r.Verdict, r.Schedules, r.Violation, r.Schedule)
		}
	}
}
