package kernel

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
	engine "btrlab/internal/fs"
	"btrlab/internal/interop"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

var logSequences = flag.Int("log.sequences", 0, "how many sequences TestReplay makes; 0 is a sample")

// scribbler does random operations below a directory of a mounted file system.
type scribbler struct {
	t     *testing.T
	r     *rand.Rand
	f     *interop.Filler
	dir   string
	dirs  []string // below dir
	files []string
	next  int
	log   []string // what was done since the last commit
}

func (s *scribbler) path(rel string) string { return filepath.Join(s.dir, rel) }

func (s *scribbler) pick(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[s.r.IntN(len(list))]
}

func (s *scribbler) name() string {
	s.next++
	return filepath.Join(s.pick(s.dirs), fmt.Sprintf("%c%d", "fghij"[s.r.IntN(5)], s.next%37))
}

// note says what was done, and drops errors that are part of the game: a name that is taken, a
// directory that is not empty.
func (s *scribbler) note(err error, format string, a ...any) bool {
	text := fmt.Sprintf(format, a...)
	if err != nil {
		text += ": " + err.Error()
	}
	s.log = append(s.log, text)
	return err == nil
}

func (s *scribbler) edit(f string, do func(h *os.File) error, format string, a ...any) {
	h, err := os.OpenFile(s.path(f), os.O_RDWR, 0)
	if err == nil {
		err = do(h)
		if e := h.Close(); err == nil {
			err = e
		}
	}
	s.note(err, format, a...)
}

func (s *scribbler) step() {
	f, size := s.pick(s.files), int64(s.r.IntN(200<<10))
	switch n := s.r.IntN(100); {
	case n < 14 || f == "":
		f = s.name()
		h, err := os.OpenFile(s.path(f), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		if err == nil {
			_, err = h.Write(s.f.Bytes(s.r.IntN([]int{10, 3000, 100000}[s.r.IntN(3)])))
			h.Close()
		}
		if s.note(err, "create %s", f) && !slices.Contains(s.files, f) {
			s.files = append(s.files, f)
		}
	case n < 34:
		at := size &^ int64([]int{0, 4095}[s.r.IntN(2)])
		b := s.f.Bytes(1 + s.r.IntN([]int{100, 4096, 60000}[s.r.IntN(3)]))
		s.edit(f, func(h *os.File) error { _, err := h.WriteAt(b, at); return err }, "write %s %d+%d", f, at, len(b))
	case n < 40:
		b := s.f.Bytes(1 + s.r.IntN(9000))
		s.edit(f, func(h *os.File) error {
			st, err := h.Stat()
			if err == nil {
				_, err = h.WriteAt(b, st.Size())
			}
			return err
		}, "append %s %d", f, len(b))
	case n < 48:
		s.edit(f, func(h *os.File) error { return h.Truncate(size) }, "truncate %s %d", f, size)
	case n < 54:
		mode := uint32([]int{unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_KEEP_SIZE, 0}[s.r.IntN(3)])
		s.edit(f, func(h *os.File) error {
			return unix.Fallocate(int(h.Fd()), mode, size, 1+int64(s.r.IntN(50000)))
		}, "fallocate %s mode %d at %d", f, mode, size)
	case n < 64:
		to := s.name()
		if s.r.IntN(3) == 0 {
			to = s.pick(s.files)
		}
		if s.note(os.Rename(s.path(f), s.path(to)), "rename %s %s", f, to) && f != to {
			s.files = slices.DeleteFunc(s.files, func(x string) bool { return x == f || x == to })
			s.files = append(s.files, to)
		}
	case n < 70:
		to := s.name()
		if s.note(os.Link(s.path(f), s.path(to)), "link %s %s", f, to) {
			s.files = append(s.files, to)
		}
	case n < 78:
		if s.note(os.Remove(s.path(f)), "unlink %s", f) {
			s.files = slices.DeleteFunc(s.files, func(x string) bool { return x == f })
		}
	case n < 83:
		d := s.name() + "d"
		if s.note(os.Mkdir(s.path(d), 0o755), "mkdir %s", d) {
			s.dirs = append(s.dirs, d)
		}
	case n < 85:
		if d := s.pick(s.dirs); d != "" && s.note(os.Remove(s.path(d)), "rmdir %s", d) {
			s.dirs = slices.DeleteFunc(s.dirs, func(x string) bool { return x == d })
		}
	case n < 88:
		d, to := s.pick(s.dirs), s.name()+"d"
		inside := func(x string) bool { return x == d || strings.HasPrefix(x, d+"/") }
		if d != "" && !inside(to) && s.note(os.Rename(s.path(d), s.path(to)), "rename %s %s", d, to) {
			for _, l := range [][]string{s.dirs, s.files} {
				for i := range l {
					if inside(l[i]) {
						l[i] = to + l[i][len(d):]
					}
				}
			}
		}
	case n < 94:
		attr := fmt.Sprintf("user.%c", "abc"[s.r.IntN(3)])
		if s.r.IntN(3) == 0 {
			s.note(unix.Removexattr(s.path(f), attr), "removexattr %s %s", f, attr)
		} else {
			s.note(unix.Setxattr(s.path(f), attr, s.f.Bytes(s.r.IntN(200)), 0), "setxattr %s %s", f, attr)
		}
	case n < 96:
		l := s.name() + "l"
		s.note(os.Symlink("to/"+f, s.path(l)), "symlink %s", l)
	default:
		s.note(os.Chmod(s.path(f), fs.FileMode(0o600+s.r.IntN(0o77))), "chmod %s", f)
	}
}

// sync calls fsync on a file or on a directory.
func (s *scribbler) sync() {
	what := s.pick(s.files)
	if s.r.IntN(4) == 0 || what == "" {
		what = s.pick(s.dirs)
	}
	h, err := os.Open(s.path(what))
	if err == nil {
		if err = h.Sync(); err != nil {
			s.t.Fatalf("fsync %s: %v", what, err)
		}
		h.Close()
	}
	s.note(err, "fsync %s", what)
}

// facts describes everything below dir, a line for each name.
func facts(t *testing.T, dir string, times bool) []string {
	t.Helper()
	var l []string
	inodes := map[string]string{}
	interop.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%s mode=%o links=%d", rel, st.Mode, st.Nlink)
		// Linux makes up the directory that stands for a subvolume of the original in a snapshot:
		// it is of now
		if times && st.Ino != 2 {
			text += fmt.Sprint(" mtime=", info.ModTime().UnixNano())
		}
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			id := fmt.Sprint(st.Dev, " ", st.Ino)
			if inodes[id] == "" {
				inodes[id] = rel
			}
			text += fmt.Sprintf(" size=%d blocks=%d bytes=%.6x same=%s", st.Size, st.Blocks, sha256.Sum256(b), inodes[id])
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			l = append(l, text+" to="+to)
			return nil
		default:
			text += fmt.Sprintf(" size=%d", st.Size)
		}
		names := make([]byte, 1000)
		n, err := unix.Llistxattr(path, names)
		if err != nil {
			return err
		}
		attrs := strings.Split(string(names[:n]), "\x00")
		sort.Strings(attrs)
		for _, a := range attrs {
			if strings.HasPrefix(a, "user.") {
				v := make([]byte, 1000)
				n, err := unix.Lgetxattr(path, a, v)
				if err != nil {
					return err
				}
				text += fmt.Sprintf(" %s=%.4x", a, sha256.Sum256(v[:n]))
			}
		}
		l = append(l, text)
		return nil
	}))
	return l
}

// TestReplay: Linux does random operations and an fsync, and the image is copied as it is then, as
// if the power had gone. We replay one copy and Linux another: everything that can be seen must be
// the same, and both checkers content with ours.
func TestReplay(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	const batch = 25 // sequences of one file system
	all := *logSequences
	if all == 0 {
		all = interop.Pick(8*batch, 5)
	}
	for seed := uint64(0); all > 0; seed, all = seed+1, all-batch {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			img := interop.Image(t, "live.img")
			interop.Sh(t, "truncate", "-s", "192M", img)
			interop.Sh(t, "mkfs.btrfs", append(append([]string{"-q", "-m", "single"}, strings.Fields(interop.KindOf(seed).Linux)...), img)...)
			type crash struct {
				img string
				log []string
			}
			var crashes []crash
			interop.Mounted(t, img, "commit=300,noatime", func(dir string) {
				s := &scribbler{t: t, r: rand.New(rand.NewPCG(seed, 7)), f: interop.NewFiller(seed), dir: dir, dirs: []string{""}}
				for i := range min(batch, all) {
					if s.r.IntN(4) == 0 {
						// not sync(2), which writes back every file system of the machine
						interop.Sh(t, "sync", "-f", dir)
						s.log = append(s.log[:0:0], "sync")
					}
					for range 1 + s.r.IntN(8) {
						s.step()
					}
					s.sync()
					c := crash{fmt.Sprintf("%s.%d", img, i), slices.Clone(s.log)}
					interop.Sh(t, "cp", "--sparse=always", img, c.img)
					crashes = append(crashes, c)
				}
			})
			logs := 0
			for _, c := range crashes {
				theirs := c.img + ".linux"
				interop.Sh(t, "cp", "--sparse=always", c.img, theirs)
				if hasLog(t, c.img) {
					logs++
				}
				replaysAgree(t, c.img, theirs, c.log)
				interop.Must(t, os.Remove(theirs))
				interop.Must(t, os.Remove(c.img))
			}
			if logs == 0 {
				t.Errorf("none of %d images has a log", len(crashes))
			}
			t.Logf("%d of %d images had a log", logs, len(crashes))
		})
	}
}

// replaysAgree lets btrlab replay ours and Linux its copy theirs, and wants the same files and no
// damage. It returns the facts of the files; did is what was done to them, for the message.
func replaysAgree(t *testing.T, ours, theirs string, did []string) []string {
	t.Helper()
	var have, want []string
	interop.Mounted(t, theirs, "", func(dir string) { want = facts(t, dir, true) })
	replay(t, ours)
	interop.Judged(t, ours)
	interop.Judged(t, theirs)
	interop.Mounted(t, ours, "", func(dir string) { have = facts(t, dir, true) })
	if slices.Equal(have, want) {
		return want
	}
	for _, l := range did {
		t.Log(l)
	}
	for _, l := range want {
		if !slices.Contains(have, l) {
			t.Errorf("Linux replays  %s", l)
		}
	}
	for _, l := range have {
		if !slices.Contains(want, l) {
			t.Errorf("btrlab replays %s", l)
		}
	}
	t.FailNow()
	return nil
}

// hasLog looks into the superblock.
func hasLog(t *testing.T, img string) bool {
	t.Helper()
	h, err := os.Open(img)
	interop.Must(t, err)
	defer h.Close()
	b := make([]byte, 8)
	_, err = h.ReadAt(b, 64<<10+0x60)
	interop.Must(t, err)
	return slices.Max(b) > 0
}

// replay opens an image for writing and closes it.
func replay(t *testing.T, img string) {
	t.Helper()
	tk := sched.NewTask("replay")
	dev, err := blockdev.Open(img, 0)
	interop.Must(t, err)
	x, err := engine.Open(tk, []blockdev.Device{dev}, engine.Options{CheckQuiescence: true})
	interop.Must(t, err)
	interop.Must(t, x.Close(tk))
	interop.Must(t, dev.Close())
}
