package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// runVerb runs a command line in this process and wants exit code 0.
func runVerb(t *testing.T, out io.Writer, args ...string) {
	t.Helper()
	var errw bytes.Buffer
	if code := Main(args, strings.NewReader(""), out, &errw); code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, errw.String())
	}
}

var zeros [1 << 20]byte

// offsets is a writer that counts and notes where a byte is not zero.
type offsets struct {
	n    int64
	data []int64
}

func (o *offsets) Write(p []byte) (int, error) {
	if len(p) > len(zeros) || !bytes.Equal(p, zeros[:len(p)]) {
		for i, b := range p {
			if b != 0 {
				o.data = append(o.data, o.n+int64(i))
			}
		}
	}
	o.n += int64(len(p))
	return len(p), nil
}

// TestSparse: 20 GiB with three bytes of data go into an image, come out with their holes, and are
// printed, with little memory.
func TestSparse(t *testing.T) {
	const size = 20 << 30
	at := []int64{0, 10<<30 + 5, size - 1}
	dir := t.TempDir()
	img, src, dst := filepath.Join(dir, "img"), filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	f, err := os.Create(src)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, off := range at {
		if _, err := f.WriteAt([]byte{'x'}, off); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	runVerb(t, io.Discard, "mkfs", "--size", "256M", img)
	runVerb(t, io.Discard, "put", src, img+":/f")
	runVerb(t, io.Discard, "get", img+":/f", dst)
	st, err := os.Stat(dst)
	if err != nil {
		t.Fatal(err)
	}
	if blocks := st.Sys().(*syscall.Stat_t).Blocks; st.Size() != size || blocks > 2048 {
		t.Errorf("get: have %d bytes in %d blocks, want %d in a few", st.Size(), blocks, int64(size))
	}
	g, err := os.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, off := range at {
		b := make([]byte, 1)
		if _, err := g.ReadAt(b, off); err != nil || b[0] != 'x' {
			t.Errorf("get: byte %d is %#x, %v, want 'x'", off, b[0], err)
		}
	}
	var o offsets
	runVerb(t, &o, "cat", img+":/f")
	if o.n != size || len(o.data) != len(at) || o.data[0] != at[0] || o.data[1] != at[1] || o.data[2] != at[2] {
		t.Errorf("cat: %d bytes with data at %v, want %d with data at %v", o.n, o.data, int64(size), at)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
		t.Errorf("allocated %d MiB, want at most 256", n>>20)
	}
}
