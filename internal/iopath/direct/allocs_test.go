//go:build !race

package direct_test

// The race detector allocates.

import (
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestDirectAllocatesNothing: an overwrite in place, and a read, need no memory, waited for or
// queued.
func TestDirectAllocatesNothing(t *testing.T) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	for _, p := range []string{"locked", "modern"} {
		tk := sched.NewTask(t.Name())
		dev := &holding{Device: blockdev.NewMemory(256 << 20), kept: make([]*blockdev.Bio, 0, 8)}
		fstest.Must(0, mkfs.Make(tk, dev, mkfs.Options{}))
		x := fstest.Must(fs.Open(tk, []blockdev.Device{dev}, fs.Options{Policy: policy.MustParse(p)}))
		f := fstest.Must(x.Create(tk, "/f", 0o644))
		fstest.Must(0, f.SetFlags(tk, fstest.Nocow))
		fstest.Must(f.WriteDirect(tk, make([]byte, 1<<20), 0))
		fstest.Must(0, x.Sync(tk))
		buf, i := make([]byte, 4096), 0
		res := new(fstest.Result)
		var later *blockdev.Bio
		for _, c := range []struct {
			name string
			do   func(rq kiocb.Request) (int, error)
			op   blockdev.Op
		}{
			{"write", func(rq kiocb.Request) (int, error) { return f.WriteIter(tk, rq, iopath.Source{Buf: buf}) }, blockdev.OpWrite},
			{"read", func(rq kiocb.Request) (int, error) { return f.ReadIter(tk, rq, buf) }, blockdev.OpRead},
		} {
			run := func(queued bool) func() {
				return func() {
					i = (i + 37) & 255
					rq := kiocb.Request{Pos: uint64(i) * 4096, Flags: kiocb.Direct}
					if queued {
						rq.Done = res
						dev.op, dev.on = c.op, true
					}
					n, err := c.do(rq)
					if queued && err == errno.EIOCBQUEUED {
						later, dev.kept, dev.on = dev.kept[0], dev.kept[:0], false
						dev.Device.Submit(tk, later)
						n, err = res.N, res.Err
					}
					if n != 4096 || err != nil {
						panic(fmt.Sprint(n, err))
					}
				}
			}
			for _, queued := range []bool{false, true} {
				res.Calls.Store(0)
				run(queued)()
				if n := testing.AllocsPerRun(500, run(queued)); n != 0 {
					t.Errorf("%s, %s, queued %v: %v allocations, want 0", p, c.name, queued, n)
				}
				if calls := res.Calls.Load(); queued && calls != 502 {
					t.Errorf("%s, %s: %d of 502 requests were queued", p, c.name, calls)
				}
			}
		}
		fstest.Must(0, f.Close(tk))
		fstest.Must(0, x.Close(tk))
	}
}

// TestUnalignedAllocatesNothing: a direct write of sectors of a written block needs no memory,
// waited for or queued.
func TestUnalignedAllocatesNothing(t *testing.T) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	for _, p := range policy.UnalignedNames() {
		tk := sched.NewTask(t.Name())
		dev := &holding{Device: blockdev.NewMemory(256 << 20), kept: make([]*blockdev.Bio, 0, 8)}
		fstest.Must(0, mkfs.Make(tk, dev, mkfs.Options{}))
		x := fstest.Must(fs.Open(tk, []blockdev.Device{dev}, fs.Options{Policy: policy.MustParse(p)}))
		f := fstest.Must(x.Create(tk, "/f", 0o644))
		fstest.Must(0, f.SetFlags(tk, fstest.Nocow))
		fstest.Must(f.WriteDirect(tk, make([]byte, 1<<20), 0))
		fstest.Must(0, x.Sync(tk))
		buf, i, res := make([]byte, 2048), 0, new(fstest.Result)
		run := func() {
			i = (i + 37) & 511
			rq := kiocb.Request{Pos: uint64(i) * 2048, Flags: kiocb.Direct, Done: res}
			dev.op, dev.on = blockdev.OpWrite, p != "unaligned-exclusive"
			n, err := f.WriteIter(tk, rq, iopath.Source{Buf: buf})
			if err == errno.EIOCBQUEUED {
				later := dev.kept[0]
				dev.kept, dev.on = dev.kept[:0], false
				dev.Device.Submit(tk, later)
				n, err = res.N, res.Err
			}
			if n != 2048 || err != nil {
				panic(fmt.Sprint(n, err))
			}
		}
		run()
		if n := testing.AllocsPerRun(500, run); n != 0 {
			t.Errorf("%s: %v allocations, want 0", p, n)
		}
		if calls := res.Calls.Load(); (calls == 502) != (p != "unaligned-exclusive") {
			t.Errorf("%s: %d of 502 requests were queued", p, calls)
		}
		fstest.Must(0, f.Close(tk))
		fstest.Must(0, x.Close(tk))
	}
}

// TestNowaitDirectDoesNotAllocate: an overwrite in place costs no allocation, whether the answer is
// known or the trees are asked.
func TestNowaitDirectDoesNotAllocate(t *testing.T) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	for _, spec := range []string{"nowait-strict", "nowait-6.1", "nowait-5.8"} {
		x := fstest.New(t, fstest.Policy(spec))
		f := nowaitFile(x, 64<<10)
		p := make([]byte, 4096)
		if n := testing.AllocsPerRun(500, func() {
			if _, err := nowaitDirect(x.T, f, p, 4096); err != nil && !errors.Is(err, errno.EAGAIN) {
				t.Fatal(err)
			}
		}); n >= 1 {
			t.Errorf("%s: %v allocations", spec, n)
		}
		x.Must(f.Close(x.T))
	}
}
