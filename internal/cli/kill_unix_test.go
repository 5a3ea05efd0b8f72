//go:build unix

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
)

func init() { programs["commit-and-die"] = commitAndDie }

const (
	dieFiles = 4
	dieSize  = 100 << 10
)

// dieContent returns the content of file i in a version.
func dieContent(version, i int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("version %d of file %d. ", version, i)), dieSize/20)[:dieSize]
}

// lethal is a device that kills its process when a write or flush comes, counted once it is armed:
// before it, or with half set after the first half of its bytes. A write of one sector, such as a
// superblock, is never torn (labs/reference 10.1).
type lethal struct {
	blockdev.Device
	armed atomic.Bool
	left  atomic.Int64
	half  bool
}

func (d *lethal) Submit(t *sched.Task, b *blockdev.Bio) {
	if d.armed.Load() && b.Op != blockdev.OpRead && d.left.Add(-1) == 0 {
		if n := b.Len() / 2; d.half && b.Op == blockdev.OpWrite && n >= 4096 {
			if err := blockdev.Write(t, d.Device, bytes.Join(b.Vecs, nil)[:n], b.Off); err != nil {
				panic(err)
			}
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	d.Device.Submit(t, b)
}

// version is the version that the image holds: the one name of the top directory that begins with
// v.
func version(t *sched.Task, x *fs.FS) (int, error) {
	list, err := x.ReadDir(t, "/")
	v := -1
	for _, e := range list {
		if strings.HasPrefix(e.Name, "v") {
			if v >= 0 {
				return 0, fmt.Errorf("the image has version %d and %s", v, e.Name)
			}
			if v, err = strconv.Atoi(e.Name[1:]); err != nil {
				return 0, err
			}
		}
	}
	return v, err
}

// commitAndDie is the program "commit-and-die IMAGE N HALF": it brings the image from its version
// to the next one, and dies at the Nth write or flush of the commit; if the commit has fewer it
// ends well.
func commitAndDie() {
	t := sched.NewTask("child")
	err := func() error {
		n, err := strconv.ParseInt(os.Args[2], 10, 64)
		if err != nil {
			return err
		}
		file, err := blockdev.Open(os.Args[1], 0)
		if err != nil {
			return err
		}
		dev := &lethal{Device: file, half: os.Args[3] == "half"}
		dev.left.Store(n)
		x, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{FirstFit: true})
		if err != nil {
			return err
		}
		v, err := version(t, x)
		if err != nil {
			return err
		}
		var files []*fs.File
		for i := range dieFiles {
			f, err := x.Create(t, fmt.Sprintf("/c%d", i), 0o644)
			if err == nil {
				_, err = f.WriteAt(t, dieContent(v+1, i), 0)
			}
			if err == nil {
				err = x.Flush(t, f)
			}
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		// the data is on the device, and its items in the trees: what follows is the commit
		for _, f := range files {
			f.Inode().Pages.WaitWriteback(t, 0, dieSize)
			if err := f.Inode().Ordered.WaitRange(t, 0, dieSize); err != nil {
				return err
			}
		}
		name := func(v int) string { return fmt.Sprintf("/v%d", v) }
		if v < 0 {
			f, err := x.Create(t, name(0), 0o644)
			if err != nil {
				return err
			}
			files = append(files, f)
		} else if err := x.Rename(t, name(v), name(v+1)); err != nil {
			return err
		}
		dev.armed.Store(true)
		if err := x.Sync(t); err != nil {
			return err
		}
		dev.armed.Store(false)
		for _, f := range files {
			if err := f.Close(t); err != nil {
				return err
			}
		}
		if err := x.Close(t); err != nil {
			return err
		}
		return file.Close()
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestKillInsideCommit kills a process inside a commit, at every write and flush of it in turn,
// before it or in its middle. The image is clean, can be opened, and holds the version of before or
// of after, all of it; and the next process goes on from there.
func TestKillInsideCommit(t *testing.T) {
	child := filepath.Join(t.TempDir(), "commit-and-die")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, child); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"before", "half"} {
		t.Run(how, func(t *testing.T) {
			img := filepath.Join(t.TempDir(), "a.img")
			verb(t, 0, "mkfs", "-q", "--size", "128M", img)
			// kills after which the new version is there, and those after which it is not
			was, kills := -1, map[bool]int{}
			for n := 1; ; n++ {
				var errw bytes.Buffer
				cmd := exec.Command(child, img, strconv.Itoa(n), how)
				cmd.Stderr = &errw
				err := cmd.Run()
				var exit *exec.ExitError
				died := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled()
				if err != nil && !died {
					t.Fatalf("bio %d: %v: %s", n, err, errw.String())
				}
				v := dieVerify(t, img)
				if v != was && v != was+1 || !died && v != was+1 {
					t.Fatalf("bio %d, killed %v: the image has version %d, want %d or the next", n, died, v, was)
				}
				if !died {
					break
				}
				kills[v > was]++
				was = v
				if n > 500 {
					t.Fatal("a commit of more than 500 bios")
				}
			}
			t.Logf("killed %d times before the commit was there, %d times after", kills[false], kills[true])
			if kills[false] < 3 {
				t.Errorf("only %d kills inside a commit", kills[false])
			}
		})
	}
}

// dieVerify holds the image against the version that it names, and returns that.
func dieVerify(t *testing.T, img string) int {
	t.Helper()
	tk := sched.NewTask("verify")
	dev, err := blockdev.Open(img, blockdev.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	r, err := check.Check(tk, dev, check.Options{})
	if err != nil || !r.Clean {
		t.Fatalf("check: %v, %v", err, r.Findings)
	}
	x, err := fs.Open(tk, []blockdev.Device{dev}, fs.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close(tk)
	v, err := version(tk, x)
	if err != nil {
		t.Fatal(err)
	}
	for i := range dieFiles {
		f, err := x.OpenFile(tk, fmt.Sprintf("/c%d", i), fs.O_RDONLY, 0)
		if v < 0 {
			if err == nil {
				t.Fatalf("file %d is there and the version is not", i)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		have, want := make([]byte, f.Size(tk)), dieContent(v, i)
		if _, err := f.ReadAt(tk, have, 0); err != nil || !bytes.Equal(have, want) {
			t.Fatalf("version %d, file %d: %d bytes, %v, beginning %.20q", v, i, len(have), err, have)
		}
		if err := f.Close(tk); err != nil {
			t.Fatal(err)
		}
	}
	return v
}
