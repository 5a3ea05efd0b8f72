package kernel

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"btrlab/internal/blockdev"
	engine "btrlab/internal/fs"
	"btrlab/internal/interop"
	"btrlab/internal/judge/crash"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// TestCrashStates: Linux mounts what a power cut leaves, with the log replayed, finds the tree that
// btrlab finds, and has nothing to repair.
func TestCrashStates(t *testing.T) {
	interop.Linux(t)
	img := interop.Image(t, "base.img")
	interop.Sh(t, "truncate", "-s", "192M", img)
	interop.Sh(t, "mkfs.btrfs", "-q", img)
	tk := sched.NewTask("crash")
	dev, err := blockdev.Open(img, blockdev.ReadOnly)
	interop.Must(t, err)
	defer dev.Close()
	r, err := crash.NewRecorder(tk, []blockdev.Device{dev}, crash.Options{FS: engine.Options{Policy: policy.MustParse("modern")}})
	interop.Must(t, err)
	do := func(op crash.Op, f func() error) { t.Helper(); interop.Must(t, r.Do(tk, op, f)) }
	put := func(path string, c byte, n int, off int64) {
		do(crash.Op{Text: "write " + path}, func() error {
			x, err := r.FS.OpenFile(tk, path, engine.O_RDWR|engine.O_CREAT, 0o644)
			if err != nil {
				return err
			}
			p := make([]byte, n)
			for i := range p {
				p[i] = c
			}
			if _, err := x.WriteAt(tk, p, off); err != nil {
				return err
			}
			return x.Close(tk)
		})
	}
	fsync := func(path string) {
		do(crash.Op{Text: "fsync " + path, Promise: crash.Inode, Path: path}, func() error { return r.FS.Fsync(tk, path) })
	}
	put("/text", 'a', 20000, 0)
	put("/log", 'l', 9000, 0)
	do(crash.Op{Text: "sync", Promise: crash.All}, func() error { return r.FS.Sync(tk) })
	put("/.text.new", 'b', 24000, 0)
	fsync("/.text.new")
	do(crash.Op{Text: "mv /.text.new /text"}, func() error { return r.FS.Rename(tk, "/.text.new", "/text") })
	put("/log", 'm', 5000, 7000)
	do(crash.Op{Text: "ln /log /second"}, func() error { return r.FS.Link(tk, "/log", "/second") })
	fsync("/log")
	put("/new", 'n', 300, 0)
	fsync("/new")
	rec, err := r.End(tk)
	interop.Must(t, err)

	states := rec.States(crash.Choice{PerFlush: 8, Seed: 2})
	n := interop.Pick(24, 4)
	logs := 0
	for i := range n {
		s := states[len(states)-1-i*len(states)/n] // from the last on: those have logs
		loss, err := rec.Judge(tk, s)
		interop.Must(t, err)
		if loss != nil {
			t.Fatalf("crash state %s: %s", s, loss)
		}
		ours, theirs := fmt.Sprintf("%s.%d", img, i), fmt.Sprintf("%s.%d.linux", img, i)
		left, err := rec.Device(tk, s)
		interop.Must(t, err)
		dump(t, tk, left, ours)
		interop.Sh(t, "cp", "--sparse=always", ours, theirs)
		if hasLog(t, ours) {
			logs++
		}
		replaysAgree(t, ours, theirs, []string{"crash state " + s.String()})
		interop.Must(t, os.Remove(ours))
		interop.Must(t, os.Remove(theirs))
	}
	t.Logf("%d crash states, %d with a log", n, logs)
	if logs == 0 {
		t.Errorf("none of %d crash states has a log", n)
	}
}

// dump writes what dev has to a file, with holes for zeros.
func dump(t *testing.T, tk *sched.Task, dev blockdev.Device, name string) {
	t.Helper()
	out, err := os.Create(name)
	interop.Must(t, err)
	interop.Must(t, out.Truncate(dev.Size()))
	p, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < dev.Size(); off += int64(len(p)) {
		interop.Must(t, blockdev.Read(tk, dev, p, off))
		if !bytes.Equal(p, zero) {
			_, err := out.WriteAt(p, off)
			interop.Must(t, err)
		}
	}
	interop.Must(t, out.Close())
}
