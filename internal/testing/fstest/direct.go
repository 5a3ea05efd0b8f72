package fstest

// Direct I/O: files, queued requests, power cuts.

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
)

// DirectFiles are the files on which direct I/O goes different ways.
var DirectFiles = []struct {
	Name     string
	Flags    uint64
	Prealloc bool
}{
	{"cow", 0, false},
	{"nodatasum", format.InodeNoDataSum, false},
	{"nocow", format.InodeNoDataCow | format.InodeNoDataSum, false},
	{"nocow-prealloc", format.InodeNoDataCow | format.InodeNoDataSum, true},
	{"cow-prealloc", 0, true},
}

const Nocow = format.InodeNoDataCow | format.InodeNoDataSum

// Result is the end of a queued request.
type Result struct {
	Calls atomic.Int32
	N     int
	Err   error
	Look  func() // what else is so when Done is told
}

func (r *Result) Complete(t *sched.Task, n int, err error) {
	r.N, r.Err = n, err
	if r.Look != nil {
		r.Look()
	}
	r.Calls.Add(1)
}

func (r *Result) Wait() { Until(func() bool { return r.Calls.Load() > 0 }) }

// Want fails the test unless the request was told n and err, once.
func (r *Result) Want(t *testing.T, what string, n int, err error) {
	t.Helper()
	r.Wait()
	if c := r.Calls.Load(); c != 1 || r.N != n || !errors.Is(r.Err, err) {
		t.Errorf("%s: Done called %d times, the last with %d, %v; want once with %d, %v", what, c, r.N, r.Err, n, err)
	}
}

// Submit asks for a write that may be queued; Wait waits for its end.
func (r *Result) Submit(t *sched.Task, f *fs.File, rq kiocb.Request, p []byte) {
	rq.Done = r
	if n, err := f.WriteIter(t, rq, iopath.Source{Buf: p}); !errors.Is(err, errno.EIOCBQUEUED) {
		r.Complete(t, n, err)
	}
}

// CrashRounds cuts the power anywhere in eight rounds of writes of a NOCOW file, whose first half
// is written, with byte 1, and whose second half is preallocated. Round n writes bytes n+1 and
// reports each write of a unit, of so many bytes, by wrote; the file is synced after it. After a
// crash the image is clean, and each unit holds what the last fsync has promised or what was
// written since.
func CrashRounds(t *testing.T, spec string, blocks, unit int, round func(x *Fixture, f *fs.File, n int, wrote func(unit int))) {
	const rounds = 8
	var log *dm.LogWrites
	x := New(t, Policy(spec), Size(128<<20), Wrap(func(dev blockdev.Device) blockdev.Device {
		log = dm.NewLogWrites(dev, dev.(*blockdev.Memory).Snapshot())
		return log
	}))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, Nocow))
	x.Must(f.Fallocate(x.T, 0, 0, int64(blocks)*4096))
	Must(f.WriteDirect(x.T, bytes.Repeat([]byte{1}, blocks/2*4096), 0))
	x.Must(x.FS.Sync(x.T))
	units := blocks * 4096 / unit
	wrote := make([][]byte, units) // of each unit: the byte of each write, in order
	var synced [rounds + 1][]int   // of each mark: how many of them were synced
	for s := range wrote {
		wrote[s] = []byte{0}
		if s < units/2 {
			wrote[s][0] = 1
		}
	}
	for n := range rounds + 1 {
		if n > 0 {
			round(x, f, n, func(s int) { wrote[s] = append(wrote[s], byte(n+1)) })
			x.Must(f.Fsync(x.T))
		}
		for s := range wrote {
			synced[n] = append(synced[n], len(wrote[s]))
		}
		log.Mark(x.T, strconv.Itoa(n))
	}
	images := 0
	x.Must(log.Images(x.T, dm.ImageOptions{SectorBytes: 4096, Subsets: 2, Seed: 9}, func(tk *sched.Task, m dm.Image) error {
		k, err := strconv.Atoi(m.Mark)
		if err != nil {
			return nil // before the first
		}
		images++
		if r := Must(check.Check(tk, m.Dev, check.Options{})); !r.Clean {
			return fmt.Errorf("%s after %d: %d findings, first %v", m.Name, k, len(r.Findings), r.Findings[0])
		}
		// a log is replayed
		g := Must(fs.Open(tk, []blockdev.Device{m.Dev}, fs.Options{ReadOnly: !policy.MustParse(spec).Has(policy.FsyncLog)}))
		h := Must(g.OpenFile(tk, "/f", fs.O_RDONLY, 0))
		got := ReadFull(t, tk, h.ReadAt, make([]byte, blocks*4096), 0)
		for s := range wrote {
			v := got[s*unit]
			may := wrote[s][synced[k][s]-1 : synced[min(k+1, rounds)][s]]
			if !bytes.Equal(got[s*unit:(s+1)*unit], bytes.Repeat([]byte{v}, unit)) || !bytes.Contains(may, []byte{v}) {
				return fmt.Errorf("%s after fsync %d: unit %d holds %d, want one of %v", m.Name, k, s, v, may)
			}
		}
		x.Must(h.Close(tk))
		return g.Close(tk)
	}))
	if images < 4*rounds {
		t.Errorf("only %d crash images of %d rounds", images, rounds)
	}
	t.Logf("%d crash images", images)
	x.Must(f.Close(x.T))
}
