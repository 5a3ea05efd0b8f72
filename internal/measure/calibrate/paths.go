package calibrate

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/measure/rig"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// A path is a piece of work of which only the whole can be timed. Virtual time does the same work
// and counts the units of each cost; what the time of the whole leaves beyond the costs that are
// known already belongs to those in rest, in the proportion of the model.
type path struct {
	name string
	// unit is what one operation of do is called in the table.
	unit string
	// dirty says that every page of the file is dirty before; else none is.
	dirty bool
	do    func(t *sched.Task, w *work, n int) error
	count int   // operations of a loop
	bytes int64 // of the file, that one operation moves
	rest  []sched.Cost
}

// Paths of the flusher write this much of the file at once.
const (
	scatterPages = 1024
	streamBytes  = 4 << 20
)

// paths are in the order in which they make costs known. One without a rest is a check of the
// others.
var paths = []path{
	{name: "read 4k", unit: "a 4 KiB read of a page in the cache", dirty: true, do: readPages, count: 1024, bytes: 4096, rest: []sched.Cost{cost.Syscall}},
	{name: "write 4k", unit: "a 4 KiB overwrite of a dirty page", dirty: true, do: writeBlocks(4096), count: 1024, bytes: 4096, rest: []sched.Cost{cost.Reserve}},
	{name: "write 64k", unit: "a 64 KiB overwrite of dirty pages", dirty: true, do: writeBlocks(64 << 10), count: 128, bytes: 64 << 10},
	{name: "stream", unit: "4 MiB in a row, written and synced", do: stream, count: 4, bytes: streamBytes, rest: []sched.Cost{cost.Vec}},
	{name: "scatter", unit: "1024 pages here and there, written and synced", do: scatter, count: 4, bytes: scatterPages * 4096, rest: []sched.Cost{cost.Submit, cost.Complete, cost.Ordered}},
	{name: "files", unit: "an empty file, made and removed", do: files, count: 128, rest: []sched.Cost{cost.Search, cost.Item}},
	{name: "commit", unit: "a flag of a file, set and committed", do: commits, count: 16, rest: []sched.Cost{cost.CopyBlock, cost.CheckBlock}},
}

// work is an image in memory with a NOCOW file whose pages are all in the cache.
type work struct {
	l    *rig.Rig
	x    *fs.FS
	f    *fs.File
	size int64
	rng  *rand.Rand
	buf  []byte
	made int // files
}

// open makes the image. Nothing is written back by itself.
func open(t *sched.Task, size int64, payload bool) (*work, error) {
	w := &work{size: size, rng: rand.New(rand.NewPCG(1, 2)), buf: make([]byte, 1<<20)}
	var err error
	w.l, err = rig.Open(t, rig.Config{Size: size + size/2 + 512<<20, DirtyBackground: 4 * size, DirtyLimit: 8 * size, CacheLimit: 4 * size, NoPayload: !payload})
	if err != nil {
		return nil, err
	}
	if w.x, err = w.l.OpenFS(t, "locked"); err != nil {
		return nil, err
	}
	if w.f, err = w.x.Create(t, "/f", 0o644); err == nil {
		err = w.f.SetFlags(t, format.InodeNoDataCow|format.InodeNoDataSum)
	}
	if err == nil {
		err = fill(t, w.f, size)
	}
	if err == nil {
		err = w.x.Sync(t)
	}
	return w, err
}

// warm does what p does, as often as it moves the file warm times.
func (w *work) warm(t *sched.Task, p *path) error {
	if p.bytes == 0 {
		return nil
	}
	return p.do(t, w, int(warm*w.size/p.bytes))
}

// before brings the pages into the state that p wants.
func (w *work) before(t *sched.Task, p *path) error {
	if p.dirty {
		return fill(t, w.f, w.size)
	}
	return w.x.Sync(t)
}

func (w *work) close(t *sched.Task) error {
	err := w.f.Close(t)
	if cerr := w.x.Close(t); err == nil {
		err = cerr
	}
	if cerr := w.l.Close(); err == nil {
		err = cerr
	}
	return err
}

func readPages(t *sched.Task, w *work, n int) error {
	for range n {
		if _, err := w.f.ReadAt(t, w.buf[:4096], w.rng.Int64N(w.size>>12)<<12); err != nil {
			return err
		}
	}
	return nil
}

func writeBlocks(bs int64) func(*sched.Task, *work, int) error {
	return func(t *sched.Task, w *work, n int) error {
		for range n {
			if _, err := w.f.WriteAt(t, w.buf[:bs], w.rng.Int64N(w.size/bs)*bs); err != nil {
				return err
			}
		}
		return nil
	}
}

func stream(t *sched.Task, w *work, n int) error {
	for range n {
		at := w.rng.Int64N(w.size/streamBytes) * streamBytes
		for off := int64(0); off < streamBytes; off += int64(len(w.buf)) {
			if _, err := w.f.WriteAt(t, w.buf, at+off); err != nil {
				return err
			}
		}
		if err := w.f.Fsync(t); err != nil {
			return err
		}
	}
	return nil
}

func scatter(t *sched.Task, w *work, n int) error {
	for range n {
		if err := writeBlocks(4096)(t, w, scatterPages); err != nil {
			return err
		}
		if err := w.f.Fsync(t); err != nil {
			return err
		}
	}
	return nil
}

func files(t *sched.Task, w *work, n int) error {
	for range n {
		w.made++
		name := fmt.Sprintf("/empty%d", w.made)
		f, err := w.x.Create(t, name, 0o644)
		if err == nil {
			err = f.Close(t)
		}
		if err == nil {
			err = w.x.Unlink(t, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commits copies and writes the blocks on the ways to an inode, to its extents and to their
// references.
func commits(t *sched.Task, w *work, n int) error {
	for i := range n {
		err := w.f.SetFlags(t, format.InodeNoDataCow|format.InodeNoDataSum|uint64(i&1)*format.InodeNoAtime)
		if err == nil {
			err = w.x.Commit(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// units are what one operation of p costs in virtual time on one CPU, by cost. Nothing takes time
// there: only the counts matter.
func (p *path) units(size int64) (u [cost.Count]float64, err error) {
	count := func(n int) (st vtime.Stats, err error) {
		free := cost.Table{}
		st, verr := vtime.Run(vtime.Machine{CPUs: 1, Costs: &free}, func(t *sched.Task) {
			var w *work
			if w, err = open(t, size, false); err != nil {
				return
			}
			if err = w.before(t, p); err == nil {
				err = p.do(t, w, n)
			}
			err = errors.Join(err, w.close(t))
		})
		return st, errors.Join(err, verr)
	}
	none, err := count(0)
	if err != nil {
		return u, err
	}
	some, err := count(p.count)
	for c := range u {
		u[c] = float64(some.Units[c]-none.Units[c]) / float64(p.count)
	}
	return u, err
}
