package cli

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

func init() { programs["btrlab-peak"] = peak }

// peak is btrlab that prints its highest resident memory in KiB as its last line of standard error.
func peak() {
	code := Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	b, err := os.ReadFile("/proc/self/status")
	if m := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(b); err == nil && m != nil {
		fmt.Fprintf(os.Stderr, "\n%s\n", m[1])
	}
	os.Exit(code)
}

// peakOf runs a verb in a process of its own and wants its memory to stay within most MiB.
func peakOf(t *testing.T, out io.Writer, most int, args ...string) {
	t.Helper()
	var errw bytes.Buffer
	c := exec.Command(program(t))
	c.Args = append([]string{"btrlab-peak"}, args...)
	c.Stdout, c.Stderr = out, &errw
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, errw.String())
	}
	lines := bytes.Fields(errw.Bytes())
	if len(lines) == 0 {
		t.Fatalf("%v: no peak", args)
	}
	kib, err := strconv.Atoi(string(lines[len(lines)-1]))
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	t.Logf("%s: peak %d MiB, want at most %d", args[0], kib>>10, most)
	if kib>>10 > most {
		t.Errorf("%v: peak %d MiB, want at most %d", args, kib>>10, most)
	}
}

// TestMemoryBound: a file eight times the cache goes into an image, is printed and comes out, and a
// bench reads and overwrites it, in the memory of the cache and 64 MiB. A rescue has no cache and
// takes 64 MiB, also when it scans the image.
func TestMemoryBound(t *testing.T) {
	need.Long(t)
	if sched.UnderRace {
		t.Skip("the race detector needs memory of its own")
	}
	const cache, size = 32, 256
	dir := t.TempDir()
	img, src, dst := filepath.Join(dir, "img"), filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	data := make([]byte, size<<20)
	r := rand.NewChaCha8([32]byte{1})
	if _, err := r.Read(data); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(src, data, 0o644); err != nil {
		t.Fatal(err)
	}
	verb(t, 0, "mkfs", "--size", "1G", img)
	peakOf(t, io.Discard, cache+64, "put", "--cache", "32M", src, img+":/f")
	var h same
	h.want = data
	peakOf(t, &h, cache+64, "cat", "--cache", "32M", img+":/f")
	if h.n != len(data) || h.differs {
		t.Errorf("cat: %d bytes, differs %v, want the %d that were put", h.n, h.differs, len(data))
	}
	peakOf(t, io.Discard, cache+64, "get", "--cache", "32M", img+":/f", dst)
	if have, err := os.ReadFile(dst); err != nil || !bytes.Equal(have, data) {
		t.Errorf("get: %d bytes, %v, want the %d that were put", len(have), err, len(data))
	}
	peakOf(t, io.Discard, 64, "rescue", "copy", img, filepath.Join(dir, "saved"))
	if have, err := os.ReadFile(filepath.Join(dir, "saved", "f")); err != nil || !bytes.Equal(have, data) {
		t.Errorf("rescue copy: %d bytes, %v, want the %d that were put", len(have), err, len(data))
	}
	// Every superblock is gone: the whole image is scanned.
	broken := filepath.Join(dir, "broken")
	if err := exec.Command("cp", "--sparse=always", img, broken).Run(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(broken, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{64 << 10, 64 << 20} {
		if _, err := f.WriteAt(make([]byte, 4096), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	peakOf(t, io.Discard, 64, "rescue", "copy", broken, filepath.Join(dir, "scanned"))
	job := filepath.Join(dir, "job")
	text := fmt.Sprintf("[global]\nfilename=f\nsize=%dM\nnorandommap\n[read]\nrw=read\nbs=64k\n[cow]\nstonewall\nrw=randwrite\nbs=4k\nio_size=%dM\n[mix]\nstonewall\nrw=randrw\nbs=16k\nnumjobs=4\nio_size=%dM\n",
		size, size/4, size/4)
	if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	peakOf(t, io.Discard, cache+64, "bench", "--cache", "32M", "--image", img, job)
	verb(t, 0, "check", img)
}

// same compares what is written with want.
type same struct {
	want    []byte
	n       int
	differs bool
}

func (s *same) Write(p []byte) (int, error) {
	if s.n+len(p) > len(s.want) || !bytes.Equal(p, s.want[s.n:s.n+len(p)]) {
		s.differs = true
	}
	s.n += len(p)
	return len(p), nil
}

// TestMemorySmallFiles: many small files are put and fetched in bounded memory: inodes and tree
// blocks go as well.
func TestMemorySmallFiles(t *testing.T) {
	need.Long(t)
	if sched.UnderRace {
		t.Skip("the race detector needs memory of its own")
	}
	const files = 20000
	dir := t.TempDir()
	img, src := filepath.Join(dir, "img"), filepath.Join(dir, "src")
	for i := range files {
		d := filepath.Join(src, strconv.Itoa(i/1000))
		if i%1000 == 0 {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(d, strconv.Itoa(i)), fmt.Appendf(nil, "%0100d", i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	verb(t, 0, "mkfs", "--size", "512M", img)
	peakOf(t, io.Discard, 80, "put", "-r", "--cache", "16M", src, img+":/t")
	peakOf(t, io.Discard, 80, "get", "-r", "--cache", "16M", img+":/t", filepath.Join(dir, "dst"))
	for i := 0; i < files; i += 777 {
		b, err := os.ReadFile(filepath.Join(dir, "dst", strconv.Itoa(i/1000), strconv.Itoa(i)))
		if err != nil || string(b) != fmt.Sprintf("%0100d", i) {
			t.Errorf("file %d: %q, %v", i, b, err)
		}
	}
	verb(t, 0, "check", img)
}
