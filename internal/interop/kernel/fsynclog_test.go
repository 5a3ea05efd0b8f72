package kernel

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	gopath "path"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	engine "btrlab/internal/fs"
	"btrlab/internal/interop"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

var fsyncSequences = flag.Int("fsynclog.sequences", 0, "how many sequences TestFsyncLog makes; 0 is a sample")

// writer does random operations with btrlab.
type writer struct {
	t     *testing.T
	tk    *sched.Task
	x     *engine.FS
	r     *rand.Rand
	f     *interop.Filler
	dirs  []string
	files []string
	links []string
	next  int
	log   []string
	open  []*engine.File // some have lost their name
}

func (w *writer) pick(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[w.r.IntN(len(list))]
}

func (w *writer) name() string {
	w.next++
	return gopath.Join(w.pick(w.dirs), fmt.Sprintf("%c%d", "fghij"[w.r.IntN(5)], w.next%37))
}

// note says what was done. Errors that are part of the game are dropped: a name that is taken, a
// directory that is not empty.
func (w *writer) note(err error, format string, a ...any) bool {
	w.t.Helper()
	text := fmt.Sprintf(format, a...)
	if err != nil {
		text += ": " + err.Error()
		var no errno.Errno
		if !errors.As(err, &no) || no == errno.EIO || no == errno.EROFS {
			w.t.Fatal(text)
		}
	}
	w.log = append(w.log, text)
	return err == nil
}

func (w *writer) edit(f string, do func(h *engine.File) error, format string, a ...any) {
	h, err := w.x.OpenFile(w.tk, f, engine.O_RDWR, 0)
	if err == nil {
		err = do(h)
		if e := h.Close(w.tk); err == nil {
			err = e
		}
	}
	w.note(err, format, a...)
}

func (w *writer) step() {
	f, size := w.pick(w.files), int64(w.r.IntN(200<<10))
	switch n := w.r.IntN(120); {
	case n < 14 || f == "":
		f = w.name()
		h, err := w.x.OpenFile(w.tk, f, engine.O_RDWR|engine.O_CREAT|engine.O_TRUNC, 0o644)
		if err == nil {
			if w.r.IntN(5) == 0 && h.Size(w.tk) == 0 {
				interop.Must(w.t, h.SetFlags(w.tk, format.InodeNoDataCow))
			}
			_, err = h.WriteAt(w.tk, w.f.Bytes(w.r.IntN([]int{10, 3000, 100000}[w.r.IntN(3)])), 0)
			interop.Must(w.t, h.Close(w.tk))
		}
		if w.note(err, "create %s", f) && !slices.Contains(w.files, f) {
			w.files = append(w.files, f)
		}
	case n < 36:
		at := size &^ int64([]int{0, 4095}[w.r.IntN(2)])
		b := w.f.Bytes(1 + w.r.IntN([]int{100, 4096, 60000}[w.r.IntN(3)]))
		w.edit(f, func(h *engine.File) error { _, err := h.WriteAt(w.tk, b, at); return err }, "write %s %d+%d", f, at, len(b))
	case n < 42:
		b := w.f.Bytes(4096 * (1 + w.r.IntN(9)))
		w.edit(f, func(h *engine.File) error { _, err := h.WriteDirect(w.tk, b, size&^4095); return err }, "write direct %s %d+%d", f, size&^4095, len(b))
	case n < 48:
		b := w.f.Bytes(1 + w.r.IntN(9000))
		w.edit(f, func(h *engine.File) error { _, err := h.WriteAt(w.tk, b, h.Size(w.tk)); return err }, "append %s %d", f, len(b))
	case n < 56:
		w.edit(f, func(h *engine.File) error { return h.Truncate(w.tk, size) }, "truncate %s %d", f, size)
	case n < 64:
		mode := []uint32{engine.FALLOC_FL_PUNCH_HOLE | engine.FALLOC_FL_KEEP_SIZE, engine.FALLOC_FL_KEEP_SIZE, 0, engine.FALLOC_FL_ZERO_RANGE}[w.r.IntN(4)]
		long := 1 + int64(w.r.IntN(50000))
		w.edit(f, func(h *engine.File) error { return h.Fallocate(w.tk, mode, size, long) }, "fallocate %s mode %d %d+%d", f, mode, size, long)
	case n < 70:
		to := w.name()
		if w.r.IntN(3) == 0 {
			to = w.pick(w.files)
		}
		if w.note(w.x.Rename(w.tk, f, to), "rename %s %s", f, to) && f != to {
			w.files = slices.DeleteFunc(w.files, func(s string) bool { return s == f || s == to })
			w.files = append(w.files, to)
		}
	case n < 76:
		to := w.name()
		if w.note(w.x.Link(w.tk, f, to), "link %s %s", f, to) {
			w.files = append(w.files, to)
		}
	case n < 81:
		if w.note(w.x.Unlink(w.tk, f), "unlink %s", f) {
			w.files = slices.DeleteFunc(w.files, func(s string) bool { return s == f })
		}
	case n < 83:
		to := w.name()
		if w.note(w.x.Symlink(w.tk, "to/"+f, to), "symlink %s", to) {
			w.links = append(w.links, to)
		}
	case n < 84:
		if to := w.pick(w.links); to != "" && w.note(w.x.Rename(w.tk, to, to+"x"), "rename %s %sx", to, to) {
			w.links = append(slices.DeleteFunc(w.links, func(s string) bool { return s == to }), to+"x")
		}
	case n < 88:
		d := w.name() + "d"
		if w.note(w.x.Mkdir(w.tk, d, 0o755), "mkdir %s", d) {
			w.dirs = append(w.dirs, d)
		}
	case n < 91:
		d, to := w.pick(w.dirs), w.name()+"d"
		inside := func(s string) bool { return s == d || strings.HasPrefix(s, d+"/") }
		if d != "/" && !inside(to) && w.note(w.x.Rename(w.tk, d, to), "rename %s %s", d, to) {
			for _, l := range [][]string{w.dirs, w.files, w.links} {
				for i := range l {
					if inside(l[i]) {
						l[i] = to + l[i][len(d):]
					}
				}
			}
		}
	case n < 92:
		d := w.pick(w.dirs)
		if d != "/" && w.note(w.x.Rmdir(w.tk, d), "rmdir %s", d) {
			w.dirs = slices.DeleteFunc(w.dirs, func(s string) bool { return s == d })
		}
	case n < 94:
		from := w.pick(w.files)
		w.reflink(from, f)
	case n < 99:
		w.note(w.x.Chmod(w.tk, f, 0o600+uint32(w.r.IntN(0o77))), "chmod %s", f)
	case n < 105:
		at, name := w.pick([]string{f, w.pick(w.dirs)}), "user."+w.pick([]string{"a", "b"})
		if w.r.IntN(3) == 0 {
			w.note(w.x.Removexattr(w.tk, at, name), "removexattr %s %s", name, at)
		} else {
			w.note(w.x.Setxattr(w.tk, at, name, w.f.Bytes(1+w.r.IntN(900))), "setxattr %s %s", name, at)
		}
	case n < 107:
		w.x.DropCaches(w.tk)
		w.note(nil, "drop caches")
	case n < 109:
		w.edit(f, func(h *engine.File) error { return w.x.Flush(w.tk, h) }, "flush %s", f)
	case n < 114:
		w.hold(f)
	case n < 116:
		d := w.name() + "v"
		if w.note(w.x.Subvolume(w.tk, d, 0o755), "subvolume %s", d) {
			w.dirs = append(w.dirs, d)
		}
	case n < 118:
		// Read-only: nothing below it is picked.
		w.note(w.x.Snapshot(w.tk, "/", fmt.Sprintf("/snapshot%d", w.next), true), "snapshot%d", w.next)
		w.next++
	default:
		from, to, long := int64(w.r.IntN(20))<<12, int64(w.r.IntN(30))<<12, int64(1+w.r.IntN(9))<<12
		w.edit(f, func(h *engine.File) error { return h.Reflink(w.tk, h, from, long, to) }, "reflink in %s %d+%d to %d", f, from, long, to)
	}
}

// hold opens a file and keeps it, or writes to one that it keeps, or lets one go: unlink takes
// names from under it.
func (w *writer) hold(f string) {
	if n := len(w.open); n > 0 && w.r.IntN(2) == 0 {
		h := w.open[w.r.IntN(n)]
		_, err := h.WriteAt(w.tk, w.f.Bytes(1+w.r.IntN(20000)), int64(w.r.IntN(100000)))
		if w.note(err, "write an open file, inode %d", h.Ino()) && w.r.IntN(2) == 0 {
			w.note(h.Fsync(w.tk), "fsync an open file, inode %d", h.Ino())
		}
		return
	}
	if len(w.open) > 2 {
		w.note(w.open[0].Close(w.tk), "close")
		w.open = w.open[1:]
	}
	h, err := w.x.OpenFile(w.tk, f, engine.O_RDWR, 0)
	if w.note(err, "open %s", f) {
		w.open = append(w.open, h)
	}
}

// TestFsyncLog: btrlab does random operations and an fsync of a file or a directory, and the image
// is copied as it is then, as if the power had gone. Linux replays one copy of the log and we
// another: the file has what it had when fsync returned, the directory the names that it had,
// everything else is the same in both, and both checkers are content.
func TestFsyncLog(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	const batch = 25 // sequences of one file system
	all := *fsyncSequences
	if all == 0 {
		all = interop.Pick(4*batch, 5)
	}
	for seed := uint64(0); all > 0; seed, all = seed+1, all-batch {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { fsyncLog(t, seed, min(batch, all)) })
	}
}

func fsyncLog(t *testing.T, seed uint64, sequences int) {
	img := interop.Image(t, "live.img")
	interop.Sh(t, "truncate", "-s", "192M", img)
	args := []string{"-q", "-m", []string{"single", "dup"}[seed/3%2], "-n", []string{"16k", "4k", "64k"}[seed%3]}
	interop.Sh(t, "mkfs.btrfs", append(append(args, strings.Fields(interop.KindOf(seed).Linux)...), img)...)
	tk := sched.NewTask("writer")
	dev, err := blockdev.Open(img, 0)
	interop.Must(t, err)
	x, err := engine.Open(tk, []blockdev.Device{dev}, engine.Options{CheckQuiescence: true, Policy: policy.MustParse([]string{"locked", "modern"}[seed%2])})
	interop.Must(t, err)
	w := &writer{t: t, tk: tk, x: x, r: rand.New(rand.NewPCG(seed, 8)), f: interop.NewFiller(seed), dirs: []string{"/"}}
	logs, ofDirs := 0, 0
	for i := range sequences {
		if w.r.IntN(4) == 0 {
			interop.Must(t, x.Sync(tk))
			w.log = append(w.log[:0:0], "sync")
		}
		// Several inodes are logged in one transaction.
		var name string
		isDir := false
		for range 1 + w.r.IntN(4) {
			for range 1 + w.r.IntN(3) {
				w.step()
			}
			if isDir = w.r.IntN(5) < 2; isDir {
				name = w.pick(w.dirs)
				w.note(x.Fsync(tk, name), "fsync %s", name)
			} else if name = w.pick(w.files); name != "" {
				w.edit(name, func(h *engine.File) error { return h.Fsync(tk) }, "fsync %s", name)
			}
		}
		if name == "" {
			continue
		}
		ours, theirs := fmt.Sprintf("%s.%d", img, i), fmt.Sprintf("%s.%d.linux", img, i)
		interop.Sh(t, "cp", "--sparse=always", img, ours)
		interop.Sh(t, "cp", "--sparse=always", img, theirs)
		if hasLog(t, ours) {
			logs++
			if isDir {
				ofDirs++
			}
		}
		want := replaysAgree(t, ours, theirs, w.log)
		fits := namesFit
		if !isDir {
			fits = fileFits
		}
		if why := fits(t, tk, x, name, want); why != "" {
			for _, l := range w.log {
				t.Log(l)
			}
			t.Fatalf("after fsync of %s, want %s in\n%s", name, why, strings.Join(want, "\n"))
		}
		interop.Must(t, os.Remove(ours))
		interop.Must(t, os.Remove(theirs))
	}
	for _, h := range w.open {
		interop.Must(t, h.Close(tk))
	}
	interop.Must(t, x.Close(tk))
	interop.Must(t, dev.Close())
	interop.Judged(t, img)
	t.Logf("%d of %d images had a log, %d after fsync of a directory", logs, sequences, ofDirs)
	if logs < sequences/4 {
		t.Errorf("only %d of %d images have a log", logs, sequences)
	}
}

// fileFits says what is missing in the facts: the size and the bytes that the file has. Its name
// may be another: that of a directory above it is only as durable as the directory.
func fileFits(t *testing.T, tk *sched.Task, x *engine.FS, name string, facts []string) string {
	size, data := factOf(t, tk, x, name)
	rel := strings.TrimPrefix(name, "/")
	if slices.ContainsFunc(facts, func(l string) bool {
		same := strings.HasPrefix(l, rel+" ") || strings.Contains(l, "/"+gopath.Base(rel)+" ")
		return same && strings.Contains(l, size) && strings.Contains(l, data)
	}) {
		return ""
	}
	return size + "and" + data
}

// namesFit says which names the directory has, unless one of its name has them in the facts, each
// of the same type, and no others.
func namesFit(t *testing.T, tk *sched.Task, x *engine.FS, name string, facts []string) string {
	list, err := x.ReadDir(tk, name)
	interop.Must(t, err)
	var want []string
	for _, e := range list {
		want = append(want, fmt.Sprintf("%s %d", e.Name, e.Type))
	}
	slices.Sort(want)
	have := map[string][]string{".": nil} // by directory
	for _, l := range facts {
		path, rest, _ := strings.Cut(l, " ")
		var mode uint32
		if _, err := fmt.Sscanf(rest, "mode=%o", &mode); err != nil {
			t.Fatal(l, err)
		}
		if path == "." {
			continue
		}
		if mode>>12 == 4 {
			have[path] = append(have[path], []string{}...)
		}
		dir := gopath.Dir(path)
		have[dir] = append(have[dir], fmt.Sprintf("%s %d", gopath.Base(path), format.FtOf(mode)))
	}
	for path, names := range have {
		slices.Sort(names)
		if slices.Equal(names, want) && (gopath.Base(path) == gopath.Base(name) || path == "." && name == "/") {
			return ""
		}
	}
	return fmt.Sprintf("names %q", want)
}

// factOf returns the size and the bytes of a file as the line of facts gives them. Its blocks are
// not in it: the trees have them when the ordered extents are finished, which fsync does not wait
// for.
func factOf(t *testing.T, tk *sched.Task, x *engine.FS, name string) (size, data string) {
	h, err := x.OpenFile(tk, name, engine.O_RDONLY, 0)
	interop.Must(t, err)
	b := make([]byte, h.Size(tk))
	if n, err := h.ReadAt(tk, b, 0); n != len(b) {
		t.Fatal(n, err)
	}
	interop.Must(t, h.Close(tk))
	return fmt.Sprintf(" size=%d ", len(b)), fmt.Sprintf(" bytes=%.6x ", sha256.Sum256(b))
}

// reflink makes the file to share all of from.
func (w *writer) reflink(from, to string) {
	w.edit(to, func(dst *engine.File) error {
		src, err := w.x.OpenFile(w.tk, from, engine.O_RDONLY, 0)
		if err == nil {
			err = dst.Reflink(w.tk, src, 0, 0, 0)
			interop.Must(w.t, src.Close(w.tk))
		}
		return err
	}, "reflink %s %s", from, to)
}
