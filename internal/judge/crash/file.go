package crash

import (
	"math"
	"slices"
	"sync"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// Files that many tasks write at once have no versions of the whole tree between two operations. A
// File notes its own writes and fsyncs by their place in the recording, and a crash is held against
// them.

// File is an open file of a workload: fs.File, with each write, fsync and change of size noted. Any
// task may use it.
type File struct {
	x *fs.File
	r *Recorder
	h *history
}

// history has the events of one file.
type history struct {
	mu     sync.Mutex
	writes []noted
	syncs  []noted
}

// noted is one call. From and to count the beginnings and ends of calls, at and done the records of
// the device at them. While it is under way, to and done are the largest numbers.
type noted struct {
	from, to int64
	at, done int
	off      int64
	data     []byte // of a write
	size     int64  // of the file after it, at least; of a change of size exactly
}

const underWay = math.MaxInt

// File makes x a file of the workload. The operation that it is part of must be Loose.
func (r *Recorder) File(t *sched.Task, x *fs.File) *File {
	at := x.Stat(t)
	id := inodeID{at.Subvol, at.Ino}
	if r.rec.files == nil {
		r.rec.files = map[inodeID]*history{}
	}
	h := r.rec.files[id]
	if h == nil {
		h = &history{}
		r.rec.files[id] = h
	}
	return &File{x, r, h}
}

// note runs do as one call.
func (f *File) note(t *sched.Task, list *[]noted, n noted, do func() error) error {
	n.to, n.done = underWay, underWay
	n.at = f.r.log.Len(t)
	f.h.mu.Lock()
	n.from = f.r.calls.Add(1)
	i := len(*list)
	*list = append(*list, n)
	f.h.mu.Unlock()
	err := do()
	if err == nil {
		done := f.r.log.Len(t)
		f.h.mu.Lock()
		(*list)[i].to, (*list)[i].done = f.r.calls.Add(1), done
		f.h.mu.Unlock()
	}
	return err
}

func (f *File) write(t *sched.Task, p []byte, off int64, do func() (int, error)) (n int, err error) {
	err = f.note(t, &f.h.writes, noted{off: off, data: slices.Clone(p), size: off + int64(len(p))}, func() error {
		n, err = do()
		return err
	})
	return n, err
}

// WriteAt is fs.File's.
func (f *File) WriteAt(t *sched.Task, p []byte, off int64) (int, error) {
	return f.write(t, p, off, func() (int, error) { return f.x.WriteAt(t, p, off) })
}

// WriteDirect is fs.File's.
func (f *File) WriteDirect(t *sched.Task, p []byte, off int64) (int, error) {
	return f.write(t, p, off, func() (int, error) { return f.x.WriteDirect(t, p, off) })
}

// Truncate is fs.File's. No other task may write the file meanwhile.
func (f *File) Truncate(t *sched.Task, size int64) error {
	return f.note(t, &f.h.writes, noted{size: size}, func() error { return f.x.Truncate(t, size) })
}

// Fallocate is fs.File's.
func (f *File) Fallocate(t *sched.Task, mode uint32, off, n int64) error {
	return f.note(t, &f.h.writes, noted{size: off + n}, func() error { return f.x.Fallocate(t, mode, off, n) })
}

// ReadAt is fs.File's.
func (f *File) ReadAt(t *sched.Task, p []byte, off int64) (int, error) { return f.x.ReadAt(t, p, off) }

// ReadDirect is fs.File's.
func (f *File) ReadDirect(t *sched.Task, p []byte, off int64) (int, error) {
	return f.x.ReadDirect(t, p, off)
}

// Size is fs.File's.
func (f *File) Size(t *sched.Task) int64 { return f.x.Size(t) }

// DropCache is fs.File's.
func (f *File) DropCache(t *sched.Task, off, n int64) { f.x.DropCache(t, off, n) }

// Fsync is fs.File's.
func (f *File) Fsync(t *sched.Task) error {
	return f.note(t, &f.h.syncs, noted{}, func() error { return f.x.Fsync(t) })
}

// durable reports whether an fsync that began after w had returned has returned at a crash at
// record at.
func (h *history) durable(w *noted, at int) bool {
	return slices.ContainsFunc(h.syncs, func(s noted) bool { return w.to < s.from && s.done <= at })
}

// compare holds the file after a crash at record at against its history. Every byte is one that a
// write put there which no durable later write covers, or a zero if no durable write covers it.
// before is the file at the start, nil if it was not there.
func (h *history) compare(path string, at int, have, before *node) *Loss {
	var begun []*noted
	var solid []bool
	least, most := int64(0), int64(0)
	if before != nil {
		most = int64(before.size)
	}
	for i := range h.writes {
		w := &h.writes[i]
		if w.at > at {
			continue
		}
		s := h.durable(w, at)
		begun, solid = append(begun, w), append(solid, s)
		if most = max(most, w.size); s && w.data != nil {
			least = max(least, w.size)
		}
	}
	if size := int64(have.size); size < least || size > most {
		return lossf("size", "%s has %d bytes, want %d to %d by its writes and fsyncs", path, size, least, most)
	}
	var mark [blockSize]bool
	for i := uint64(0); i*blockSize < have.size; i++ {
		p := have.block(i, blockSize)
		lo, hi := int64(i*blockSize), int64(i*blockSize)+int64(len(p))
		ok := mark[:len(p)]
		clear(ok)
		var over []int // writes that cover bytes of the block
		for k, w := range begun {
			if w.off < hi && w.off+int64(len(w.data)) > lo {
				over = append(over, k)
			}
		}
		covered := func(x, after int64) bool { // by a durable write that began after that time
			return slices.ContainsFunc(over, func(k int) bool {
				w := begun[k]
				return solid[k] && w.from > after && w.off <= x && x < w.off+int64(len(w.data))
			})
		}
		// Writes begin and end at few places: bytes between two of them have the same writes.
		cuts := []int64{lo, hi}
		for _, k := range over {
			w := begun[k]
			cuts = append(cuts, max(lo, w.off), min(hi, w.off+int64(len(w.data))))
		}
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		for c := 0; c+1 < len(cuts); c++ {
			a, b := cuts[c], cuts[c+1]
			part := p[a-lo : b-lo]
			if !covered(a, 0) {
				for j, v := range part {
					if v == 0 || before != nil && a+int64(j) < int64(len(before.data)) && before.data[a+int64(j)] == v {
						ok[a-lo+int64(j)] = true
					}
				}
			}
			for _, k := range over {
				w := begun[k]
				if w.off > a || b > w.off+int64(len(w.data)) || covered(a, w.to) {
					continue
				}
				for j, v := range part {
					if w.data[a-w.off+int64(j)] == v {
						ok[a-lo+int64(j)] = true
					}
				}
			}
		}
		if j := slices.Index(ok, false); j >= 0 {
			return lossf("data", "%s at %d has %#02x, which no write put there that may be there", path, lo+int64(j), p[j])
		}
	}
	return nil
}

// promised reports whether an fsync of the file has returned at a crash at record at.
func (h *history) promised(at int) bool {
	return slices.ContainsFunc(h.syncs, func(s noted) bool { return s.done <= at })
}

// compareFiles holds the files that have a history against it.
func (r *Recording) compareFiles(e *Epoch, have *tree) *Loss {
	paths := map[inodeID]string{}
	for p, id := range have.names {
		if have.nodes[id].kind == format.S_IFREG {
			paths[id] = p
		}
	}
	for id, h := range r.files {
		path, ok := paths[id]
		switch {
		case !ok && h.promised(e.end):
			return lossf("name", "inode %d is gone, which fsync made durable", id.ino)
		case ok:
			if l := h.compare(path, e.end, have.nodes[id], r.trees[0].nodes[id]); l != nil {
				return l
			}
		}
	}
	return nil
}
