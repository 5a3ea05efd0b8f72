package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// volumes is an image with subvolumes, and beside it what their files should hold.
type volumes struct {
	t    *testing.T
	img  string
	r    *rand.Rand
	vols []*volumeModel
	made int
}

type volumeModel struct {
	name     string // of its directory; empty for the top-level subvolume
	readOnly bool
	files    map[string][]byte
	nocow    map[string]bool
}

func (v *volumeModel) path(name string) string { return "/" + filepath.Join(v.name, name) }

// turner does the operations of one turn on the image.
type turner interface {
	create(path string, data []byte, nocow bool)
	write(path string, off int, text string, n int)
	reflink(from, to string)
	unlink(path string)
	snapshot(from, to string, readOnly bool)
	remove(vol string)
}

// theirs is Linux, with the image mounted on dir.
type theirs struct {
	t   *testing.T
	dir string
}

func (l *theirs) create(path string, data []byte, nocow bool) {
	interop.Must(l.t, os.WriteFile(l.dir+path, nil, 0o644))
	if nocow {
		interop.Sh(l.t, "chattr", "+C", l.dir+path)
	}
	interop.Must(l.t, os.WriteFile(l.dir+path, data, 0o644))
}

func (l *theirs) write(path string, off int, text string, n int) {
	f, err := os.OpenFile(l.dir+path, os.O_WRONLY, 0)
	interop.Must(l.t, err)
	_, err = f.WriteAt(pattern(text, n), int64(off))
	interop.Must(l.t, err)
	interop.Must(l.t, f.Close())
}

func (l *theirs) reflink(from, to string) {
	interop.Sh(l.t, "cp", "--reflink=always", l.dir+from, l.dir+to)
}
func (l *theirs) unlink(path string) { interop.Must(l.t, os.Remove(l.dir+path)) }
func (l *theirs) remove(vol string)  { interop.Sh(l.t, "btrfs", "subvolume", "delete", "-c", l.dir+vol) }

func (l *theirs) snapshot(from, to string, readOnly bool) {
	args := []string{"subvolume", "snapshot"}
	if readOnly {
		args = append(args, "-r")
	}
	interop.Sh(l.t, "btrfs", append(args, l.dir+from, l.dir+to)...)
}

// ours is a script for btrlab sh.
type ours struct {
	t     *testing.T
	dir   string
	n     int
	lines []string
}

func (o *ours) say(format string, args ...any) {
	o.lines = append(o.lines, fmt.Sprintf(format, args...))
}

func (o *ours) create(path string, data []byte, nocow bool) {
	o.n++
	host := filepath.Join(o.dir, fmt.Sprint(o.n))
	interop.Must(o.t, os.WriteFile(host, data, 0o644))
	o.say("put --nocow=%v %s %s", nocow, host, path)
}

func (o *ours) write(path string, off int, text string, n int) {
	o.say("write --offset %d --length %d --data %s %s", off, n, text, path)
}
func (o *ours) reflink(from, to string) { o.say("reflink %s %s", from, to) }
func (o *ours) unlink(path string)      { o.say("rm %s", path) }
func (o *ours) remove(vol string)       { o.say("subvolume delete %s", vol) }
func (o *ours) snapshot(from, to string, readOnly bool) {
	o.say("snapshot --readonly=%v %s %s", readOnly, from, to)
}

func pattern(text string, n int) []byte { return bytes.Repeat([]byte(text), n/len(text)+1)[:n] }

func (x *volumes) writable() *volumeModel {
	for {
		if v := x.vols[x.r.IntN(len(x.vols))]; !v.readOnly {
			return v
		}
	}
}

func (x *volumes) file(v *volumeModel) string {
	names := slices.Sorted(maps.Keys(v.files))
	if len(names) == 0 {
		return ""
	}
	return names[x.r.IntN(len(names))]
}

// step does one operation; reflinks of NOCOW files are ours alone, because cp makes files that are
// COW.
func (x *volumes) step(do turner, nocowLinks bool) {
	v, from := x.writable(), x.vols[x.r.IntN(len(x.vols))]
	name := x.file(v)
	what := x.r.IntN(20)
	if name == "" {
		what = 0
	}
	switch {
	case what < 4:
		x.made++
		name, nocow := fmt.Sprintf("f%d", x.made), x.r.IntN(2) == 0
		data := pattern(fmt.Sprintf("made%d.", x.made), 1+x.r.IntN(60<<10))
		do.create(v.path(name), data, nocow)
		v.files[name], v.nocow[name] = data, nocow
	case what < 12:
		x.made++
		text, off, n := fmt.Sprintf("w%d.", x.made), x.r.IntN(len(v.files[name])+8000), 1+x.r.IntN(20<<10)
		if x.r.IntN(2) == 0 {
			off, n = off&^4095, n&^4095+4096
		}
		do.write(v.path(name), off, text, n)
		b := append(bytes.Clone(v.files[name]), make([]byte, max(off+n-len(v.files[name]), 0))...)
		copy(b[off:], pattern(text, n))
		v.files[name] = b
	case what < 15:
		src := x.file(from)
		if src == "" || from.nocow[src] && !nocowLinks {
			return
		}
		x.made++
		to := fmt.Sprintf("r%d", x.made)
		do.reflink(from.path(src), v.path(to))
		v.files[to], v.nocow[to] = bytes.Clone(from.files[src]), from.nocow[src]
	case what < 16:
		do.unlink(v.path(name))
		delete(v.files, name)
		delete(v.nocow, name)
	case what < 19:
		if len(x.vols) > 6 {
			return
		}
		x.made++
		s := &volumeModel{name: fmt.Sprintf("s%d", x.made), readOnly: x.r.IntN(3) == 0, files: map[string][]byte{}, nocow: maps.Clone(from.nocow)}
		for name, b := range from.files {
			s.files[name] = bytes.Clone(b)
		}
		do.snapshot(from.path(""), s.path(""), s.readOnly)
		x.vols = append(x.vols, s)
	default:
		if i := x.r.IntN(len(x.vols)); i > 0 {
			do.remove(x.vols[i].path(""))
			x.vols = slices.Delete(x.vols, i, i+1)
		}
	}
}

// compare holds the files below dir, the image's top, against the model.
func (x *volumes) compare(dir, whose string) {
	x.t.Helper()
	for _, v := range x.vols {
		have, err := os.ReadDir(dir + v.path(""))
		interop.Must(x.t, err)
		files := 0
		for _, e := range have {
			if !e.IsDir() {
				files++
			}
		}
		if files != len(v.files) {
			x.t.Fatalf("%s: %s has %d files, want %d", whose, v.path(""), files, len(v.files))
		}
		for name, want := range v.files {
			b, err := os.ReadFile(dir + v.path(name))
			interop.Must(x.t, err)
			if !bytes.Equal(b, want) {
				i := 0
				for i < min(len(b), len(want)) && b[i] == want[i] {
					i++
				}
				x.t.Fatalf("%s: %s has %d bytes, want %d, the first difference is at %d", whose, v.path(name), len(b), len(want), i)
			}
		}
	}
}

// Snapshots, shared extents and deleted subvolumes by turns: Linux makes them and we go on, and the
// other way round. After each turn both checkers find nothing, and both of us read the same bytes,
// the model's.
func TestSnapshots(t *testing.T) {
	need.Long(t)
	interop.Linux(t, "chattr", "cp")
	for _, c := range []struct {
		name  string
		first func(img string)
	}{
		{"ours", func(img string) { interop.Btrlab(t, "mkfs", "--size", "512M", img) }},
		{"theirs, small nodes", func(img string) {
			interop.Must(t, os.WriteFile(img, nil, 0o600))
			interop.Must(t, os.Truncate(img, 512<<20))
			interop.Sh(t, "mkfs.btrfs", "-q", "-n", "4096", img)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			img := filepath.Join(t.TempDir(), "i.img")
			c.first(img)
			x := &volumes{t: t, img: img, r: rand.New(rand.NewPCG(11, uint64(len(c.name))))}
			x.vols = []*volumeModel{{files: map[string][]byte{}, nocow: map[string]bool{}}}
			for turn := range interop.Pick(10, 4) {
				if turn%2 == 0 {
					o := &ours{t: t, dir: t.TempDir()}
					for range 60 {
						x.step(o, true)
					}
					interop.BtrlabIn(t, strings.Join(o.lines, "\n"), "sh", img)
				} else {
					interop.Mounted(t, img, "", func(dir string) {
						for range 60 {
							x.step(&theirs{t, dir}, false)
						}
						interop.Sh(t, "btrfs", "subvolume", "sync", dir)
					})
				}
				interop.Judged(t, img)
				interop.Mounted(t, img, "", func(dir string) {
					x.compare(dir, fmt.Sprintf("turn %d, Linux", turn))
					interop.Scrubbed(t, dir)
				})
				got := filepath.Join(t.TempDir(), "got")
				interop.Btrlab(t, "get", "-r", "-s", img+":/", got)
				x.compare(got, fmt.Sprintf("turn %d, btrlab", turn))
			}
		})
	}
}

// A subvolume whose deletion was cut off after its name had gone is dropped by whoever opens the
// image next.
func TestDeadSubvolume(t *testing.T) {
	interop.Linux(t)
	img := filepath.Join(t.TempDir(), "i.img")
	interop.Btrlab(t, "mkfs", "--size", "512M", img)
	src := t.TempDir()
	interop.Tree(t, src, 3, interop.Pick(400, 60))
	interop.Btrlab(t, "put", "-r", src, img+":/a")
	interop.Btrlab(t, "snapshot", img+":/", "/s")
	interop.Btrlab(t, "put", "-r", src, img+":/s/b")
	// Linux unlinks the subvolume and is stopped before its cleaner has run: nobody waits for it.
	interop.Mounted(t, img, "", func(dir string) { interop.Sh(t, "btrfs", "subvolume", "delete", "-c", filepath.Join(dir, "s")) })
	interop.Btrlab(t, "mkdir", img+":/after")
	interop.Judged(t, img)
	if out := interop.Btrlab(t, "subvolume", "list", img); out != "" {
		t.Errorf("subvolumes: %s", out)
	}
	if out := interop.Sh(t, "btrfs", "inspect-internal", "dump-tree", "-t", "root", img); strings.Contains(out, "ORPHAN") {
		t.Errorf("the root tree has an orphan:\n%s", interop.Tail([]byte(out)))
	}
	interop.Mounted(t, img, "", func(dir string) { interop.SameTree(t, filepath.Join(dir, "a"), src) })
}

// Subvolumes are renamed and moved by both, by the same steps: the verdicts, the names and the ids
// are the same afterwards, and both checkers find nothing. Linux mounts what we have renamed, by
// the new name as well, and goes on.
func TestSubvolumeRename(t *testing.T) {
	interop.Linux(t)
	dir := t.TempDir()
	imgs := []string{filepath.Join(dir, "ours.img"), filepath.Join(dir, "theirs.img")}
	interop.Btrlab(t, "mkfs", "-q", "--size", "512M", imgs[0])
	interop.BtrlabIn(t, `mkdir /dir
subvolume create /@
subvolume create /@/inner
subvolume create /other
mkdir /other/d
snapshot /@ /snap
snapshot -r /@ /ro
`, "sh", imgs[0])
	interop.Sh(t, "cp", imgs[0], imgs[1])
	steps := [][2]string{{"/@", "/@old"}, {"/@old", "/dir/@"}, {"/dir/@/inner", "/other/d/in"}, {"/dir", "/dir2"}, {"/dir2/@", "/other/d/@"},
		{"/ro", "/read"}, {"/read", "/dir2/read"}, {"/other", "/other/d/x"}, {"/other", "/other/d/@/x"}, {"/other/d", "/dir2/d"},
		{"/snap/inner", "/snap/in"}, {"/other/d/in", "/read/inner"}, {"/other/d/in", "/snap/inner"}, {"/snap/inner", "/dir2/back"}, {"/none", "/x"},
		{"/read/none", "/x"}, {"/read/inner", "/read/x"}, {"/read/inner", "/read/inner"}}
	verdicts := [2][]string{}
	for _, s := range steps {
		_, out := interop.Try("mv", imgs[0]+":"+s[0], s[1])
		verdicts[0] = append(verdicts[0], strings.TrimSpace(out[strings.LastIndex(out, ":")+1:]))
	}
	interop.Mounted(t, imgs[1], "", func(dir string) {
		for _, s := range steps {
			var errno unix.Errno
			word := ""
			if errors.As(unix.Rename(dir+s[0], dir+s[1]), &errno) {
				word = errno.Error()
			}
			verdicts[1] = append(verdicts[1], word)
		}
	})
	for i, s := range steps {
		if verdicts[0][i] != verdicts[1][i] {
			t.Errorf("mv %s %s: %q, Linux %q", s[0], s[1], verdicts[0][i], verdicts[1][i])
		}
	}
	var lists [2]string
	for i, img := range imgs {
		interop.Judged(t, img)
		interop.Mounted(t, img, "", func(dir string) {
			for _, l := range strings.Split(interop.Sh(t, "btrfs", "subvolume", "list", "-r", dir)+interop.Sh(t, "btrfs", "subvolume", "list", dir), "\n") {
				if f := strings.Fields(l); len(f) > 8 {
					lists[i] += f[1] + " in " + f[6] + " " + f[8] + "\n" // without the generation
				}
			}
			interop.Sh(t, "touch", dir+"/other/d/@/x")
			interop.Sh(t, "btrfs", "subvolume", "delete", "-c", dir+"/other/d/@")
		})
		interop.Judged(t, img)
	}
	if lists[0] == "" || lists[0] != lists[1] {
		t.Errorf("subvolumes\n%s\nLinux\n%s", lists[0], lists[1])
	}
	interop.Mounted(t, imgs[0], "subvol=/other", func(dir string) { interop.Sh(t, "ls", dir+"/d") })
}

// TestDu: what files and directories take, of reflinks, snapshots, compression and holes, is what
// btrfs filesystem du says.
func TestDu(t *testing.T) {
	interop.Linux(t)
	img := interop.Image(t, "du.img")
	interop.Sh(t, "truncate", "-s", "512M", img)
	interop.Sh(t, "mkfs.btrfs", "-q", img)
	var want string
	interop.Mounted(t, img, "compress=zstd", func(dir string) {
		f := interop.NewFiller(1)
		interop.Sh(t, "btrfs", "subvolume", "create", filepath.Join(dir, "a"))
		for _, name := range []string{"a/x", "a/y", "z", "d/only"} {
			interop.Write(t, filepath.Join(dir, name), append(f.Bytes(300000), make([]byte, 500000)...))
		}
		interop.Sh(t, "cp", "--reflink", filepath.Join(dir, "z"), filepath.Join(dir, "d/copy"))
		interop.Sh(t, "dd", "if=/dev/urandom", "of="+filepath.Join(dir, "z"), "bs=4k", "seek=7", "count=9", "conv=notrunc", "status=none")
		interop.Sh(t, "truncate", "-s", "2M", filepath.Join(dir, "d/only"))
		interop.Write(t, filepath.Join(dir, "d/inline"), []byte("x"))
		interop.Sh(t, "sync")
		interop.Sh(t, "btrfs", "subvolume", "snapshot", filepath.Join(dir, "a"), filepath.Join(dir, "d/snap"))
		interop.Sh(t, "dd", "if=/dev/urandom", "of="+filepath.Join(dir, "d/snap/x"), "bs=64k", "seek=1", "count=2", "conv=notrunc", "status=none")
		interop.Sh(t, "sync")
		want = interop.Sh(t, "btrfs", "filesystem", "du", "--raw", dir)
		want = strings.ReplaceAll(want, dir+"/", "/")
		want = strings.ReplaceAll(want, dir, "/")
	})
	have := map[string][]string{}
	for _, l := range strings.Split(interop.Btrlab(t, "du", "--raw", img), "\n") {
		if f := strings.Fields(l); len(f) == 4 {
			have[f[3]] = f
		}
	}
	n := 0
	for _, l := range strings.Split(want, "\n") {
		f := strings.Fields(l)
		if len(f) != 4 || f[3] == "Filename" {
			continue
		}
		n++
		h := have[f[3]]
		if h == nil || h[0] != f[0] || h[1] != f[1] || f[2] != "-" && h[2] != f[2] {
			t.Errorf("have %q want %q", h, f)
		}
	}
	if n < 9 {
		t.Errorf("btrfs filesystem du said %d things:\n%s", n, want)
	}
}
