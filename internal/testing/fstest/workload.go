package fstest

// A random workload and the model that judges it.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/script"
)

// Tree is the right content of a file system: the bytes of each file by path.
type Tree map[string][]byte

func (m Tree) Clone() Tree {
	c := Tree{}
	for name, b := range m {
		c[name] = bytes.Clone(b)
	}
	return c
}

// ReadTree reads the files of the root directory.
func ReadTree(t *sched.Task, f *fs.FS) (Tree, error) {
	list, err := f.ReadDir(t, "/")
	if err != nil {
		return nil, err
	}
	m := Tree{}
	for _, d := range list {
		x, err := f.OpenFile(t, "/"+d.Name, fs.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		b := make([]byte, x.Size(t))
		if _, err := x.ReadAt(t, b, 0); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w", d.Name, err)
		}
		m[d.Name] = b
		if err := x.Close(t); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Diff names the first difference. With inPlace set, writes are on their way to the device, and the
// bytes of NOCOW files, which no commit protects, may be old or new.
func Diff(have, want Tree, inPlace bool) string {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		b, ok := have[name]
		if !ok {
			return fmt.Sprintf("%s is missing", name)
		}
		if len(b) != len(want[name]) {
			return fmt.Sprintf("%s has %d bytes, want %d", name, len(b), len(want[name]))
		}
		if inPlace && IsNocow(name) || bytes.Equal(b, want[name]) {
			continue
		}
		for i := range b {
			if b[i] != want[name][i] {
				return fmt.Sprintf("%s differs at %d, have %#x want %#x", name, i, b[i], want[name][i])
			}
		}
	}
	for name := range have {
		if want[name] == nil {
			return fmt.Sprintf("%s should not be there", name)
		}
	}
	return ""
}

// Workload changes a file system and a model of it at random.
type Workload struct {
	Tb    testing.TB
	T     *sched.Task
	F     *fs.FS
	Model Tree
	Rng   *rand.Rand
	next  int
}

func (w *Workload) Must(err error) {
	w.Tb.Helper()
	if err != nil {
		w.Tb.Fatal(err)
	}
}

// do runs a line of a script.
func (w *Workload) do(format string, args ...any) {
	w.Tb.Helper()
	l := script.MustParse(fmt.Sprintf(format, args...))
	if err := l.Run(w.T, w.F); err != nil {
		w.Tb.Fatalf("%s: %v", l.Text, err)
	}
}

func (w *Workload) Pick() string {
	names := slices.Sorted(maps.Keys(w.Model))
	if len(names) == 0 {
		return ""
	}
	return names[w.Rng.IntN(len(names))]
}

// IsNocow says by its name that a file is overwritten in place.
func IsNocow(name string) bool { return strings.HasPrefix(name, "nocow") }

func (w *Workload) create() {
	name := fmt.Sprintf("f%d", w.next)
	if w.Rng.IntN(3) == 0 {
		name = fmt.Sprintf("nocow%d", w.next)
	}
	w.next++
	x, err := w.F.Create(w.T, "/"+name, 0o644)
	w.Must(err)
	if IsNocow(name) {
		w.Must(x.SetFlags(w.T, format.InodeNoDataCow))
	}
	w.Model[name] = []byte{}
	w.Must(x.Close(w.T))
	w.write(name)
}

func (w *Workload) Open(name string) *fs.File {
	x, err := w.F.OpenFile(w.T, "/"+name, fs.O_RDWR, 0)
	w.Must(err)
	return x
}

func (w *Workload) write(name string) {
	x := w.Open(name)
	off := w.Rng.IntN(64 << 10)
	b := make([]byte, 1+w.Rng.IntN(32<<10))
	if w.Rng.IntN(3) == 0 {
		off, b = 0, b[:1+w.Rng.IntN(min(len(b), 1000))] // inline while the file is small
	}
	write := x.WriteAt
	if w.Rng.IntN(3) == 0 { // past the page cache, in whole blocks
		off, b, write = off&^4095, make([]byte, (len(b)+4095)&^4095), x.WriteDirect
	}
	Random(w.Rng, b)
	n, err := write(w.T, b, int64(off))
	w.Must(err)
	if n != len(b) {
		w.Tb.Fatalf("wrote %d of %d", n, len(b))
	}
	m := w.Model[name]
	if end := off + len(b); end > len(m) {
		m = append(m, make([]byte, end-len(m))...)
	}
	copy(m[off:], b)
	w.Model[name] = m
	w.Must(x.Close(w.T))
}

func (w *Workload) Step() {
	name := w.Pick()
	if name == "" || len(w.Model) < 20 && w.Rng.IntN(3) == 0 {
		w.create()
		return
	}
	switch w.Rng.IntN(8) {
	case 0:
		w.do("rm /%s", name)
		delete(w.Model, name)
	case 1:
		size := w.Rng.IntN(96 << 10)
		w.do("truncate --size %d /%s", size, name)
		m := w.Model[name]
		if size <= len(m) {
			m = m[:size]
		} else {
			m = append(m, make([]byte, size-len(m))...)
		}
		w.Model[name] = m
	case 2:
		to := w.Pick()
		if to != name && IsNocow(to) == IsNocow(name) {
			w.do("mv /%s /%s", name, to)
			w.Model[to] = w.Model[name]
			delete(w.Model, name)
		}
	case 3:
		from, n := w.Rng.IntN(64<<10), 1+w.Rng.IntN(32<<10)
		w.do("fallocate --punch-hole --offset %d --length %d /%s", from, n, name)
		m := w.Model[name]
		if from < len(m) {
			clear(m[from:min(len(m), from+n)])
		}
	case 4:
		from, n := w.Rng.IntN(64<<10), 1+w.Rng.IntN(64<<10)
		w.do("fallocate --offset %d --length %d /%s", from, n, name)
		if m := w.Model[name]; from+n > len(m) {
			w.Model[name] = append(m, make([]byte, from+n-len(m))...)
		}
	default:
		w.write(name)
	}
}
