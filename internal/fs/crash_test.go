package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/fs/fstest"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
)

// tree is the right content of a file system: the bytes of each file by path.
type tree map[string][]byte

func (m tree) clone() tree {
	c := tree{}
	for name, b := range m {
		c[name] = bytes.Clone(b)
	}
	return c
}

// readTree reads the files of the root directory.
func readTree(t *sched.Task, f *fs.FS) (tree, error) {
	list, err := f.ReadDir(t, "/")
	if err != nil {
		return nil, err
	}
	m := tree{}
	for _, d := range list {
		x, err := f.OpenFile(t, "/"+d.Name, fs.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		b := make([]byte, x.Size(t))
		if _, err := x.ReadAt(t, b, 0); err != nil && err != io.EOF {
			return nil, fmt.Errorf("%s: %w", d.Name, err)
		}
		m[d.Name] = b
		if err := x.Close(t); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// diff names the first difference. With inPlace set, writes are on their way to the device, and the
// bytes of NOCOW files, which no commit protects, may be old or new.
func diff(have, want tree, inPlace bool) string {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		b, ok := have[name]
		if !ok {
			return fmt.Sprintf("%s is missing", name)
		}
		if len(b) != len(want[name]) {
			return fmt.Sprintf("%s has %d bytes, want %d", name, len(b), len(want[name]))
		}
		if inPlace && isNocow(name) || bytes.Equal(b, want[name]) {
			continue
		}
		for i := range b {
			if b[i] != want[name][i] {
				return fmt.Sprintf("%s differs at %d, have %#x want %#x", name, i, b[i], want[name][i])
			}
		}
	}
	for name := range have {
		if want[name] == nil {
			return fmt.Sprintf("%s should not be there", name)
		}
	}
	return ""
}

// workload changes a file system and a model of it at random.
type workload struct {
	tb    testing.TB
	t     *sched.Task
	f     *fs.FS
	model tree
	rng   *rand.Rand
	next  int
}

func (w *workload) must(err error) {
	w.tb.Helper()
	if err != nil {
		w.tb.Fatal(err)
	}
}

func (w *workload) pick() string {
	names := slices.Sorted(maps.Keys(w.model))
	if len(names) == 0 {
		return ""
	}
	return names[w.rng.IntN(len(names))]
}

// isNocow says by its name that a file is overwritten in place.
func isNocow(name string) bool { return strings.HasPrefix(name, "nocow") }

func (w *workload) create() {
	name := fmt.Sprintf("f%d", w.next)
	if w.rng.IntN(3) == 0 {
		name = fmt.Sprintf("nocow%d", w.next)
	}
	w.next++
	x, err := w.f.Create(w.t, "/"+name, 0o644)
	w.must(err)
	if isNocow(name) {
		w.must(x.SetFlags(w.t, format.InodeNoDataCow))
	}
	w.model[name] = []byte{}
	w.must(x.Close(w.t))
	w.write(name)
}

func (w *workload) open(name string) *fs.File {
	x, err := w.f.OpenFile(w.t, "/"+name, fs.O_RDWR, 0)
	w.must(err)
	return x
}

func (w *workload) write(name string) {
	x := w.open(name)
	off := w.rng.IntN(64 << 10)
	b := make([]byte, 1+w.rng.IntN(32<<10))
	if w.rng.IntN(3) == 0 {
		off, b = 0, b[:1+w.rng.IntN(min(len(b), 1000))] // inline while the file is small
	}
	write := x.WriteAt
	if w.rng.IntN(3) == 0 { // past the page cache, in whole blocks
		off, b, write = off&^4095, make([]byte, (len(b)+4095)&^4095), x.WriteDirect
	}
	random(w.rng, b)
	n, err := write(w.t, b, int64(off))
	w.must(err)
	if n != len(b) {
		w.tb.Fatalf("wrote %d of %d", n, len(b))
	}
	m := w.model[name]
	if end := off + len(b); end > len(m) {
		m = append(m, make([]byte, end-len(m))...)
	}
	copy(m[off:], b)
	w.model[name] = m
	w.must(x.Close(w.t))
}

func (w *workload) step() {
	name := w.pick()
	if name == "" || len(w.model) < 20 && w.rng.IntN(3) == 0 {
		w.create()
		return
	}
	switch w.rng.IntN(8) {
	case 0:
		w.must(w.f.Unlink(w.t, "/"+name))
		delete(w.model, name)
	case 1:
		x := w.open(name)
		size := w.rng.IntN(96 << 10)
		w.must(x.Truncate(w.t, int64(size)))
		m := w.model[name]
		if size <= len(m) {
			m = m[:size]
		} else {
			m = append(m, make([]byte, size-len(m))...)
		}
		w.model[name] = m
		w.must(x.Close(w.t))
	case 2:
		to := w.pick()
		if to != name && isNocow(to) == isNocow(name) {
			w.must(w.f.Rename(w.t, "/"+name, "/"+to))
			w.model[to] = w.model[name]
			delete(w.model, name)
		}
	case 3:
		x := w.open(name)
		from, n := w.rng.IntN(64<<10), 1+w.rng.IntN(32<<10)
		w.must(x.Fallocate(w.t, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, int64(from), int64(n)))
		m := w.model[name]
		if from < len(m) {
			clear(m[from:min(len(m), from+n)])
		}
		w.must(x.Close(w.t))
	case 4:
		x := w.open(name)
		from, n := w.rng.IntN(64<<10), 1+w.rng.IntN(64<<10)
		w.must(x.Fallocate(w.t, 0, int64(from), int64(n)))
		if m := w.model[name]; from+n > len(m) {
			w.model[name] = append(m, make([]byte, from+n-len(m))...)
		}
		w.must(x.Close(w.t))
	default:
		w.write(name)
	}
}

// A crash at any flush, with the writes since the flush before it lost, all there, torn, or any
// part of them there, leaves an image that checks clean and holds exactly what the last commit, or
// the one under way, made durable.
func TestCrash(t *testing.T) {
	const commits = 12
	base := blockdev.NewMemory(128 << 20)
	var log *dm.LogWrites
	x := fstest.New(t, fstest.Size(base.Size()), fstest.Wrap(func(dev blockdev.Device) blockdev.Device {
		log = dm.NewLogWrites(dev, dev.(*blockdev.Memory).Snapshot())
		return log
	}))
	w := &workload{tb: t, t: x.T, f: x.FS, model: tree{}, rng: rand.New(rand.NewPCG(7, 8))}
	snaps := []tree{{}}
	log.Mark(x.T, "0")
	for i := 1; i <= commits; i++ {
		for range 25 {
			w.step()
		}
		if err := x.FS.Sync(x.T); err != nil {
			t.Fatal(err)
		}
		snaps = append(snaps, w.model.clone())
		log.Mark(x.T, strconv.Itoa(i))
	}
	images := 0
	// A superblock is 4 KiB and btrfs trusts the device to write it whole, as the kernel does
	// (labs/reference 10.1).
	opt := dm.ImageOptions{SectorBytes: format.SectorSize, Subsets: 3, Seed: 9}
	err := log.Images(x.T, opt, func(t *sched.Task, m dm.Image) error {
		images++
		return checkCrash(t, m, snaps)
	})
	if err != nil {
		t.Fatal(err)
	}
	if images < 4*commits {
		t.Errorf("only %d crash images of %d commits", images, commits)
	}
	t.Logf("%d crash images checked", images)
}

func checkCrash(t *sched.Task, m dm.Image, snaps []tree) error {
	r, err := check.Check(t, m.Dev, check.Options{})
	if err != nil {
		return fmt.Errorf("%s: check: %w", m.Name, err)
	}
	if !r.Clean {
		return fmt.Errorf("%s after commit %s: %d findings, first %v", m.Name, m.Mark, len(r.Findings), r.Findings[0])
	}
	f, err := fs.Open(t, []blockdev.Device{m.Dev}, fs.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	have, err := readTree(t, f)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	if err := f.Close(t); err != nil {
		return err
	}
	k, _ := strconv.Atoi(m.Mark)
	d := diff(have, snaps[k], m.Pending > 0)
	if d != "" && k+1 < len(snaps) {
		if diff(have, snaps[k+1], m.Pending > 0) == "" {
			return nil
		}
	}
	if d != "" {
		return fmt.Errorf("%s: holds neither commit %d (%s) nor the one after", m.Name, k, d)
	}
	return nil
}

// The device fails in the middle of a commit, at every write and flush of it in turn: the commit
// reports EIO, the file system turns read-only, and the image is the last commit, clean.
func TestCommitEIO(t *testing.T) {
	for _, op := range []blockdev.Op{blockdev.OpWrite, blockdev.OpFlush} {
		for nth := int64(1); ; nth++ {
			if !commitWithFault(t, op, nth) {
				if nth == 1 {
					t.Errorf("a commit made no %v", op)
				}
				break
			}
			if nth > 200 {
				t.Fatalf("commit makes more than %d %vs", nth, op)
			}
		}
	}
}

// commitWithFault fails the nth bio of a commit, and reports whether the commit had that many.
func commitWithFault(t *testing.T, op blockdev.Op, nth int64) bool {
	var flakey *dm.Flakey
	x := fstest.New(t, fstest.Size(64<<20), fstest.NoCheck(), fstest.Faults(&flakey))
	w := &workload{tb: t, t: x.T, f: x.FS, model: tree{}, rng: rand.New(rand.NewPCG(1, uint64(nth)))}
	for range 10 {
		w.step()
	}
	if err := x.FS.Sync(x.T); err != nil {
		t.Fatal(err)
	}
	committed := w.model.clone()
	for range 10 {
		w.step()
	}
	flakey.Set(dm.Fault{Op: op, Nth: flakey.Count(op) + nth, On: true})
	err := x.FS.Sync(x.T)
	if flakey.Failed() == 0 {
		if err != nil {
			t.Fatalf("sync without a fault: %v", err)
		}
		return false
	}
	if !errors.Is(err, errno.EIO) {
		t.Errorf("%v %d fails, sync says %v, want EIO", op, nth, err)
	}
	if _, err := x.FS.Create(x.T, "/late", 0o644); !errors.Is(err, errno.EROFS) {
		// A data write that fails leaves the trees as they were: only a failed commit aborts.
		if err != nil {
			t.Errorf("create after a failed commit says %v, want EROFS", err)
		}
	}
	flakey.Set()
	x.Close()
	r, err := check.Check(x.T, x.Dev, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Clean {
		t.Fatalf("%v %d fails: %d findings, first %v", op, nth, len(r.Findings), r.Findings[0])
	}
	f, err := fs.Open(x.T, []blockdev.Device{x.Dev}, fs.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	have, err := readTree(x.T, f)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close(x.T)
	// A superblock that failed to flush may have reached the device whole.
	if d := diff(have, committed, true); d != "" && diff(have, w.model, true) != "" {
		t.Errorf("%v %d fails: image holds neither the last commit (%s) nor the failed one", op, nth, d)
	}
	return true
}
