package kernel

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// model is a folder of the host that goes through the same edits as an image.
type model struct {
	t    *testing.T
	r    *rand.Rand
	f    *interop.Filler
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
	interop.BtrlabIn(m.t, stdin, args...)
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
	interop.Must(m.t, err)
	g(h)
	interop.Must(m.t, h.Close())
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
		name, b := m.name(), m.f.Bytes(m.size())
		interop.Write(m.t, m.host(name), b)
		args := []string{"put", "-", m.spec(name)}
		if m.r.IntN(4) == 0 {
			args = append(args, "--nocow")
		}
		m.doIn(string(b), args...)
		m.file = append(m.file, name)
	case 2:
		name := m.name()
		interop.Must(m.t, os.Mkdir(m.host(name), 0o755))
		m.do("mkdir", m.spec(name))
		m.dirs = append(m.dirs, name)
	case 3, 4, 5:
		off, b := m.size(), m.f.Bytes(m.size())
		m.edit(m.file[at], func(h *os.File) {
			if len(b) > 0 {
				_, err := h.WriteAt(b, int64(off))
				interop.Must(m.t, err)
			}
		})
		m.doIn(string(b), "write", "--offset", fmt.Sprint(off), m.spec(m.file[at]))
	case 6, 7:
		n := m.size()
		m.edit(m.file[at], func(h *os.File) { interop.Must(m.t, h.Truncate(int64(n))) })
		m.do("truncate", "--size", fmt.Sprint(n), m.spec(m.file[at]))
	case 8:
		off, n := m.size(), m.size()+200
		m.edit(m.file[at], func(h *os.File) {
			st, err := h.Stat()
			interop.Must(m.t, err)
			interop.Must(m.t, h.Truncate(max(st.Size(), int64(off+n))))
		})
		m.do("fallocate", "--offset", fmt.Sprint(off), "--length", fmt.Sprint(n), m.spec(m.file[at]))
	case 9:
		off, n := int64(m.size()), int64(m.size()+200)
		m.edit(m.file[at], func(h *os.File) {
			st, err := h.Stat()
			interop.Must(m.t, err)
			if end := min(off+n, st.Size()); end > off {
				_, err := h.WriteAt(make([]byte, end-off), off)
				interop.Must(m.t, err)
			}
		})
		m.do("fallocate", "--punch-hole", "--offset", fmt.Sprint(off), "--length", fmt.Sprint(n), m.spec(m.file[at]))
	case 10:
		name := m.name()
		if m.r.IntN(2) == 0 {
			interop.Must(m.t, os.Rename(m.host(m.file[at]), m.host(name)))
			m.do("mv", m.spec(m.file[at]), "/"+name)
			m.file[at] = name
		} else {
			interop.Must(m.t, os.Link(m.host(m.file[at]), m.host(name)))
			m.do("ln", m.spec(m.file[at]), "/"+name)
			m.file = append(m.file, name)
		}
	case 11:
		interop.Must(m.t, os.Remove(m.host(m.file[at])))
		m.do("rm", m.spec(m.file[at]))
		m.file = append(m.file[:at], m.file[at+1:]...)
	}
}

// TestRandomEdits: random edits, one process's worth each, on an image and on a folder; the image
// is the folder to us and to Linux, and Linux writes in between.
func TestRandomEdits(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	for seed := range uint64(interop.Pick(4*len(interop.ImageKinds), 1)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			m := &model{t: t, r: rand.New(rand.NewPCG(seed, 2)), f: interop.NewFiller(seed), img: interop.Image(t, "random.img"), dir: t.TempDir(), dirs: []string{""}}
			interop.KindOf(seed).Made(t, m.img, "512M", seed%2 == 0)
			defer func() {
				if t.Failed() {
					for _, l := range m.log[max(0, len(m.log)-60):] {
						t.Log(l)
					}
				}
			}()
			for range interop.Pick(4, 1) {
				for range 80 {
					m.step()
				}
				interop.Judged(t, m.img)
				out := filepath.Join(t.TempDir(), "out")
				interop.Btrlab(t, "get", "-r", m.img+":/", out)
				interop.NoTimes(t, out, m.dir)
				interop.SameTree(t, out, m.dir)
				interop.Must(t, os.RemoveAll(out))
				interop.Mounted(t, m.img, "", func(dir string) {
					interop.NoTimes(t, dir)
					interop.SameTree(t, dir, m.dir)
					interop.Scrubbed(t, dir)
					// Linux edits some of the same files.
					for i, name := range m.file {
						if i%3 != 0 {
							continue
						}
						b := m.f.Bytes(5000)
						for _, root := range []string{dir, m.dir} {
							h, err := os.OpenFile(filepath.Join(root, name), os.O_RDWR, 0)
							interop.Must(t, err)
							_, err = h.WriteAt(b, int64(i)*1000)
							interop.Must(t, err)
							interop.Must(t, h.Close())
						}
					}
				})
				interop.Judged(t, m.img)
			}
		})
	}
}
