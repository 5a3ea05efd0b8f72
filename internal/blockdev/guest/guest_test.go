package guest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/guest"
	"btrlab/internal/errno"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

// tree is a btrfs of two files as qemu-img convert -c -o cluster_size=4096 makes it.
func tree(t *testing.T) []byte {
	t.Helper()
	f, err := os.Open("testdata/tree.qcow2.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// memory is a device with the bytes of b.
func memory(t *testing.T, k *sched.Task, b []byte) blockdev.Device {
	t.Helper()
	d := blockdev.NewMemory(int64(len(b)))
	if err := blockdev.Write(k, d, b, 0); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTree(t *testing.T) {
	k := sched.NewTask("t")
	d, err := guest.Open(k, memory(t, k, tree(t)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := check.Check(k, d, check.Options{})
	if err != nil || len(r.Findings) > 0 {
		t.Errorf("check: %v %v", r.Findings, err)
	}
	if d.Size() != 36175872 {
		t.Errorf("have %d bytes, want 36175872", d.Size())
	}
	if err := blockdev.Write(k, d, make([]byte, 4096), 0); !errors.Is(err, errno.EROFS) {
		t.Errorf("write: %v, want EROFS", err)
	}
	if err := blockdev.Read(k, d, make([]byte, 4096), d.Size()-4095); err == nil {
		t.Error("a read beyond the end succeeds")
	}
	if err := blockdev.Flush(k, d); err != nil {
		t.Error(err)
	}
	// many tasks at once see what one sees
	want := make([]byte, d.Size())
	if err := blockdev.Read(k, d, want, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range uint64(4) {
		wg.Go(func() {
			k, r := sched.NewTask("reader"), rand.New(rand.NewPCG(i, 1))
			for range 400 {
				off := r.Int64N(d.Size())
				p := make([]byte, 1+r.Int64N(min(20000, d.Size()-off)))
				cut := r.IntN(len(p) + 1)
				err := blockdev.Do(k, d, &blockdev.Bio{Op: blockdev.OpRead, Off: off, Vecs: [][]byte{p[:cut], p[cut:]}})
				if err != nil || !bytes.Equal(p, want[off:off+int64(len(p))]) {
					t.Errorf("%d bytes at %d: %v, or other bytes", len(p), off, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A header that asks for other files or for memory is refused with one line; any other damage is an
// error, or other bytes.
func TestRefuses(t *testing.T) {
	good := tree(t)
	be := binary.BigEndian
	for _, c := range []struct {
		name, want string
		damage     func(b []byte) []byte
	}{
		{"backing file", "lies on another file", func(b []byte) []byte { be.PutUint64(b[8:], 512); return b }},
		{"data file", "has its data in another file", func(b []byte) []byte { b[79] |= 4; return b }},
		{"corrupt", "marked corrupt", func(b []byte) []byte { b[79] |= 2; return b }},
		{"encrypted", "cannot be read", func(b []byte) []byte { b[35] = 2; return b }},
		{"unknown feature", "cannot be read", func(b []byte) []byte { b[72] = 0x80; return b }},
		{"clusters of 4 GiB", "clusters of 2^32", func(b []byte) []byte { be.PutUint32(b[20:], 32); return b }},
		{"clusters of a byte", "clusters of 2^0", func(b []byte) []byte { be.PutUint32(b[20:], 0); return b }},
		{"a disk of 2^63", "want less than 2^63", func(b []byte) []byte { b[24] = 0x80; return b }},
		{"an L1 table of 32 GiB", "L1 table", func(b []byte) []byte { be.PutUint32(b[36:], 1<<32-1); return b }},
		{"an L1 table outside", "L1 table", func(b []byte) []byte { be.PutUint64(b[40:], 1<<63); return b }},
		{"cut in the header", "header of 104", func(b []byte) []byte { return b[:80] }},
	} {
		k := sched.NewTask("t")
		if _, err := guest.Open(k, memory(t, k, c.damage(bytes.Clone(good)))); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: have %v, want %s in a line", c.name, err, c.want)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		b := bytes.Clone(good)
		for range 1 + r.IntN(8) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		if i%3 == 0 {
			b = b[:200+r.IntN(len(b)-200)]
		}
		k := sched.NewTask("t")
		d, err := guest.Open(k, memory(t, k, b))
		if err != nil {
			continue
		}
		p := make([]byte, 64<<10)
		for off := int64(0); off+int64(len(p)) <= min(d.Size(), 1<<30); off += 1 << 20 {
			if err := blockdev.Read(k, d, p, off); err != nil && !errors.Is(err, errno.EIO) {
				t.Errorf("damage %d: %v, want EIO", i, err)
			}
		}
	}
}

// qemu-img is the judge: what it makes of random bytes with holes is read as it was.
func TestAgainstQemuImg(t *testing.T) {
	need.All(t, "qemu-img")
	dir := t.TempDir()
	raw := filepath.Join(dir, "raw")
	want := make([]byte, 9<<20+512)
	r := rand.New(rand.NewPCG(7, 7))
	for off := 0; off < len(want); {
		n := min(len(want)-off, 1+r.IntN(300<<10))
		if r.IntN(3) > 0 {
			for i := range want[off : off+n] {
				want[off+i] = byte(r.Uint32N(4))
			}
		}
		off += n
	}
	if err := os.WriteFile(raw, want, 0o644); err != nil {
		t.Fatal(err)
	}
	for i, args := range [][]string{
		{}, {"-c"}, {"-o", "compat=0.10"}, {"-o", "cluster_size=512"}, {"-o", "cluster_size=2M"}, {"-c", "-o", "cluster_size=2M"},
		{"-c", "-o", "compression_type=zstd"}, {"-o", "extended_l2=on"}, {"-o", "lazy_refcounts=on"}, {"-o", "preallocation=falloc"},
	} {
		file := filepath.Join(dir, fmt.Sprint(i))
		args = append(append([]string{"convert", "-O", "qcow2"}, args...), raw, file)
		if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
			t.Fatalf("qemu-img %v: %v\n%s", args, err, out)
		}
		k := sched.NewTask("t")
		f, err := blockdev.Open(file, blockdev.ReadOnly)
		if err != nil {
			t.Fatal(err)
		}
		d, err := guest.Open(k, f)
		if err != nil {
			t.Errorf("%v: %v", args, err)
			continue
		}
		have := make([]byte, d.Size())
		if err := blockdev.Read(k, d, have, 0); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%v: %v, or other bytes than qemu-img's", args, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
