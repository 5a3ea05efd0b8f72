package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/hostio"
	"btrlab/internal/interop"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// state is a file as Linux makes it, and the write that is tried on it without waiting: n bytes at
// off.
type state struct {
	name   string
	nocow  bool
	off, n int64
	make   func(f *maker)
	shared func(f *maker) // done to the whole file system once all files are made
}

const kib = 1 << 10

var states = []state{
	{"NOCOW, written", true, 8 * kib, 4 * kib, func(f *maker) { f.write(0, 64*kib) }, nil},
	{"NOCOW, preallocated", true, 8 * kib, 4 * kib, func(f *maker) { f.allocate(0, 0, 64*kib) }, nil},
	{"NOCOW, punched hole", true, 8 * kib, 4 * kib, func(f *maker) {
		f.write(0, 64*kib)
		f.allocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4*kib, 16*kib)
	}, nil},
	{"NOCOW, sparse inside EOF", true, 8 * kib, 4 * kib, func(f *maker) { f.write(60*kib, 4*kib) }, nil},
	{"NOCOW, append", true, 64 * kib, 4 * kib, func(f *maker) { f.write(0, 64*kib) }, nil},
	{"NOCOW, append to preallocated", true, 64 * kib, 4 * kib, func(f *maker) { f.write(0, 64*kib); f.allocate(unix.FALLOC_FL_KEEP_SIZE, 64*kib, 64*kib) }, nil},
	{"NOCOW, beyond EOF", true, 100 * kib, 4 * kib, func(f *maker) { f.write(0, 64*kib) }, nil},
	{"NOCOW, 512 bytes", true, 8*kib + 512, 512, func(f *maker) { f.write(0, 64*kib) }, nil},
	{"NOCOW, several extents", true, 8 * kib, 16 * kib, func(f *maker) {
		// an extent each: what lies between is written first
		for off := int64(0); off < 64*kib; off += 4 * kib {
			f.write((off+32*kib)%(64*kib), 4*kib)
			f.sync()
		}
	}, nil},
	{"NOCOW, shared by a reflink", true, 8 * kib, 4 * kib, func(f *maker) { f.write(0, 64*kib); f.sync(); f.sh("cp", "--reflink=always", f.path, f.path+".link") }, nil},
	{"NOCOW, shared by a snapshot", true, 8 * kib, 4 * kib, func(f *maker) { f.write(0, 64*kib) },
		func(f *maker) { f.sh("btrfs", "subvolume", "snapshot", f.dir, filepath.Join(f.dir, "snap")) }},
	{"COW, written", false, 8 * kib, 4 * kib, func(f *maker) { f.write(0, 64*kib) }, nil},
	{"COW, preallocated", false, 8 * kib, 4 * kib, func(f *maker) { f.allocate(0, 0, 64*kib) }, nil},
	{"COW, preallocated, written over", false, 8 * kib, 4 * kib, func(f *maker) { f.allocate(0, 0, 64*kib); f.write(0, 64*kib) }, nil},
	{"COW, append to preallocated", false, 64 * kib, 4 * kib, func(f *maker) { f.allocate(unix.FALLOC_FL_KEEP_SIZE, 0, 128*kib); f.write(0, 64*kib) }, nil},
	{"NOCOW, with capabilities", true, 8 * kib, 4 * kib, func(f *maker) {
		f.write(0, 64*kib)
		interop.Must(f.t, unix.Fsetxattr(f.fd, "security.capability", []byte{1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0))
	}, nil},
	{"compressed", false, 8 * kib, 4 * kib, func(f *maker) { f.sh("chattr", "+c", f.path); f.write(0, 128*kib) }, nil},
}

// The ways of a request, and what was done to its range before.
var (
	ways   = []string{"buffered", "direct"}
	caches = []string{"cold", "cached", "dirty"}
)

// maker makes one file by the running kernel.
type maker struct {
	t         *testing.T
	dir, path string
	fd        int
}

func (f *maker) write(off, n int64) {
	f.t.Helper()
	if k, err := unix.Pwrite(f.fd, bytes.Repeat([]byte("linux"), int(n)/5+1)[:n], off); int64(k) != n {
		f.t.Fatalf("%s: write: %d, %v", f.path, k, err)
	}
}

func (f *maker) allocate(mode uint32, off, n int64) {
	f.t.Helper()
	interop.Must(f.t, unix.Fallocate(f.fd, mode, off, n))
}

func (f *maker) sync() {
	f.t.Helper()
	interop.Must(f.t, unix.Fsync(f.fd))
}

func (f *maker) sh(name string, args ...string) {
	f.t.Helper()
	interop.Sh(f.t, name, args...)
}

// cell is one question: a state, a way and what was done to the range.
type cell struct {
	s          *state
	way, cache string
}

// file is the cell's file, of which side "kernel" or "ours" tries the write.
func (c *cell) file(side string) string {
	dir := "cow"
	if c.s.nocow {
		dir = "nocow"
	}
	i := 0
	for states[i].name != c.s.name {
		i++
	}
	return filepath.Join(dir, fmt.Sprintf("%s-%d-%s-%s", side, i, c.way, c.cache))
}

// askLinux makes the files of the cells in an image and tries the write of each by the running
// kernel. The files of our side are made alike and left as they are.
func askLinux(t *testing.T, img string, cells []*cell) map[*cell]string {
	t.Helper()
	said := map[*cell]string{}
	interop.Mounted(t, img, "", func(dir string) {
		for _, sub := range []string{"cow", "nocow"} {
			interop.Must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
		}
		interop.Sh(t, "chattr", "+C", filepath.Join(dir, "nocow"))
		for _, c := range cells {
			for _, side := range []string{"kernel", "ours"} {
				f := maker{t: t, dir: dir, path: filepath.Join(dir, c.file(side))}
				var err error
				f.fd, err = unix.Open(f.path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o644)
				interop.Must(t, err)
				c.s.make(&f)
				f.sync()
				interop.Must(t, unix.Close(f.fd))
			}
		}
		for i := range states {
			if s := &states[i]; s.shared != nil && len(cells) > 0 && cells[0].s == s {
				s.shared(&maker{t: t, dir: dir})
			}
		}
		interop.Sh(t, "sync", "-f", dir)
		for _, c := range cells {
			said[c] = tryLinux(t, filepath.Join(dir, c.file("kernel")), c)
		}
	})
	return said
}

// tryLinux brings the file into its cache state and tries the write. An EAGAIN is asked again: tree
// blocks are locked now and then by what the machine does besides. An answer that is the kernel's
// stays EAGAIN.
func tryLinux(t *testing.T, path string, c *cell) (said string) {
	t.Helper()
	for range 5 {
		if said = tryOnce(t, path, c); said != "EAGAIN" {
			break
		}
	}
	return said
}

func tryOnce(t *testing.T, path string, c *cell) string {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDWR, 0)
	interop.Must(t, err)
	defer unix.Close(fd)
	all := make([]byte, 256*kib)
	read := func() {
		if _, err := unix.Pread(fd, all, 0); err != nil {
			t.Fatal(err)
		}
	}
	// the end of the last cell's write has tree blocks locked, for a moment
	interop.Must(t, unix.Syncfs(fd))
	read() // so that the metadata is in memory in every state of the range
	interop.Must(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
	p := hostio.Resident(int(c.s.n))
	switch c.cache {
	case "cached":
		read()
	case "dirty":
		if n, err := unix.Pwrite(fd, p, c.s.off); n != len(p) {
			t.Fatal(n, err)
		}
	}
	if c.way == "direct" {
		if fd, err = unix.Open(path, unix.O_RDWR|unix.O_DIRECT, 0); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	n, err := unix.Pwritev2(fd, [][]byte{p}, c.s.off, unix.RWF_NOWAIT)
	return jobs.Verdict(n, c.s.n, err)
}

// answer is our side's errno, with the step that would have slept.
type answer struct {
	verdict string
	again   kiocb.Again
	err     error
}

// askUs tries the writes on the image that Linux has left.
func askUs(t *testing.T, img, spec string, cells []*cell) map[*cell]answer {
	t.Helper()
	said := map[*cell]answer{}
	k := sched.NewTask("test")
	dev, err := blockdev.Open(img, 0)
	interop.Must(t, err)
	defer dev.Close()
	pol, err := policy.Parse(spec)
	interop.Must(t, err)
	x, err := fs.Open(k, []blockdev.Device{dev}, fs.Options{Policy: &pol})
	interop.Must(t, err)
	for _, c := range cells {
		// the end of the last cell's write has tree blocks locked, for a moment
		interop.Must(t, x.Sync(k))
		f, err := x.OpenFile(k, "/"+c.file("ours"), fs.O_RDWR, 0)
		interop.Must(t, err)
		all := make([]byte, f.Size(k))
		_, readErr := f.ReadAt(k, all, 0)
		f.DropCache(k, 0, 1<<20)
		p := hostio.Aligned(int(c.s.n))
		switch c.cache {
		case "cached":
			_, readErr = f.ReadAt(k, all, 0)
		case "dirty":
			_, readErr = f.WriteAt(k, p, c.s.off)
		}
		// compressed extents are not read
		if readErr != nil && !errors.Is(readErr, errno.EOPNOTSUPP) {
			t.Fatal(readErr)
		}
		rq := kiocb.Request{Pos: uint64(c.s.off), Flags: kiocb.Nowait}
		if c.way == "direct" {
			rq.Flags |= kiocb.Direct
		}
		n, err := f.WriteIter(k, rq, iopath.Source{Buf: p})
		a := answer{verdict: jobs.Verdict(n, c.s.n, err), err: err}
		errors.As(err, &a.again)
		said[c] = a
		interop.Must(t, f.Close(k))
	}
	interop.Must(t, x.Close(k))
	return said
}

// sayers finds the lines of our code that answer with each kiocb.Again, by its name.
func sayers(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	word := regexp.MustCompile(`kiocb\.(Again[A-Z]\w*)`)
	interop.Must(t, filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for i, line := range strings.Split(string(b), "\n") {
			if m := word.FindStringSubmatch(line); m != nil && !strings.HasPrefix(strings.TrimSpace(line), "//") {
				out[m[1]] = append(out[m[1]], fmt.Sprintf("%s:%d", strings.TrimPrefix(path, "../../"), i+1))
			}
		}
		return err
	}))
	return out
}

// TestVerdicts asks the running kernel and our engine, under the policy that models it, for a write
// that must not wait, of files in every state, buffered and direct, with its range cold, cached and
// dirty. Both answer on files that Linux has made in one image. The two must agree: where the
// kernel would sleep, so would we.
//
// Run with -v it prints the table of labs/reference 4.4.
func TestVerdicts(t *testing.T) {
	interop.Linux(t, "chattr")
	kernel := strings.Fields(interop.Sh(t, "uname", "-r"))[0]
	said, ours := map[*cell]string{}, map[*cell]answer{}
	var cells []*cell
	var alone [][]*cell // the cells of an image
	for _, shared := range []bool{false, true} {
		var here []*cell
		for i := range states {
			if (states[i].shared != nil) != shared {
				continue
			}
			for _, way := range ways {
				for _, cache := range caches {
					here = append(here, &cell{&states[i], way, cache})
				}
			}
		}
		alone = append(alone, here)
	}
	for i, here := range alone {
		img := interop.Image(t, fmt.Sprintf("verdicts-%d.img", i))
		interop.Must(t, os.WriteFile(img, nil, 0o600))
		interop.Must(t, os.Truncate(img, 512<<20))
		interop.Sh(t, "mkfs.btrfs", "-q", img)
		for c, v := range askLinux(t, img, here) {
			said[c] = v
		}
		for c, a := range askUs(t, img, "modern", here) {
			ours[c] = a
		}
		interop.Judged(t, img)
		cells = append(cells, here...)
	}
	sort.SliceStable(cells, func(i, j int) bool { return index(cells[i].s) < index(cells[j].s) })

	letters := map[kiocb.Again]string{}
	var legend []kiocb.Again
	agree := 0
	var wrong []string
	var b strings.Builder
	fmt.Fprintf(&b, "RWF_NOWAIT writes, Linux %s and policy modern; columns: cold, cached, dirty\n\n", kernel)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "file\tbuffered\tdirect")
	for i := 0; i < len(cells); i += len(ways) * len(caches) {
		fmt.Fprint(w, cells[i].s.name)
		for j := i; j < i+len(ways)*len(caches); j++ {
			c, a := cells[j], ours[cells[j]]
			word := said[c]
			if a.verdict != word {
				wrong = append(wrong, fmt.Sprintf("%s, %s, %s: Linux %s, ours %s (%v)", c.s.name, c.way, c.cache, word, a.verdict, a.err))
				word += "!"
			} else if agree++; a.again != 0 {
				if letters[a.again] == "" {
					letters[a.again] = string(rune('a' + len(legend)))
					legend = append(legend, a.again)
				}
				word = letters[a.again]
			}
			sep := " "
			if (j-i)%len(caches) == 0 {
				sep = "\t"
			}
			fmt.Fprintf(w, "%s%-4s", sep, word)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Fprintf(&b, "\n%d of %d agree. EAGAIN, and the lines of ours that say it:\n", agree, len(cells))
	lines, names := sayers(t), againNames(t)
	for _, a := range legend {
		if lines[names[a]] == nil {
			t.Errorf("no line says kiocb.%s", names[a])
		}
		fmt.Fprintf(&b, "  %s  %s: %s\n     %s\n", letters[a], a.Place(), a.Reason(), strings.Join(lines[names[a]], " "))
	}
	t.Log("\n" + regexp.MustCompile(` +\n`).ReplaceAllString(b.String(), "\n"))
	for _, l := range wrong {
		t.Error(l)
	}
}

func index(s *state) int {
	for i := range states {
		if &states[i] == s {
			return i
		}
	}
	return -1
}

// againNames are the names of kiocb's constants.
func againNames(t *testing.T) map[kiocb.Again]string {
	t.Helper()
	src, err := os.ReadFile("../../kiocb/again.go")
	interop.Must(t, err)
	names := map[kiocb.Again]string{}
	for i, m := range regexp.MustCompile(`(?m)^\t(Again[A-Z]\w*)\s+//`).FindAllStringSubmatch(string(src), -1) {
		names[kiocb.Again(i+1)] = m[1]
	}
	return names
}
