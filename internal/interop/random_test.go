package interop

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"btrlab/internal/testing/need"
)

// model is a folder of the host that goes through the same edits as an image.
type model struct {
	t    *testing.T
	r    *rand.Rand
	f    *filler
	img  string
	dir  string
	seq  int
	log  []string
	dirs []string // "" is the root
	file []string
}

func (m *model) host(name string) string { return filepath.Join(m.dir, name) }
func (m *model) spec(name string) string { return m.img + ":/" + name }

func (m *model) do(args ...string) {
	m.t.Helper()
	m.doIn("", args...)
}

func (m *model) doIn(stdin string, args ...string) {
	m.t.Helper()
	m.log = append(m.log, fmt.Sprint(args))
	btrlabIn(m.t, stdin, args...)
}

func (m *model) name() string {
	m.seq++
	return filepath.Join(m.dirs[m.r.IntN(len(m.dirs))], fmt.Sprintf("n%d", m.seq))
}

// size favours the borders: inline, sector, several extents.
func (m *model) size() int {
	base := []int{0, 1, 2048, 4096, 8192, 65536, 131072, 1 << 20}[m.r.IntN(8)]
	return max(0, base+m.r.IntN(200)-100)
}

func (m *model) edit(name string, g func(h *os.File)) {
	h, err := os.OpenFile(m.host(name), os.O_RDWR, 0)
	must(m.t, err)
	g(h)
	must(m.t, h.Close())
}

// step makes one random edit on both sides.
func (m *model) step() {
	kind := m.r.IntN(12)
	if len(m.file) == 0 && kind > 2 {
		kind = 0
	}
	at := 0
	if len(m.file) > 0 {
		at = m.r.IntN(len(m.file))
	}
	switch kind {
	case 0, 1:
		name, b := m.name(), m.f.bytes(m.size())
		write(m.t, m.host(name), b)
		args := []string{"put", "-", m.spec(name)}
		if m.r.IntN(4) == 0 {
			args = append(args, "--nocow")
		}
		m.doIn(string(b), args...)
		m.file = append(m.file, name)
	case 2:
		name := m.name()
		must(m.t, os.Mkdir(m.host(name), 0o755))
		m.do("mkdir", m.spec(name))
		m.dirs = append(m.dirs, name)
	case 3, 4, 5:
		off, b := m.size(), m.f.bytes(m.size())
		m.edit(m.file[at], func(h *os.File) {
			if len(b) > 0 {
				_, err := h.WriteAt(b, int64(off))
				must(m.t, err)
			}
		})
		m.doIn(string(b), "write", "--offset", fmt.Sprint(off), m.spec(m.file[at]))
	case 6, 7:
		n := m.size()
		m.edit(m.file[at], func(h *os.File) { must(m.t, h.Truncate(int64(n))) })
		m.do("truncate", "--size", fmt.Sprint(n), m.spec(m.file[at]))
	case 8:
		off, n := m.size(), m.size()+200
		m.edit(m.file[at], func(h *os.File) {
			st, err := h.Stat()
			must(m.t, err)
			must(m.t, h.Truncate(max(st.Size(), int64(off+n))))
		})
		m.do("fallocate", "--offset", fmt.Sprint(off), "--length", fmt.Sprint(n), m.spec(m.file[at]))
	case 9:
		off, n := int64(m.size()), int64(m.size()+200)
		m.edit(m.file[at], func(h *os.File) {
			st, err := h.Stat()
			must(m.t, err)
			if end := min(off+n, st.Size()); end > off {
				_, err := h.WriteAt(make([]byte, end-off), off)
				must(m.t, err)
			}
		})
		m.do("fallocate", "--punch-hole", "--offset", fmt.Sprint(off), "--length", fmt.Sprint(n), m.spec(m.file[at]))
	case 10:
		name := m.name()
		if m.r.IntN(2) == 0 {
			must(m.t, os.Rename(m.host(m.file[at]), m.host(name)))
			m.do("mv", m.spec(m.file[at]), "/"+name)
			m.file[at] = name
		} else {
			must(m.t, os.Link(m.host(m.file[at]), m.host(name)))
			m.do("ln", m.spec(m.file[at]), "/"+name)
			m.file = append(m.file, name)
		}
	case 11:
		must(m.t, os.Remove(m.host(m.file[at])))
		m.do("rm", m.spec(m.file[at]))
		m.file = append(m.file[:at], m.file[at+1:]...)
	}
}

// noTimes sets all times of regular files to one, on both sides: edits take place at two moments.
func noTimes(t *testing.T, dirs ...string) {
	t.Helper()
	when := time.Unix(1_000_000_000, 0)
	for _, dir := range dirs {
		for name, e := range list(t, dir) {
			if e.mode.IsRegular() {
				must(t, os.Chtimes(filepath.Join(dir, name), when, when))
			}
		}
	}
}

// TestRandomEdits: random edits, one process's worth each, on an image and on a folder; the image
// is the folder to us and to Linux, and Linux writes in between.
func TestRandomEdits(t *testing.T) {
	need.Long(t)
	linux(t)
	for seed := range uint64(pick(4*len(imageKinds), 1)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			m := &model{t: t, r: rand.New(rand.NewPCG(seed, 2)), f: newFiller(seed), img: image(t, "random.img"), dir: t.TempDir(), dirs: []string{""}}
			kindOf(seed).made(t, m.img, "512M", seed%2 == 0)
			defer func() {
				if t.Failed() {
					for _, l := range m.log[max(0, len(m.log)-60):] {
						t.Log(l)
					}
				}
			}()
			for range pick(4, 1) {
				for range 80 {
					m.step()
				}
				judged(t, m.img)
				out := filepath.Join(t.TempDir(), "out")
				btrlab(t, "get", "-r", m.img+":/", out)
				noTimes(t, out, m.dir)
				sameTree(t, out, m.dir)
				must(t, os.RemoveAll(out))
				mounted(t, m.img, "", func(dir string) {
					noTimes(t, dir)
					sameTree(t, dir, m.dir)
					scrubbed(t, dir)
					// Linux edits some of the same files.
					for i, name := range m.file {
						if i%3 != 0 {
							continue
						}
						b := m.f.bytes(5000)
						for _, root := range []string{dir, m.dir} {
							h, err := os.OpenFile(filepath.Join(root, name), os.O_RDWR, 0)
							must(t, err)
							_, err = h.WriteAt(b, int64(i)*1000)
							must(t, err)
							must(t, h.Close())
						}
					}
				})
				judged(t, m.img)
			}
		})
	}
}
