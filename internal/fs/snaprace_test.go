package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// Snapshots come and go while writers are at work, on COW files and on NOCOW files: a snapshot has
// whole blocks of some moment, and what it has never changes.
func TestSnapshotsBesideWriters(t *testing.T) {
	x := fstest.New(t)
	f, tk := x.FS, x.T
	const size, block = 64 << 10, 4096
	var tasks []*sched.Task
	for i := range 4 {
		w := x.Create(fmt.Sprintf("/f%d", i))
		if i%2 == 0 {
			x.Must(w.SetFlags(tk, format.InodeNoDataCow))
		}
		x.WriteAt(w, make([]byte, size), 0)
		tasks = append(tasks, tk.Go("writer", func(t *sched.Task) {
			for n := range 60 {
				off := int64(n*7%(size/block)) * block
				if _, err := w.WriteAt(t, bytes.Repeat([]byte{byte(n + 1)}, block), off); err != nil {
					x.Error(err)
				}
				if n%10 == i {
					if err := w.Fsync(t); err != nil {
						x.Error(err)
					}
				}
			}
			if err := w.Close(t); err != nil {
				x.Error(err)
			}
		}))
	}
	read := func(name string) (all []byte) {
		for i := range 4 {
			r, err := f.OpenFile(tk, fmt.Sprintf("/%s/f%d", name, i), fs.O_RDONLY, 0)
			x.Must(err)
			p := make([]byte, size)
			_, err = r.ReadAt(tk, p, 0)
			x.Must(errors.Join(err, r.Close(tk)))
			all = append(all, p...)
		}
		for b := 0; b < len(all); b += block {
			if !bytes.Equal(all[b:b+block], bytes.Repeat(all[b:b+1], block)) {
				t.Errorf("%s has a torn block at %d", name, b)
			}
		}
		return all
	}
	made := map[string][]byte{}
	for i := range 5 {
		name := fmt.Sprintf("s%d", i)
		x.Must(f.Snapshot(tk, "/", "/"+name, true))
		made[name] = read(name)
		if i == 3 {
			x.Must(f.DeleteSubvolume(tk, "/s0"))
			delete(made, "s0")
		}
	}
	for _, w := range tasks {
		tk.Join(w)
	}
	x.Reopen()
	f = x.FS
	for name, want := range made {
		if have := read(name); !bytes.Equal(have, want) {
			t.Errorf("%s has changed since it was made%s", name, fstest.DiffAt(have, want))
		}
	}
}
