package progs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// inMemoryTest says to a test process that it runs one test of memory.
const inMemoryTest = "BTRLAB_MEMORY_TEST"

// large reports that the test is to go on. It runs the test in a process of its own: a program's
// peak of resident memory begins with that of the process that starts it, and this one has had
// images in memory.
func large(t *testing.T) bool {
	t.Helper()
	if !need.Forced() {
		t.Skip("takes minutes; make interop runs it")
	}
	if os.Getenv(inMemoryTest) != "" {
		return true
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), inMemoryTest+"=1")
	out, err := c.CombinedOutput()
	fmt.Printf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

// within runs the program and wants its resident memory to stay within most MiB.
func within(t *testing.T, most int64, out io.Writer, bin string, args ...string) {
	t.Helper()
	var errw bytes.Buffer
	c := exec.Command(bin, args...)
	c.Stdout, c.Stderr = out, &errw
	start := time.Now()
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, interop.Tail(errw.Bytes()))
	}
	peak := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10
	fmt.Printf("%-58s peak %d MiB, want at most %d, %.1f s\n", fmt.Sprint(args[:3]), peak, most, time.Since(start).Seconds())
	if peak > most {
		t.Errorf("%v: peak %d MiB, want at most %d", args, peak, most)
	}
}

// TestMemoryManyFiles: 200,000 small files are put, listed, fetched and deleted in 256 MiB.
func TestMemoryManyFiles(t *testing.T) {
	need.Long(t)
	if !large(t) {
		return
	}
	bin, dir := interop.Binary(t), t.TempDir()
	img, src, dst := filepath.Join(dir, "img"), filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	const files, perDir = 200_000, 1000
	for i := range files {
		interop.Write(t, filepath.Join(src, strconv.Itoa(i/perDir), strconv.Itoa(i)), fmt.Appendf(nil, "%0100d", i))
	}
	interop.Sh(t, bin, "mkfs", "-q", "--size", "4G", img)
	within(t, 256, io.Discard, bin, "put", "--cache", "128M", "-r", src, img+":/t")
	interop.Judged(t, img)
	var names countLines
	within(t, 256, &names, bin, "ls", "--cache", "128M", "-R", img+":/t")
	if want := files + files/perDir; int(names) != want {
		t.Errorf("ls -R prints %d names, want %d", names, want)
	}
	within(t, 256, io.Discard, bin, "get", "--cache", "128M", "-r", img+":/t", dst)
	interop.Sh(t, "diff", "-r", src, dst)
	within(t, 256, io.Discard, bin, "rm", "--cache", "128M", "-r", img+":/t")
	interop.Judged(t, img)
}

// countLines counts the lines that are written.
type countLines int

func (n *countLines) Write(p []byte) (int, error) {
	*n += countLines(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

// TestMemoryLargeFile: a file of 3 GiB is put, printed, fetched, and read and overwritten by a
// bench in 256 MiB and 64 MiB.
func TestMemoryLargeFile(t *testing.T) {
	need.Long(t)
	if !large(t) {
		return
	}
	bin, dir := interop.Binary(t), t.TempDir()
	img, src, dst := filepath.Join(dir, "img"), filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	const mib, most = 3 << 10, 256 + 64
	f, err := os.Create(src)
	interop.Must(t, err)
	fill := interop.NewFiller(7)
	for range mib {
		_, err := f.Write(fill.Bytes(1 << 20))
		interop.Must(t, err)
	}
	interop.Must(t, f.Close())
	interop.Sh(t, bin, "mkfs", "-q", "--size", "8G", img)
	within(t, most, io.Discard, bin, "put", "--cache", "256M", src, img+":/f")
	within(t, most, io.Discard, bin, "get", "--cache", "256M", img+":/f", dst)
	interop.Sh(t, "cmp", src, dst)
	interop.Must(t, os.Remove(dst))
	within(t, most, io.Discard, bin, "cat", "--cache", "256M", img+":/f")
	job := filepath.Join(dir, "job")
	interop.Must(t, os.WriteFile(job, fmt.Appendf(nil, "[global]\nfilename=f\nsize=%dM\nnorandommap\n[read]\nrw=read\nbs=128k\n[cow]\nstonewall\nrw=randwrite\nbs=4k\nio_size=512M\n", mib), 0o644))
	within(t, most, io.Discard, bin, "bench", "--cache", "256M", "--image", img, job)
	interop.Judged(t, img)
}
