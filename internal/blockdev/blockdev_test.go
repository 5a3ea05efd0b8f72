package blockdev

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

func pattern(seed uint64, n int) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(p)
	return p
}

// devices runs f on every kind of device that needs no privileges.
func devices(t *testing.T, size int64, f func(t *testing.T, d Device)) {
	t.Run("memory", func(t *testing.T) { f(t, NewMemory(size)) })
	t.Run("file", func(t *testing.T) {
		d, err := Create(filepath.Join(t.TempDir(), "img"), size)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		f(t, d)
	})
	for name, flags := range map[string]Flags{"direct": Direct, "ring": Ring, "ring-direct": Ring | Direct} {
		t.Run(name, func(t *testing.T) {
			d := reopened(t, size, flags)
			defer d.Close()
			f(t, d)
		})
	}
}

// reopened is a new image file, opened with flags.
func reopened(t testing.TB, size int64, flags Flags) Device {
	t.Helper()
	path := filepath.Join(t.TempDir(), "img")
	d, err := Create(path, size)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	d, err = Open(path, flags)
	if errors.Is(err, errno.EINVAL) || errors.Is(err, errno.EOPNOTSUPP) || errors.Is(err, errno.EPERM) {
		t.Skipf("no O_DIRECT or no io_uring here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Random transfers of several vectors must agree with a flat array, across chunk and leaf borders.
func TestTransfersAgreeWithModel(t *testing.T) {
	const size = 40 << 20
	devices(t, size, func(t *testing.T, d Device) {
		k := sched.NewTask("test")
		model := make([]byte, size)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 200 {
			off := rng.Int64N(size/4096-300) * 4096
			if i%4 == 0 {
				off = int64(rng.IntN(600)+1)*memChunkSize - 4096 // straddle a chunk
			}
			var vecs [][]byte
			total := 0
			for range rng.IntN(5) + 1 {
				n := (rng.IntN(20) + 1) * 4096
				vecs = append(vecs, pattern(uint64(i*8+len(vecs)), n))
				total += n
			}
			if rng.IntN(2) == 0 {
				if err := Do(k, d, &Bio{Op: OpWrite, Off: off, Vecs: vecs}); err != nil {
					t.Fatal(err)
				}
				copy(model[off:], bytes.Join(vecs, nil))
				continue
			}
			if err := Do(k, d, &Bio{Op: OpRead, Off: off, Vecs: vecs}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(bytes.Join(vecs, nil), model[off:off+int64(total)]) {
				t.Fatalf("step %d: read of %d at %d differs from the model", i, total, off)
			}
		}
		if err := Flush(k, d); err != nil {
			t.Fatal(err)
		}
	})
}

// A bio of more vectors than one system call takes, and of more bytes than a bounce buffer has: all
// of it is moved, and nothing beside it. Memory that is not aligned is bounced under O_DIRECT.
func TestManyVectors(t *testing.T) {
	const n, size, off = 2600, 16 << 20, 64 << 10
	aligned := func(skew int) []byte {
		p := make([]byte, n*4096+8192)
		at := -int(uintptr(unsafe.Pointer(&p[0]))) & 4095
		return p[at+skew:][: n*4096 : n*4096]
	}
	cut := func(p []byte, step int) (vecs [][]byte) {
		for ; len(p) > 0; p = p[min(step, len(p)):] {
			vecs = append(vecs, p[:min(step, len(p)):min(step, len(p))])
		}
		return vecs
	}
	devices(t, size, func(t *testing.T, d Device) {
		k := sched.NewTask("test")
		for _, skew := range []int{0, 8} {
			want := append(append(pattern(1, off), make([]byte, n*4096)...), pattern(2, size-off-n*4096)...)
			if err := Write(k, d, want, 0); err != nil {
				t.Fatal(err)
			}
			p := aligned(skew)
			copy(p, pattern(3, len(p)))
			copy(want[off:], p)
			if err := Do(k, d, &Bio{Op: OpWrite, Off: off, Vecs: cut(p, 4096)}); err != nil {
				t.Fatal(err)
			}
			have := make([]byte, size)
			if err := Read(k, d, have, 0); err != nil {
				t.Fatal(err)
			}
			for i := range have {
				if have[i] != want[i] {
					t.Fatalf("memory off by %d: byte %d after a write of %d at %d: have %d want %d", skew, i, len(p), off, have[i], want[i])
				}
			}
			clear(p)
			if err := Do(k, d, &Bio{Op: OpRead, Off: off, Vecs: cut(p, 4096)}); err != nil || !bytes.Equal(p, want[off:off+len(p)]) {
				t.Fatalf("memory off by %d: the read differs from what was written: %v", skew, err)
			}
		}
	})
}

// The host's error of a flush is the flush's: a closed descriptor stands for a disk that has gone.
func TestFileFlushFails(t *testing.T) {
	k := sched.NewTask("test")
	d, err := Create(filepath.Join(t.TempDir(), "img"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := Flush(k, d); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if err := Flush(k, d); err == nil {
		t.Error("a flush of a device that is gone: no error")
	}
}

func TestOutOfRangeIsEIO(t *testing.T) {
	devices(t, 1<<20, func(t *testing.T, d Device) {
		k := sched.NewTask("test")
		for _, off := range []int64{-4096, 1 << 20, 1<<20 - 4096 + 512, 1<<63 - 4096} {
			if err := Write(k, d, make([]byte, 4096), off); !errors.Is(err, errno.EIO) {
				t.Errorf("write at %d: %v, want EIO", off, err)
			}
		}
		if err := Write(k, d, make([]byte, 4096), 1<<20-4096); err != nil {
			t.Errorf("write of the last block: %v", err)
		}
	})
}

// A file that is cut short under us must be an error, not zeros.
func TestFileCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	d, err := Create(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, d := range []Device{d, reopened(t, 1<<20, Ring), reopened(t, 1<<20, Ring|Direct)} {
		if err := os.Truncate(d.Name(), 8192); err != nil {
			t.Fatal(err)
		}
		if err := Read(sched.NewTask("test"), d, make([]byte, 8192), 4096); !errors.Is(err, errno.EIO) {
			t.Fatalf("read across the new end: %v, want EIO", err)
		}
		d.Close()
	}
}

func TestFileLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	w, err := Create(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Flags{0, ReadOnly} {
		if _, err := Open(path, f); !errors.Is(err, ErrInUse) {
			t.Errorf("second open with flags %d: %v, want ErrInUse", f, err)
		}
	}
	if _, err := Create(path, 4096); !errors.Is(err, ErrInUse) {
		t.Errorf("create over an open image: %v, want ErrInUse", err)
	}
	if st, _ := os.Stat(path); st.Size() != 1<<20 {
		t.Errorf("the refused create left %d bytes, want %d", st.Size(), 1<<20)
	}
	w.Close()
	a, err := Open(path, ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := Open(path, ReadOnly)
	if err != nil {
		t.Fatalf("two readers: %v", err)
	}
	defer b.Close()
	k := sched.NewTask("test")
	if err := Write(k, a, make([]byte, 4096), 0); !errors.Is(err, errno.EROFS) {
		t.Errorf("write to a read-only device: %v, want EROFS", err)
	}
	if err := Flush(k, a); err != nil {
		t.Errorf("flush of a read-only device: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none"), 0); !errors.Is(err, errno.ENOENT) {
		t.Errorf("open of nothing: %v, want ENOENT", err)
	}
	if _, err := Open(dir, ReadOnly); err == nil {
		t.Error("open of a directory: no error")
	}
	if _, err := Create(filepath.Join(dir, "x"), 0); err == nil {
		t.Error("create of 0 bytes: no error")
	}
	if _, err := Create("/dev/null", 4096); err == nil {
		t.Error("create over a device: no error")
	}
	if _, err := os.Lstat(filepath.Join(dir, "x")); err == nil {
		t.Error("a refused create left a file")
	}
}

// A snapshot and its origin go separate ways, also through a second snapshot.
// A snapshot has all or nothing of a write of another task.
func TestMemorySnapshotWhole(t *testing.T) {
	m := NewMemory(1 << 20)
	done, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		k, p := sched.NewTask("writer"), make([]byte, 1<<20)
		for v := byte(1); ; v++ {
			select {
			case <-stop:
				return
			default:
			}
			for i := range p {
				p[i] = v
			}
			if err := Write(k, m, p, 0); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	k, p, seen := sched.NewTask("test"), make([]byte, 1<<20), make(map[byte]bool)
	for len(seen) < 20 {
		if err := Read(k, m.Snapshot(), p, 0); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(p, p[:1]); n != len(p) {
			t.Fatalf("%d of %d bytes are of one write", n, len(p))
		}
		seen[p[0]] = true
	}
	close(stop)
	<-done
}

func TestMemorySnapshot(t *testing.T) {
	k := sched.NewTask("test")
	m := NewMemory(64 << 20)
	blk := func(d Device, off int64) byte {
		p := make([]byte, 1)
		if err := Read(k, d, p, off); err != nil {
			t.Fatal(err)
		}
		return p[0]
	}
	put := func(d Device, off int64, v byte) {
		if err := Write(k, d, []byte{v}, off); err != nil {
			t.Fatal(err)
		}
	}
	put(m, 100, 1)
	a := m.Snapshot()
	put(m, 100, 2)
	put(m, 50<<20, 9)
	b := m.Snapshot()
	put(a, 101, 7)
	put(b, 100, 3)
	got := []byte{blk(m, 100), blk(m, 101), blk(m, 50<<20), blk(a, 100), blk(a, 101), blk(a, 50<<20), blk(b, 100), blk(b, 101), blk(b, 50<<20)}
	want := []byte{2, 0, 9, 1, 7, 0, 3, 0, 9}
	if !bytes.Equal(got, want) {
		t.Fatalf("have %v want %v", got, want)
	}
}

// Writers that make the same chunk at the same time must not lose each other's bytes.
func TestMemoryConcurrentFirstWrites(t *testing.T) {
	k := sched.NewTask("test")
	m := NewMemory(1 << 20)
	base := m.Snapshot()
	var tasks []*sched.Task
	for i := range 4 {
		tasks = append(tasks, k.Go("writer", func(k *sched.Task) {
			for off := int64(i) * 4096; off < 1<<20; off += 4 * 4096 {
				if err := Write(k, m, bytes.Repeat([]byte{byte(i + 1)}, 4096), off); err != nil {
					t.Error(err)
				}
			}
		}))
	}
	for _, c := range tasks {
		k.Join(c)
	}
	p := make([]byte, 1<<20)
	if err := Read(k, m, p, 0); err != nil {
		t.Fatal(err)
	}
	for i, v := range p {
		if want := byte(i/4096%4 + 1); v != want {
			t.Fatalf("byte %d is %d, want %d", i, v, want)
		}
	}
	if n := base.Allocated(); n != 0 {
		t.Fatalf("the snapshot holds %d bytes, want 0", n)
	}
}

func BenchmarkMemoryWrite4K(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	k := sched.NewTask("bench")
	m := NewMemory(64 << 20)
	p := make([]byte, 4096)
	bio := &Bio{Op: OpWrite, Vecs: [][]byte{p}, EndIO: func(*sched.Task, *Bio) {}}
	b.SetBytes(4096)
	for i := 0; b.Loop(); i++ {
		bio.Off = int64(i&16383) * 4096
		m.Submit(k, bio)
	}
}

// Bytes that nobody reads again are not kept once all that was written of their chunk is forgotten;
// what lies beside them, a snapshot, and what is written meanwhile are as they were.
func TestMemoryForget(t *testing.T) {
	k := sched.NewTask("test")
	m := NewMemory(1 << 20)
	put := func(off int64, p []byte) {
		t.Helper()
		if err := Write(k, m, p, off); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(d Device, off int64, want []byte) {
		t.Helper()
		have := make([]byte, len(want))
		if err := Read(k, d, have, off); err != nil || !bytes.Equal(have, want) {
			t.Errorf("other bytes at %d (%v)", off, err)
		}
	}
	small, node := pattern(1, 4096), pattern(2, 16384)
	put(60<<10, small)
	put(64<<10, small)
	put(80<<10, node)
	m.Forget(80<<10, 16384)
	holds(m, 64<<10, small)
	m.Forget(64<<10, 4096)
	holds(m, 60<<10, small)
	if n := m.Allocated(); n != 64<<10 {
		t.Errorf("%d bytes are kept, want one chunk", n)
	}
	put(80<<10, node)
	holds(m, 80<<10, node)
	s := m.Snapshot()
	m.Forget(80<<10, 16384)
	holds(s, 80<<10, node)
	put(64<<10, small)
	m.Forget(64<<10, 4096) // of the copy: the rest of it may be read
	holds(m, 80<<10, node)

	// What lies across chunks goes from each of them, and from no other.
	m = NewMemory(1 << 20)
	put(0, small)
	put(120<<10, node)
	put(136<<10, small)
	m.Forget(120<<10, 16384)
	holds(m, 0, small)
	holds(m, 136<<10, small)
	if n := m.Allocated(); n != 128<<10 {
		t.Errorf("%d bytes are kept after a node across two chunks was forgotten, want two chunks", n)
	}
	m.Forget(136<<10, 4096)
	if n := m.Allocated(); n != 64<<10 {
		t.Errorf("%d bytes are kept in the end, want one chunk", n)
	}

	m = NewMemory(64 << 10)
	done := make(chan error)
	for w := range int64(2) {
		go func() {
			k, p, have := sched.NewTask("writer"), pattern(uint64(w), 4096), make([]byte, 4096)
			var err error
			for i := 0; i < 5000 && err == nil; i++ {
				if err = errors.Join(Write(k, m, p, w<<12), Read(k, m, have, w<<12)); err == nil && !bytes.Equal(have, p) {
					err = errors.New("a write beside bytes that are forgotten is lost")
				}
				m.Forget(w<<12, 4096)
			}
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
