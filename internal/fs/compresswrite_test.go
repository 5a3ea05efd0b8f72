package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// writeMethods are all kinds of compression.
var writeMethods = []string{"zlib", "lzo", "zstd:1"}

// setCompress is mount -o compress-force=s, or nothing for an empty s.
func setCompress(x *fstest.Fixture, s string) {
	x.Helper()
	if s == "" {
		return
	}
	m, err := compress.Parse(s)
	x.Must(err)
	x.Must(x.FS.SetCompress(x.T, m))
}

// words is n bytes that compress well, with some that do not.
func words(r *rand.Rand, n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		if r.IntN(5) == 0 {
			p := make([]byte, r.IntN(30000))
			fstest.Random(r, p)
			b.Write(p)
		}
		for range r.IntN(2000) {
			fmt.Fprintf(&b, "line %d\n", r.IntN(500))
		}
	}
	return b.Bytes()[:n]
}

// TestWriteCompressed writes files of all sizes compressed, changes them in every way, and reads
// them again after another mount. They take less space, and the image says what they need.
func TestWriteCompressed(t *testing.T) {
	need.LongRaced(t)
	for _, s := range writeMethods {
		t.Run(s, func(t *testing.T) {
			x := fstest.New(t)
			setCompress(x, s)
			r := rand.New(rand.NewPCG(7, uint64(len(s))))
			files := map[string][]byte{}
			text := bytes.Repeat([]byte("compressed\n"), 1<<20/11)
			all := uint64(0)
			for i, n := range []int{1, 100, 2048, 2049, 4095, 4096, 4097, 8192, 70000, 131072, 131073, 300001, len(text)} {
				name := fmt.Sprintf("/text%d", i)
				files[name] = text[:n]
				f := x.Create(name)
				x.WriteAt(f, text[:n], 0)
				x.Must(f.Close(x.T))
				all += uint64(n)
			}
			x.Must(x.FS.Sync(x.T))
			if used := x.FS.Statfs(x.T).DataUsed; used == 0 || used > all/4 {
				t.Errorf("%d bytes of text take %d", all, used)
			}
			for i := range 6 {
				m := model{x: x, path: fmt.Sprintf("/mixed%d", i), r: r, data: words(r, 1+r.IntN(600000))}
				f := x.Create(m.path)
				x.WriteAt(f, m.data, 0)
				x.Must(f.Close(x.T))
				m.change()
				files[m.path] = m.data
			}
			x.Must(x.FS.Snapshot(x.T, "/", "/snap", true))
			x.Reopen()
			for name, want := range files {
				for _, path := range []string{name, "/snap" + name} {
					if have := x.ReadFile(path); !bytes.Equal(have, want) {
						t.Errorf("%s: have %d bytes want %d of another content", path, len(have), len(want))
					}
				}
			}
			m, _ := compress.Parse(s)
			if have := x.FS.Super(x.T).IncompatFlags; have&m.Incompat() != m.Incompat() {
				t.Errorf("incompatible features %#x are without %#x", have, m.Incompat())
			}
			x.Must(x.FS.DeleteSubvolume(x.T, "/snap"))
			for name := range files {
				x.Must(x.FS.Unlink(x.T, name))
			}
			x.Reopen()
			if used := x.FS.Statfs(x.T).DataUsed; used != 0 {
				t.Errorf("%d bytes of data are in use", used)
			}
		})
	}
}

// TestNotCompressed: what is NOCOW, preallocated, marked NOCOMPRESS or noise is written as it is.
func TestNotCompressed(t *testing.T) {
	x := fstest.New(t)
	setCompress(x, "zstd")
	text := bytes.Repeat([]byte("0123456789abcde\n"), 65536/16)
	noise := make([]byte, 65536)
	fstest.Random(rand.New(rand.NewPCG(8, 8)), noise)
	for name, make := range map[string]func(f *fs.File) []byte{
		"/nocow":      func(f *fs.File) []byte { x.Must(f.SetFlags(x.T, format.InodeNoDataCow)); return text },
		"/nocompress": func(f *fs.File) []byte { x.Must(f.SetFlags(x.T, format.InodeNoCompress)); return text },
		"/prealloc":   func(f *fs.File) []byte { x.Must(f.Fallocate(x.T, 0, 0, 65536)); return text },
		"/noise":      func(f *fs.File) []byte { return noise },
	} {
		before := x.FS.Statfs(x.T).DataUsed
		f := x.Create(name)
		p := make(f)
		x.WriteAt(f, p, 0)
		x.Must(x.FS.Sync(x.T))
		if used := x.FS.Statfs(x.T).DataUsed - before; used != 65536 {
			t.Errorf("%s takes %d bytes want 65536", name, used)
		}
		x.FS.DropCaches(x.T)
		if !bytes.Equal(x.ReadFile(name), p) {
			t.Errorf("%s differs", name)
		}
		x.Must(f.Close(x.T))
	}
}

// TestCompressedFsync: after a power cut each fsync of compressed data is there, by the log.
func TestCompressedFsync(t *testing.T) {
	need.LongRaced(t)
	for _, s := range writeMethods {
		var mem *blockdev.Memory
		x := fstest.New(t, fstest.Logging(fstest.Wrap(func(d blockdev.Device) blockdev.Device { mem = d.(*blockdev.Memory); return d }))...)
		setCompress(x, s)
		x.Must(x.FS.Sync(x.T))
		r := rand.New(rand.NewPCG(11, 12))
		model := words(r, 500000)
		f := x.Create("/f")
		x.WriteAt(f, model, 0)
		x.Must(x.FS.Sync(x.T))
		logs := 0
		for i := range 30 {
			p := words(r, 1+r.IntN(200000))
			off := r.IntN(len(model))
			x.WriteAt(f, p, int64(off))
			model = append(model[:off], append(bytes.Clone(p), model[min(off+len(p), len(model)):]...)...)
			if i%4 == 1 { // what is finished is logged from the trees
				x.Must(x.FS.Flush(x.T, f))
			}
			if i%7 == 3 {
				model = model[:len(model)/2+1]
				x.Must(f.Truncate(x.T, int64(len(model))))
			}
			x.Must(f.Fsync(x.T))
			if fstest.SuperOn(t, x.T, mem).LogRoot != 0 {
				logs++
			}
			if have := fstest.Recovered(t, x.T, mem.Snapshot())["f"]; !bytes.Equal(have, model) {
				t.Fatalf("%s, step %d: have %d bytes want %d%s", s, i, len(have), len(model), fstest.DiffAt(have, model))
			}
		}
		if logs < 10 {
			t.Errorf("%s: only %d of the fsyncs wrote a log", s, logs)
		}
		x.Must(f.Close(x.T))
	}
}

// TestCompressedEIO: the device refuses compressed data. fsync says so, what was there is still
// there, and nothing stays reserved.
func TestCompressedEIO(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Faults(&dev))
	setCompress(x, "lzo")
	f := x.Create("/f")
	old := bytes.Repeat([]byte("old "), 100000)
	x.WriteAt(f, old, 0)
	x.Must(f.Fsync(x.T))
	x.WriteAt(f, bytes.Repeat([]byte("new "), 100000), 0)
	dev.Set(dm.Fault{Op: blockdev.OpWrite})
	if err := f.Fsync(x.T); !errors.Is(err, errno.EIO) {
		t.Errorf("fsync on a dead device: have %v want EIO", err)
	}
	dev.Set()
	x.Must(f.Close(x.T))
	x.FS.DropCaches(x.T)
	if have := x.ReadFile("/f"); !bytes.Equal(have, old) {
		t.Errorf("after the error: have %d bytes want %d%s", len(have), len(old), fstest.DiffAt(have, old))
	}
	x.Reopen()
}

// TestCompressedFull fills an image: a write either fails or is there.
func TestCompressedFull(t *testing.T) {
	need.Long(t)
	x := fstest.New(t, fstest.Size(128<<20))
	setCompress(x, "zstd")
	x.Must(x.FS.EnableQuota(x.T))
	r := rand.New(rand.NewPCG(13, 14))
	files := map[string][]byte{}
	full := false
	for i := 0; !full && i < 400; i++ {
		name, p := fmt.Sprintf("/f%d", i), words(r, 1<<20)
		f := x.Create(name)
		n, err := f.WriteAt(x.T, p, 0)
		full = errors.Is(err, errno.ENOSPC)
		if err != nil && !full {
			t.Fatal(err)
		}
		if err := f.Fsync(x.T); err != nil && !errors.Is(err, errno.ENOSPC) {
			t.Fatal(err)
		} else if err == nil {
			files[name] = p[:n]
		}
		x.Must(f.Close(x.T))
	}
	if !full {
		t.Error("it is not full")
	}
	fstest.WantWithin(x)
	x.Reopen()
	for name, want := range files {
		if have := x.ReadFile(name); !bytes.Equal(have, want) {
			t.Errorf("%s: have %d bytes want %d%s", name, len(have), len(want), fstest.DiffAt(have, want))
		}
	}
}
