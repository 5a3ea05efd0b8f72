package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// A crash at any flush while snapshots come and go: the image is clean, or half of a deleted tree
// is left, which the next open drops; and every snapshot that was there has the bytes of the moment
// it was made, whatever its original did since. NOCOW files are among them: what is overwritten in
// place after a snapshot must be a copy.
func TestSnapshotCrash(t *testing.T) {
	need.LongRaced(t)
	base := blockdev.NewMemory(128 << 20)
	var log *dm.LogWrites
	x := fstest.New(t, fstest.Size(base.Size()), fstest.Wrap(func(dev blockdev.Device) blockdev.Device {
		log = dm.NewLogWrites(dev, dev.(*blockdev.Memory).Snapshot())
		return log
	}))
	r := rand.New(rand.NewPCG(5, 6))
	const files, size = 4, 96 << 10
	now := make([][]byte, files)
	for i := range now {
		f := x.Create(fmt.Sprintf("/f%d", i))
		if i%2 == 0 {
			x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
		}
		now[i] = make([]byte, size)
		fstest.Random(r, now[i])
		x.WriteAt(f, now[i], 0)
		x.Must(f.Close(x.T))
	}
	x.Must(x.FS.Sync(x.T))
	made := map[string][][]byte{} // by the name of the snapshot
	type event struct{ name, gone string }
	var events []event // by mark: what it has made or deleted
	log.Mark(x.T, "0")
	for i := 1; i <= 6; i++ {
		for range 12 {
			k, off := r.IntN(files), r.IntN(size-8192)
			p := make([]byte, 1+r.IntN(8192))
			fstest.Random(r, p)
			f := x.Open(fmt.Sprintf("/f%d", k))
			x.WriteAt(f, p, int64(off))
			copy(now[k][off:], p)
			if r.IntN(4) == 0 {
				x.Must(f.Fsync(x.T))
			}
			x.Must(f.Close(x.T))
		}
		e := event{name: fmt.Sprintf("s%d", i)}
		if i > 3 {
			e.gone = fmt.Sprintf("s%d", i-3)
			x.Must(x.FS.DeleteSubvolume(x.T, "/"+e.gone))
		}
		var files [][]byte
		for _, b := range now {
			files = append(files, bytes.Clone(b))
		}
		made[e.name] = files
		x.Must(x.FS.Snapshot(x.T, "/", "/"+e.name, i%2 == 0))
		events = append(events, e)
		log.Mark(x.T, strconv.Itoa(i))
	}
	images := 0
	err := log.Images(x.T, dm.ImageOptions{SectorBytes: format.SectorSize, Subsets: 2, Seed: 4}, func(tk *sched.Task, m dm.Image) error {
		images++
		k, _ := strconv.Atoi(m.Mark)
		// snapshots that are durable, and not deleted even by what comes next
		must := map[string]bool{}
		for i, e := range events {
			if i < k {
				must[e.name] = true
			}
			if i <= k {
				delete(must, e.gone)
			}
		}
		return snapshotsAfterCrash(tk, m, made, must)
	})
	x.Must(err)
	if images < 60 {
		t.Errorf("only %d crash images", images)
	}
}

func snapshotsAfterCrash(t *sched.Task, m dm.Image, made map[string][][]byte, must map[string]bool) error {
	// as it is, and after what an open for writing does
	for _, readOnly := range []bool{true, false} {
		if res, err := check.Check(t, m.Dev, check.Options{}); err != nil || !res.Clean {
			return fmt.Errorf("%s after mark %s: %v, %d findings %v", m.Name, m.Mark, err, len(res.Findings), res.Findings[:min(1, len(res.Findings))])
		}
		f, err := fs.Open(t, []blockdev.Device{m.Dev}, fs.Options{ReadOnly: readOnly, Memory: fs.NoLimit})
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		list, err := f.ReadDir(t, "/")
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, e := range list {
			if e.Subvol == 0 || !strings.HasPrefix(e.Name, "s") {
				continue
			}
			seen[e.Name] = true
			for i, want := range made[e.Name] {
				x, err := f.OpenFile(t, fmt.Sprintf("/%s/f%d", e.Name, i), fs.O_RDONLY, 0)
				if errors.Is(err, errno.ENOENT) && !must[e.Name] {
					continue
				}
				if err != nil {
					return fmt.Errorf("%s after mark %s: %w", m.Name, m.Mark, err)
				}
				have := make([]byte, x.Size(t))
				if _, err := x.ReadAt(t, have, 0); err != nil && err != io.EOF {
					return err
				}
				if !bytes.Equal(have, want) {
					return fmt.Errorf("%s after mark %s: file %d of snapshot %s has %d bytes, want %d%s", m.Name, m.Mark, i, e.Name, len(have), len(want), fstest.DiffAt(have, want))
				}
				if err := x.Close(t); err != nil {
					return err
				}
			}
		}
		for name := range must {
			if !seen[name] {
				return fmt.Errorf("%s after mark %s: snapshot %s is missing", m.Name, m.Mark, name)
			}
		}
		if err := f.Close(t); err != nil {
			return err
		}
	}
	return nil
}
