package progs

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	engine "btrlab/internal/fs"
	"btrlab/internal/interop"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

var (
	raid56Sequences = flag.Int("raid56.sequences", 0, "how many sequences TestRAID56 makes; 0 is a sample")
	raid56First     = flag.Uint64("raid56.first", 1, "the seed of the first")
)

// TestRAID56: Linux and btrlab write one file system of RAID5 or RAID6 on 3 to 6 devices in turns,
// with rows written whole and in part. After each turn both read all of it, also without as many
// devices as the profile bears; scrub finds no error and both checkers are content. Then btrlab
// writes without devices, both read that, the devices are replaced, and Linux scrubs.
//
// Linux 6.18 does not write without devices here, since it loses what it writes then (in 19 to 22
// of 30 sequences that Linux alone made), and does not replace the first of two missing devices,
// where data without checksums comes out wrong (in 3 of 40).
func TestRAID56(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	all := *raid56Sequences
	if all == 0 {
		all = interop.Pick(12, 2)
	}
	for i := range all {
		seed := *raid56First + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { newRAID(t, seed).sequence() })
	}
}

// raid is a file system and the contents that its files should have.
type raid struct {
	array
	t     *testing.T
	r     *rand.Rand
	f     *interop.Filler
	bears int // devices that may be missing
	files map[string][]byte
	nocow map[string]bool
	next  int
	log   []string
}

func newRAID(t *testing.T, seed uint64) *raid {
	w := &raid{t: t, r: rand.New(rand.NewPCG(seed, 56)), f: interop.NewFiller(seed), files: map[string][]byte{}, nocow: map[string]bool{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(w.log, "\n"))
		}
	})
	w.array = newArray(t, 3+w.r.IntN(4))
	for _, path := range w.array {
		interop.Must(t, os.Truncate(path, 1<<30)) // for scrub, which wants room
	}
	data, metadata := "raid5", []string{"raid5", "raid1", "raid6", "raid1c3"}
	if w.bears = 1; w.r.IntN(2) == 0 {
		data, metadata, w.bears = "raid6", []string{"raid6", "raid1c3"}, 2
	}
	args := []string{"-q", "-d", data, "-m", metadata[w.r.IntN(len(metadata))]}
	if w.r.IntN(2) == 0 {
		w.note("btrlab mkfs %d %v", len(w.array), args)
		interop.Btrlab(t, w.verb("", append([]string{"mkfs"}, args...)...)...)
	} else {
		w.note("mkfs.btrfs %d %v", len(w.array), args)
		w.attachedTo(t, func(loops []string) {
			interop.Sh(t, "mkfs.btrfs", slices.Concat(args, []string{"-f", "-O", "no-holes", "-R", "free-space-tree"}, loops)...)
		})
	}
	return w
}

func (w *raid) note(text string, a ...any) { w.log = append(w.log, fmt.Sprintf(text, a...)) }

func (w *raid) sequence() {
	first := w.r.IntN(2)
	for turn := range 4 {
		w.turn(w.array, (turn+first)%2 == 0, false)
		w.judged(w.t)
		w.mounted(w.t, func(dir string) {
			w.linuxHas(dir)
			interop.Scrubbed(w.t, dir)
		})
		w.without(w.lose())
	}
	left := w.lose()
	w.turn(left, true, true)
	w.without(left)
	w.replaced(left)
}

// lose is all but as many devices as may be missing.
func (w *raid) lose() array {
	left := slices.Clone(w.array)
	for range 1 + w.r.IntN(w.bears) {
		i := w.r.IntN(len(left))
		left = slices.Delete(left, i, i+1)
	}
	return left
}

// without has both read the files on the devices that are left.
func (w *raid) without(left array) {
	w.t.Helper()
	w.note("without: left %v", names(left))
	left.mounted(w.t, w.linuxHas, "degraded,ro")
	tk := sched.NewTask("read")
	x, done := left.open(w.t, tk, engine.Options{Degraded: true, ReadOnly: true})
	defer done()
	for name, want := range w.files {
		h, err := x.OpenFile(tk, "/"+name, engine.O_RDONLY, 0)
		interop.Must(w.t, err)
		have := make([]byte, h.Size(tk))
		if _, err := h.ReadAt(tk, have, 0); err != nil && len(have) > 0 || !bytes.Equal(have, want) {
			w.t.Fatalf("btrlab: %s has other bytes, %v", name, err)
		}
		interop.Must(w.t, h.Close(tk))
	}
}

func names(a array) (list []string) {
	for _, path := range a {
		list = append(list, filepath.Base(path))
	}
	return list
}

// open opens the devices with the engine, until done.
func (a array) open(t *testing.T, tk *sched.Task, o engine.Options) (x *engine.FS, done func()) {
	t.Helper()
	var devs []blockdev.Device
	for _, path := range a {
		flags := blockdev.Flags(0)
		if o.ReadOnly {
			flags = blockdev.ReadOnly
		}
		d, err := blockdev.Open(path, flags)
		interop.Must(t, err)
		devs = append(devs, d)
	}
	x, err := engine.Open(tk, devs, o)
	interop.Must(t, err)
	return x, func() {
		t.Helper()
		err := x.Close(tk)
		for _, d := range devs {
			err = errors.Join(err, d.Close())
		}
		interop.Must(t, err)
	}
}

// linuxHas wants Linux to read the files.
func (w *raid) linuxHas(dir string) {
	w.t.Helper()
	list, err := os.ReadDir(dir)
	interop.Must(w.t, err)
	if len(list) != len(w.files) {
		w.t.Fatalf("linux: %d files, want %d", len(list), len(w.files))
	}
	for name, want := range w.files {
		if have, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(have, want) {
			w.t.Fatalf("linux: %s has other bytes, %v", name, err)
		}
	}
}

// side carries out operations on files.
type side interface {
	create(name string, nocow bool)
	write(name string, p []byte, off int64, direct bool)
	fsync(name string)
	sync()
	remove(name string)
}

// turn is random operations by one of both.
func (w *raid) turn(on array, ours, degraded bool) {
	w.t.Helper()
	w.note("turn: ours %v degraded %v", ours, degraded)
	if !ours {
		on.mounted(w.t, func(dir string) { w.operations(&linuxSide{w.t, dir}) })
		return
	}
	tk := sched.NewTask("write")
	x, done := on.open(w.t, tk, engine.Options{Degraded: degraded})
	w.operations(&ourSide{w.t, tk, x})
	done()
}

func (w *raid) operations(s side) {
	for range 6 + w.r.IntN(10) {
		have := slices.Sorted(maps.Keys(w.files))
		switch n := w.r.IntN(20); {
		case len(have) < 3 || n < 5:
			name := fmt.Sprint("f", w.next)
			w.next++
			w.nocow[name], w.files[name] = w.r.IntN(3) == 0, nil
			w.note("create %s nocow %v", name, w.nocow[name])
			s.create(name, w.nocow[name])
			w.write(s, name, 0, 1+w.r.IntN([]int{100, 5000, 200000, 1500000}[w.r.IntN(4)]), false)
		case n < 15:
			name := have[w.r.IntN(len(have))]
			at, long := w.r.IntN(len(w.files[name])+1), 1+w.r.IntN([]int{5000, 70000, 400000}[w.r.IntN(3)])
			direct := w.r.IntN(3) == 0
			if direct {
				at, long = at&^4095, (long+4095)&^4095
			}
			w.write(s, name, at, long, direct)
		case n < 17:
			name := have[w.r.IntN(len(have))]
			w.note("fsync %s", name)
			s.fsync(name)
		case n < 18:
			w.note("sync")
			s.sync()
		default:
			name := have[w.r.IntN(len(have))]
			w.note("remove %s", name)
			s.remove(name)
			delete(w.files, name)
		}
	}
}

func (w *raid) write(s side, name string, at, n int, direct bool) {
	w.note("write %s %d+%d direct %v", name, at, n, direct)
	p := w.f.Bytes(n)
	if had := w.files[name]; at+n > len(had) {
		w.files[name] = append(had, make([]byte, at+n-len(had))...)
	}
	copy(w.files[name][at:], p)
	s.write(name, p, int64(at), direct)
}

// ourSide is the engine.
type ourSide struct {
	t  *testing.T
	tk *sched.Task
	x  *engine.FS
}

func (s *ourSide) file(name string, flags engine.OpenFlags, f func(h *engine.File) error) {
	s.t.Helper()
	h, err := s.x.OpenFile(s.tk, "/"+name, engine.O_RDWR|flags, 0o644)
	interop.Must(s.t, err)
	interop.Must(s.t, errors.Join(f(h), h.Close(s.tk)))
}

func (s *ourSide) create(name string, nocow bool) {
	s.file(name, engine.O_CREAT, func(h *engine.File) error {
		if !nocow {
			return nil
		}
		return h.SetFlags(s.tk, format.InodeNoDataCow)
	})
}

func (s *ourSide) write(name string, p []byte, off int64, direct bool) {
	s.file(name, 0, func(h *engine.File) error {
		write := h.WriteAt
		if direct {
			write = h.WriteDirect
		}
		_, err := write(s.tk, p, off)
		return err
	})
}

func (s *ourSide) fsync(name string) {
	s.file(name, 0, func(h *engine.File) error { return h.Fsync(s.tk) })
}

func (s *ourSide) sync() { interop.Must(s.t, s.x.Sync(s.tk)) }

func (s *ourSide) remove(name string) { interop.Must(s.t, s.x.Unlink(s.tk, "/"+name)) }

// linuxSide is a mount by Linux.
type linuxSide struct {
	t   *testing.T
	dir string
}

func (s *linuxSide) file(name string, flags int, f func(h *os.File) error) {
	s.t.Helper()
	h, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDWR|flags, 0o644)
	interop.Must(s.t, err)
	interop.Must(s.t, errors.Join(f(h), h.Close()))
}

func (s *linuxSide) create(name string, nocow bool) {
	s.file(name, os.O_CREATE, func(h *os.File) error {
		if nocow {
			interop.Sh(s.t, "chattr", "+C", h.Name())
		}
		return nil
	})
}

func (s *linuxSide) write(name string, p []byte, off int64, direct bool) {
	if direct {
		path := filepath.Join(s.t.TempDir(), "p")
		interop.Must(s.t, os.WriteFile(path, p, 0o600))
		interop.Sh(s.t, "dd", "if="+path, "of="+filepath.Join(s.dir, name), "bs="+fmt.Sprint(len(p)), "count=1",
			"seek="+fmt.Sprint(off), "oflag=direct,seek_bytes", "conv=notrunc", "status=none")
		return
	}
	s.file(name, 0, func(h *os.File) error { _, err := h.WriteAt(p, off); return err })
}

func (s *linuxSide) fsync(name string) {
	s.file(name, 0, func(h *os.File) error { return h.Sync() })
}

func (s *linuxSide) sync() { interop.Sh(s.t, "btrfs", "filesystem", "sync", s.dir) }

func (s *linuxSide) remove(name string) {
	interop.Must(s.t, os.Remove(filepath.Join(s.dir, name)))
}

// replaced puts new devices in the place of those that are missing: Linux does so for one, btrlab
// for two.
func (w *raid) replaced(left array) {
	w.t.Helper()
	ours := len(left)+1 < len(w.array)
	for i, path := range w.array {
		if slices.Contains(left, path) {
			continue
		}
		fresh := path + "-new"
		interop.Sh(w.t, "truncate", "-s", "1G", fresh)
		w.note("replace %d", i+1)
		if ours {
			interop.Btrlab(w.t, append(left.verb("", "device", "replace", "--degraded"), fmt.Sprint(i+1), fresh)...)
		} else {
			slices.Insert(slices.Clone(left), 0, fresh).mountedAs(w.t, func(dir string, loops []string) {
				interop.Sh(w.t, "btrfs", "replace", "start", "-B", "-f", fmt.Sprint(i+1), loops[0], dir)
				w.linuxHas(dir)
			}, 1, "degraded")
		}
		left = append(slices.Clone(left), fresh)
	}
	left.mounted(w.t, func(dir string) {
		w.linuxHas(dir)
		// Scrub wants room for a chunk; those made without devices, single ones, have it.
		interop.Sh(w.t, "btrfs", "balance", "start", "-dusage=0", "-musage=0", dir)
		interop.Scrubbed(w.t, dir)
	})
	left.judged(w.t)
	w.array = left
	w.without(w.lose())
}
