package kernel

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	btrfs "btrlab/internal/fs"
	"btrlab/internal/interop"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// told is the end of a request that was queued.
type told chan error

func (c told) Complete(t *sched.Task, n int, err error) { c <- err }

// TestDirectWriters: tasks write past the page cache, each in blocks of its own of files that all
// share, waited for, queued, durable and in sectors, under every policy. Linux accepts the image
// and reads the same bytes.
func TestDirectWriters(t *testing.T) {
	interop.Linux(t)
	const tasks, blocks = 4, 16 // of each task
	policies := append(policy.Names(), "modern!DIO_CSUM_BUFFERED", "modern+UNALIGNED_EXCLUSIVE", "modern+UNALIGNED_CHECK_FIRST", "modern+UNALIGNED_RETRY")
	for _, name := range policies {
		img := filepath.Join(t.TempDir(), "img")
		dev, err := blockdev.Create(img, 256<<20)
		interop.Must(t, err)
		tk := sched.NewTask(t.Name())
		interop.Must(t, mkfs.Make(tk, dev, mkfs.Options{}))
		x, err := btrfs.Open(tk, []blockdev.Device{dev}, btrfs.Options{Policy: policy.MustParse(name)})
		interop.Must(t, err)
		want := map[string][]byte{}
		for i, flags := range []uint64{0, format.InodeNoDataCow, format.InodeNoDataCow} {
			path := fmt.Sprintf("/f%d", i)
			f, err := x.Create(tk, path, 0o644)
			interop.Must(t, err)
			interop.Must(t, f.SetFlags(tk, flags))
			if i == 2 {
				interop.Must(t, f.Fallocate(tk, 0, 0, tasks*blocks*4096))
			}
			data := make([]byte, tasks*blocks*4096)
			var writers []*sched.Task
			errs := make(chan error, tasks)
			for w := range tasks {
				writers = append(writers, tk.Go("writer", func(t *sched.Task) {
					r := rand.New(rand.NewPCG(uint64(w), uint64(i)))
					var bad error
					for n := range interop.Pick(200, 40) {
						off := (w*blocks + r.IntN(blocks)) * 4096
						p := data[off : off+4096]
						if n%4 == 3 {
							s := r.IntN(8) * 512
							off, p = off+s, p[s:s+512]
						}
						for j := range p {
							p[j] = byte(r.Uint32())
						}
						rq := kiocb.Request{Pos: uint64(off), Flags: kiocb.Direct}
						done := make(told, 1)
						if n%2 == 0 {
							rq.Done = done
						}
						if n%32 == 5 {
							rq.Flags |= kiocb.DSync
						}
						if _, err := f.WriteIter(t, rq, iopath.Source{Buf: p}); err == errno.EIOCBQUEUED {
							bad = <-done
						} else {
							bad = err
						}
						if bad != nil {
							break
						}
					}
					errs <- bad
				}))
			}
			for _, w := range writers {
				tk.Join(w)
				interop.Must(t, <-errs)
			}
			want[path] = data[:f.Size(tk)]
			interop.Must(t, f.Close(tk))
		}
		interop.Must(t, x.Close(tk))
		interop.Must(t, dev.Close())
		interop.Judged(t, img)
		interop.Mounted(t, img, "ro", func(dir string) { readsBack(t, dir, want) })
		if t.Failed() {
			t.Fatal(name)
		}
	}
}
