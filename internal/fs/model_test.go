package fs_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// modelFile is an open file with what it should hold.
type modelFile struct {
	*fs.File
	name string
	want []byte
}

func (m *modelFile) resize(n int) {
	for len(m.want) < n {
		m.want = append(m.want, make([]byte, n-len(m.want))...)
	}
	m.want = m.want[:n]
}

var modelSeed = flag.Uint64("model.seed", 42, "seed of TestModel")

const modelMax = 1 << 20 // bytes of a model file

// somewhere picks an offset that is often at an edge: of a block, of the file.
func somewhere(r *rand.Rand, size int) int {
	switch r.IntN(4) {
	case 0:
		return r.IntN(modelMax)
	case 1:
		return r.IntN(modelMax/4096) * 4096
	case 2:
		return max(size+r.IntN(3)-1, 0)
	}
	return r.IntN(max(size, 1))
}

func someLength(r *rand.Rand) int {
	switch r.IntN(4) {
	case 0:
		return 1 + r.IntN(100)
	case 1:
		return 4096 * (1 + r.IntN(8))
	case 2:
		return 1 + r.IntN(200000)
	}
	return 1 + r.IntN(10000)
}

// step does one random operation to the file and its model.
func (m *modelFile) step(x *fstest.Fixture, r *rand.Rand) {
	size := len(m.want)
	off, n := somewhere(r, size), someLength(r)
	n = min(n, modelMax-min(off, modelMax-1))
	var err error
	var what string
	switch r.IntN(16) {
	default:
		what = fmt.Sprintf("write %d+%d", off, n)
		p := make([]byte, n)
		fstest.Random(r, p)
		var got int
		if got, err = m.WriteAt(x.T, p, int64(off)); got != n {
			x.Fatalf("%s: wrote %d: %v", what, got, err)
		}
		m.resize(max(size, off+n))
		copy(m.want[off:], p)
	case 8, 9:
		what = fmt.Sprintf("read %d+%d", off, n)
		p := make([]byte, n)
		got, e := m.ReadAt(x.T, p, int64(off))
		var want []byte
		if off < size {
			want = m.want[off:min(off+n, size)]
		}
		if e != nil && e != io.EOF || !bytes.Equal(p[:got], want) {
			x.Fatalf("%s of %s, size %d: got %d bytes, %v; want %d%s", what, m.name, size, got, e, len(want), fstest.DiffAt(p[:got], want))
		}
	case 10, 11:
		what = fmt.Sprintf("truncate %d", off)
		err = m.Truncate(x.T, int64(off))
		m.resize(off)
	case 12:
		keep := r.IntN(2)
		what = fmt.Sprintf("fallocate %d+%d keep=%d", off, n, keep)
		err = m.Fallocate(x.T, uint32(keep)*fs.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
		if keep == 0 {
			m.resize(max(size, off+n))
		}
	case 13:
		what = fmt.Sprintf("punch %d+%d", off, n)
		err = m.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
		if off < size {
			clear(m.want[off:min(off+n, size)])
		}
	case 14:
		what = fmt.Sprintf("zero %d+%d", off, n)
		err = m.Fallocate(x.T, fs.FALLOC_FL_ZERO_RANGE, int64(off), int64(n))
		m.resize(max(size, off+n))
		clear(m.want[off : off+n])
	case 15:
		switch r.IntN(3) {
		case 0:
			what = "fsync"
			err = m.Fsync(x.T)
		case 1:
			what = "sync"
			err = x.FS.Sync(x.T)
		default:
			what = "drop caches"
			x.FS.DropCaches(x.T)
		}
	}
	x.Logf("%s of %s, size %d", what, m.name, size)
	if err != nil {
		x.Fatal(err)
	}
}

func (m *modelFile) verify(x *fstest.Fixture) {
	if have := x.ReadFile(m.name); !bytes.Equal(have, m.want) {
		x.Fatalf("%s has %d bytes, want %d%s", m.name, len(have), len(m.want), fstest.DiffAt(have, m.want))
	}
	m.verifyHoles(x)
}

// verifyHoles: outside the runs that SeekData finds every byte is zero.
func (m *modelFile) verifyHoles(x *fstest.Fixture) {
	f := x.Open(m.name)
	defer f.Close(x.T)
	for off := 0; ; {
		start, end, err := f.SeekData(x.T, int64(off))
		if err == io.EOF {
			start, end = int64(len(m.want)), int64(len(m.want))
		} else if err != nil || start < int64(off) || end <= start || end > int64(len(m.want)) {
			x.Fatalf("data of %s at %d, size %d: [%d, %d), %v", m.name, off, len(m.want), start, end, err)
		}
		if hole := m.want[off:start]; !bytes.Equal(hole, make([]byte, len(hole))) {
			i := bytes.IndexFunc(hole, func(r rune) bool { return r != 0 })
			x.Fatalf("%s has a hole [%d, %d), byte %d is %#x", m.name, off, start, off+i, m.want[off+i])
		}
		if err == io.EOF {
			return
		}
		off = int(end)
	}
}

// TestModel does the same random operations under every policy, to COW and NOCOW files, and holds
// them against byte arrays: before and after the cache is dropped, and after the image was opened
// again.
func TestModel(t *testing.T) {
	need.LongRaced(t)
	for _, name := range policy.Names() {
		t.Run(name, func(t *testing.T) { randomModel(t, fstest.Policy(name)) })
	}
}

// TestModelVariants is TestModel on images of every kind.
func TestModelVariants(t *testing.T) {
	need.LongRaced(t)
	for _, v := range fstest.Variants() {
		for _, name := range []string{"locked", "modern"} {
			t.Run(v.Name+"/"+name, func(t *testing.T) { randomModel(t, v.Option, fstest.Policy(name)) })
		}
	}
}

func randomModel(t *testing.T, opts ...fstest.Option) {
	steps := 400
	if testing.Short() {
		steps = 100
	}
	seed := *modelSeed
	t.Logf("-model.seed=%d", seed)
	x := fstest.New(t, opts...)
	r := rand.New(rand.NewPCG(seed, 0))
	var files []*modelFile
	for i := range 3 {
		m := &modelFile{name: fmt.Sprintf("/f%d", i)}
		m.File = x.Create(m.name)
		if i > 0 {
			x.Must(m.SetFlags(x.T, format.InodeNoDataCow))
		}
		files = append(files, m)
	}
	for i := range steps {
		m := files[r.IntN(len(files))]
		m.step(x, r)
		if i%20 == 19 {
			for _, m := range files {
				m.verify(x)
			}
		}
		if i == steps/2 {
			for _, m := range files {
				x.Must(m.Close(x.T))
			}
			x.Reopen()
			for _, m := range files {
				m.verify(x)
				m.File = x.Open(m.name)
			}
		}
	}
	for _, m := range files {
		x.Must(m.Close(x.T))
	}
	x.Reopen()
	for _, m := range files {
		m.verify(x)
	}
}

// TestModelSmallMemory is TestModel with so little memory that pages, inodes and tree blocks are
// evicted all the time.
func TestModelSmallMemory(t *testing.T) {
	need.LongRaced(t)
	steps := 400
	if testing.Short() {
		steps = 150
	}
	for _, name := range policy.Names() {
		t.Run(name, func(t *testing.T) {
			t.Logf("-model.seed=%d", *modelSeed)
			x := fstest.New(t, fstest.Policy(name), fstest.FSOptions(func(o *fs.Options) {
				o.Memory, o.CacheLimit, o.CacheInodes, o.CacheBlocks = 1<<20, 128<<10, 4, 2
			}))
			r := rand.New(rand.NewPCG(*modelSeed, 1))
			var files []*modelFile
			for i := range 8 {
				files = append(files, &modelFile{name: fmt.Sprintf("/f%d", i)})
				f := x.Create(files[i].name)
				if i%2 > 0 {
					x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
				}
				x.Must(f.Close(x.T))
			}
			most := uint64(0)
			for range steps {
				m := files[r.IntN(len(files))]
				m.File = x.Open(m.name)
				m.step(x, r)
				x.Must(m.Close(x.T))
				most = max(most, x.FS.Statfs(x.T).Files)
				m = files[r.IntN(len(files))]
				m.verify(x)
			}
			if most > 6 {
				t.Errorf("%d inodes in memory, want at most 6", most)
			}
		})
	}
}

// TestChattr: NODATACOW goes to empty files and to directories, and from a directory to what is
// made in it.
func TestChattr(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
	x.Must(x.FS.SetFlags(x.T, "/d", format.InodeNoDataCow))
	x.Must(x.FS.Mkdir(x.T, "/d/e", 0o755))
	f := x.Create("/d/e/f")
	if want := uint64(format.InodeNoDataCow | format.InodeNoDataSum); f.Flags() != want {
		t.Errorf("flags of a new file in a NOCOW directory: have %#x want %#x", f.Flags(), want)
	}
	x.WriteAt(f, make([]byte, 10000), 0)
	if err := f.SetFlags(x.T, 0); !errors.Is(err, errno.EINVAL) {
		t.Errorf("clear NOCOW of a file with data: have %v want EINVAL", err)
	}
	x.Must(f.Close(x.T))
	g := x.Create("/g")
	if g.Flags() != 0 {
		t.Errorf("flags of a new file: have %#x want 0", g.Flags())
	}
	x.Must(g.SetFlags(x.T, format.InodeNoDataCow))
	x.Must(g.Close(x.T))
	x.Reopen()
	for path, want := range map[string]uint64{"/d": format.InodeNoDataCow, "/d/e": format.InodeNoDataCow,
		"/d/e/f": format.InodeNoDataCow | format.InodeNoDataSum, "/g": format.InodeNoDataCow | format.InodeNoDataSum} {
		a, err := x.FS.Stat(x.T, path)
		x.Must(err)
		if a.Flags != want {
			t.Errorf("flags of %s after reopen: have %#x want %#x", path, a.Flags, want)
		}
	}
}
