package progs

import (
	"bytes"
	"crypto/sha256"
	bin "encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// Send streams: Linux's are received by us, ours by btrfs receive, and the trees are the same.

// carried is what a stream carries of a tree: a line for each name, with owner, mode, times,
// contents, extended attributes, and the first name of the same inode.
func carried(t *testing.T, dir string) map[string]string {
	t.Helper()
	m, first := map[string]string{}, map[uint64]string{}
	interop.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%o %d:%d %d.%09d %x", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec, st.Rdev)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d bytes %x", len(b), sha256.Sum256(b))
		case unix.S_IFLNK:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" -> %q", to)
		}
		line += " " + xattrsOf(t, path)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if _, ok := first[st.Ino]; !ok {
				first[st.Ino] = rel
			}
			line += fmt.Sprintf(" %d names, first %q", st.Nlink, first[st.Ino])
		}
		m[rel] = line
		return nil
	}))
	return m
}

func xattrsOf(t *testing.T, path string) string {
	t.Helper()
	list := make([]byte, 1<<16)
	n, err := unix.Llistxattr(path, list)
	interop.Must(t, err)
	var all []string
	for _, name := range strings.Split(strings.Trim(string(list[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 1<<16)
		n, err := unix.Lgetxattr(path, name, value)
		interop.Must(t, err)
		all = append(all, fmt.Sprintf("%s=%x", name, value[:n]))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// sameCarried wants two trees to be the same, as far as a stream carries them. In but are names
// that may differ.
func sameCarried(t *testing.T, what, have, want string, but ...string) {
	t.Helper()
	h, w := carried(t, have), carried(t, want)
	for _, name := range but {
		h[name] = w[name]
	}
	bad := 0
	for name, line := range w {
		if h[name] != line {
			if bad++; bad < 8 {
				t.Errorf("%s: %q:\nhave %s\nwant %s", what, name, h[name], line)
			}
		}
	}
	for name := range h {
		if _, ok := w[name]; !ok {
			if bad++; bad < 8 {
				t.Errorf("%s: %q should not be there", what, name)
			}
		}
	}
}

// acl is an access control list with one more user.
func acl(user uint32, perm uint16) []byte {
	b := bin.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 7, ^uint32(0)}, {2, perm, user}, {4, 5, ^uint32(0)}, {0x10, 7, ^uint32(0)}, {0x20, 5, ^uint32(0)}} {
		b = bin.LittleEndian.AppendUint16(b, e.tag)
		b = bin.LittleEndian.AppendUint16(b, e.perm)
		b = bin.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// every fills dir, on a mounted btrfs, with everything that a stream carries.
func every(t *testing.T, dir string) {
	t.Helper()
	interop.Tree(t, dir, 1, interop.Pick(600, 100))
	at := func(name string) string { return filepath.Join(dir, name) }
	f := interop.NewFiller(77)
	for _, d := range []string{"acl/inner", "compressed", "a/b/c/d", "gone/x/y", "swap1/in", "swap2/in"} {
		interop.Must(t, os.MkdirAll(at(d), 0o755))
	}
	interop.Must(t, unix.Setxattr(at("acl"), "system.posix_acl_default", acl(1234, 6), 0))
	interop.Must(t, unix.Setxattr(at("sizes/100"), "system.posix_acl_access", acl(77, 4), 0))
	interop.Must(t, unix.Setxattr(at("sizes/1"), "user.long", bytes.Repeat([]byte("v"), 3000), 0))
	interop.Must(t, unix.Setxattr(at("sizes/1"), "trusted.t", nil, 0))
	interop.Must(t, unix.Mknod(at("node"), unix.S_IFBLK|0o640, int(unix.Mkdev(259, 300))))
	interop.Must(t, unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0))
	for _, kind := range []string{"zlib", "lzo", "zstd"} {
		interop.Sh(t, "btrfs", "property", "set", at("compressed"), "compression", kind)
		interop.Write(t, at("compressed/"+kind), bytes.Repeat([]byte("a line of "+kind+"\n"), 40000))
		interop.Write(t, at("compressed/small"+kind), bytes.Repeat([]byte("a line\n"), 200))
		interop.Sh(t, "sync", "-f", dir)
	}
	interop.Write(t, at("shared"), f.Bytes(300000))
	interop.Sh(t, "cp", "--reflink=always", at("shared"), at("shared2"))
	interop.Write(t, at("prealloc"), f.Bytes(5000))
	interop.Sh(t, "fallocate", "-l", "1M", at("prealloc"))
	for _, d := range []string{"gone/x/f", "gone/x/y/g", "swap1/in/1", "swap2/in/2", "a/b/c/d/deep", "replaced", "takes"} {
		interop.Write(t, at(d), f.Bytes(1000))
	}
	interop.Must(t, os.Lchown(at("shared"), 1000, 1001))
	interop.Must(t, os.Lchown(at("links/soft"), 12, 13))
	interop.Must(t, os.Chmod(at("shared2"), 0o755))
	interop.Must(t, unix.Setxattr(at("shared2"), "security.capability", []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0))
	interop.Sh(t, "sync", "-f", dir)
}

// edit changes what every has made.
func edit(t *testing.T, dir string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	mv := func(from, to string) { interop.Must(t, os.Rename(at(from), at(to))) }
	f := interop.NewFiller(99)
	patch := func(name string, off int64, n int) {
		h, err := os.OpenFile(at(name), os.O_RDWR, 0)
		interop.Must(t, err)
		_, err = h.WriteAt(f.Bytes(n), off)
		interop.Must(t, err)
		interop.Must(t, h.Close())
	}
	// two directories change places, and one goes below the other that was below it
	mv("swap1", "tmp")
	mv("swap2", "swap1")
	mv("tmp", "swap2")
	mv("a/b/c", "c")
	mv("a/b", "c/b")
	mv("a", "c/b/a")
	interop.Must(t, os.RemoveAll(at("gone")))
	interop.Write(t, at("gone"), f.Bytes(10)) // the name of a directory is a file's now
	mv("takes", "replaced")
	interop.Must(t, os.Remove(at("links/hard1")))
	interop.Must(t, os.Link(at("sizes/4097"), at("c/hard3")))
	mv("sizes/4097", "sizes/moved")
	interop.Must(t, os.Remove(at("names/.hidden")))
	interop.Must(t, os.Remove(at("sizes/1")))
	interop.Must(t, os.Mkdir(at("sizes/1"), 0o2775))
	interop.Write(t, at("acl/new"), f.Bytes(10))
	interop.Must(t, os.Mkdir(at("acl/newdir"), 0o755))
	interop.Must(t, unix.Removexattr(at("sizes/100"), "system.posix_acl_access"))
	interop.Must(t, unix.Setxattr(at("sizes/2047"), "user.new", []byte("x"), 0))
	patch("sizes/131073", 70000, 5000)
	patch("sizes/2048", 100, 10)
	patch("sparse", 3<<20, 5000)
	patch("shared2", 4096, 10) // and its capability goes
	patch("compressed/zstd", 200000, 10000)
	patch("prealloc", 500000, 3000)
	interop.Must(t, os.Truncate(at("sizes/1048579"), 500000))
	interop.Must(t, os.Truncate(at("sizes/4096"), 100000))
	interop.Sh(t, "fallocate", "-p", "-o", "1000000", "-l", "2000000", at("sizes/5242880"))
	interop.Sh(t, "cp", "--reflink=always", at("shared"), at("c/shared3"))
	interop.Sh(t, "cp", "--reflink=always", at("compressed/lzo"), at("c/lzo"))
	interop.Must(t, os.Chmod(at("sizes/100"), 0o600))
	interop.Must(t, os.Lchown(at("pipe"), 5, 6))
	old := time.Unix(1e9, 5)
	interop.Must(t, os.Chtimes(at("sizes"), old, old))
	interop.Sh(t, "sync", "-f", dir)
}

// twoMounts mounts two images.
func twoMounts(t *testing.T, a, b string, f func(a, b string)) {
	t.Helper()
	interop.Mounted(t, a, "", func(x string) { interop.Mounted(t, b, "", func(y string) { f(x, y) }) })
}

// linuxImage is an empty image of mkfs.btrfs.
func linuxImage(t *testing.T, name, size string) string {
	t.Helper()
	img := interop.Image(t, name)
	interop.Sh(t, "truncate", "-s", size, img)
	interop.Sh(t, "mkfs.btrfs", "-q", img)
	return img
}

func snapshotOf(t *testing.T, from, to string) {
	t.Helper()
	interop.Sh(t, "btrfs", "subvolume", "snapshot", "-r", from, to)
}

// sendLinux writes the stream of btrfs send to a file.
func sendLinux(t *testing.T, file string, args ...string) {
	t.Helper()
	interop.Sh(t, "btrfs", append([]string{"send", "-q", "-f", file}, args...)...)
}

// TestStreams: a tree with everything, and what has become of it, by Linux's streams of both
// versions to us, and by ours to Linux; also an incremental one of ours on Linux's own full one.
func TestStreams(t *testing.T) {
	interop.Linux(t, "fallocate", "cp")
	src := linuxImage(t, "src.img", "1G")
	dir := t.TempDir()
	stream := func(name string) string { return filepath.Join(dir, name) }
	interop.Mounted(t, src, "", func(m string) {
		interop.Sh(t, "btrfs", "subvolume", "create", m+"/s")
		every(t, m+"/s")
		snapshotOf(t, m+"/s", m+"/s1")
		edit(t, m+"/s")
		snapshotOf(t, m+"/s", m+"/s2")
		sendLinux(t, stream("full-v1"), m+"/s1")
		sendLinux(t, stream("inc-v1"), "-p", m+"/s1", m+"/s2")
		sendLinux(t, stream("full-v2"), "--proto", "2", "--compressed-data", m+"/s1")
		sendLinux(t, stream("inc-v2"), "--proto", "2", "--compressed-data", "-p", m+"/s1", m+"/s2")
	})
	for _, v := range []string{"v1", "v2"} {
		t.Run("Linux's "+v+" to us", func(t *testing.T) {
			img := interop.Image(t, "dst.img")
			interop.Btrlab(t, "mkfs", "-q", "--size", "1G", img)
			interop.Btrlab(t, "receive", "-f", stream("full-"+v), img)
			interop.Btrlab(t, "receive", "-f", stream("inc-"+v), img)
			interop.Judged(t, img)
			twoMounts(t, img, src, func(have, want string) {
				sameCarried(t, "full", have+"/s1", want+"/s1")
				sameCarried(t, "incremental", have+"/s2", want+"/s2")
				interop.Scrubbed(t, have)
				out := interop.Sh(t, "btrfs", "subvolume", "show", have+"/s2")
				uuid := field(t, interop.Sh(t, "btrfs", "subvolume", "show", want+"/s2"), "UUID:")
				if field(t, out, "Received UUID:") != uuid || !strings.Contains(out, "readonly") {
					t.Errorf("s2 was received from %s:\n%s", uuid, out)
				}
			})
			// and on from there: Linux sends what we have received, we receive it
			interop.Mounted(t, img, "", func(m string) {
				interop.Sh(t, "btrfs", "subvolume", "snapshot", m+"/s2", m+"/w")
				interop.Write(t, m+"/w/more", interop.NewFiller(3).Bytes(9000))
				snapshotOf(t, m+"/w", m+"/s3")
				sendLinux(t, stream("third-"+v), "-p", m+"/s2", m+"/s3")
			})
			interop.Btrlab(t, "subvolume", "delete", img+":/s3")
			interop.Btrlab(t, "receive", "-f", stream("third-"+v), img+":/")
			interop.Judged(t, img)
		})
	}
	for _, v := range []string{"1", "2"} {
		t.Run("ours "+v+" to Linux", func(t *testing.T) {
			img := linuxImage(t, "dst.img", "1G")
			interop.Btrlab(t, "send", "--proto", v, "-f", stream("ours-full"), src+":/s1")
			interop.Btrlab(t, "send", "--proto", v, "-p", "/s1", "-f", stream("ours-inc"), src+":/s2")
			twoMounts(t, img, src, func(have, want string) {
				interop.Sh(t, "btrfs", "receive", "-f", stream("ours-full"), have)
				sameCarried(t, "full", have+"/s1", want+"/s1")
				interop.Sh(t, "btrfs", "receive", "-f", stream("ours-inc"), have)
				sameCarried(t, "incremental", have+"/s2", want+"/s2")
				interop.Sh(t, "btrfs", "subvolume", "create", have+"/other")
				interop.Sh(t, "btrfs", "receive", "-f", stream("full-v1"), have+"/other")
				interop.Sh(t, "btrfs", "receive", "-f", stream("ours-inc"), have+"/other")
				sameCarried(t, "incremental on Linux's full", have+"/other/s2", want+"/s2")
				interop.Scrubbed(t, have)
			})
			interop.Judged(t, img)
		})
	}
}

// field is what stands after a label.
func field(t *testing.T, out, label string) string {
	t.Helper()
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), label); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("no %q in\n%s", label, out)
	return ""
}

// linuxAuthor changes a directory of a mounted btrfs at random.
type linuxAuthor struct {
	t    *testing.T
	r    *rand.Rand
	f    *interop.Filler
	top  string
	made int
}

func (a *linuxAuthor) all() (dirs, files, others []string) {
	interop.Must(a.t, filepath.WalkDir(a.top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			dirs = append(dirs, path)
		case d.Type().IsRegular():
			files = append(files, path)
		default:
			others = append(others, path)
		}
		return nil
	}))
	return dirs, files, others
}

func (a *linuxAuthor) step() {
	r := a.r
	one := func(list []string) string { return list[r.IntN(len(list))] }
	dirs, files, others := a.all()
	fresh := func() string {
		a.made++
		return filepath.Join(one(dirs), fmt.Sprintf("n%d", r.IntN(14)))
	}
	any := slices.Concat(dirs[1:], files, others)
	switch what := r.IntN(24); {
	case what < 4 || len(any) == 0:
		_ = os.Mkdir(fresh(), 0o755)
	case what < 8:
		if h, err := os.OpenFile(fresh(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
			a.write(h)
		}
	case what < 9:
		_ = os.Symlink(fmt.Sprintf("to%d", a.made), fresh())
	case what < 10:
		_ = unix.Mknod(fresh(), []uint32{unix.S_IFIFO, unix.S_IFCHR, unix.S_IFSOCK}[r.IntN(3)]|0o640, int(unix.Mkdev(1, uint32(r.IntN(1000)))))
	case what < 14:
		_ = os.Rename(one(any), fresh())
	case what < 15:
		_ = unix.Renameat2(unix.AT_FDCWD, one(any), unix.AT_FDCWD, one(any), unix.RENAME_EXCHANGE)
	case what < 17 && len(files)+len(others) > 0:
		_ = os.Link(one(slices.Concat(files, others)), fresh())
	case what < 19:
		interop.Must(a.t, os.RemoveAll(one(any)))
	case what < 22 && len(files) > 0:
		h, err := os.OpenFile(one(files), os.O_RDWR, 0)
		interop.Must(a.t, err)
		a.write(h)
	case what < 23 && len(files) > 1:
		_ = exec.Command("cp", "--reflink=always", one(files), one(files)).Run()
	default:
		a.attrs(one(append(any, a.top)))
	}
}

func (a *linuxAuthor) write(h *os.File) {
	r := a.r
	for range 1 + r.IntN(3) {
		off, n := int64(r.IntN(60000)), 1+r.IntN(20000)
		if r.IntN(3) == 0 {
			n = 1 + r.IntN(300)
		}
		var err error
		switch r.IntN(7) {
		case 0:
			err = h.Truncate(off)
		case 1:
			err = unix.Fallocate(int(h.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, int64(n))
		case 2:
			err = unix.Fallocate(int(h.Fd()), uint32(r.IntN(2)), off, int64(n))
		case 3:
			_, err = h.WriteAt(bytes.Repeat([]byte("abc"), n), off)
		case 4:
			off = 0
			fallthrough
		default:
			_, err = h.WriteAt(a.f.Bytes(n), off)
		}
		interop.Must(a.t, err)
	}
	if r.IntN(2) == 0 {
		interop.Must(a.t, h.Sync())
	}
	interop.Must(a.t, h.Close())
}

func (a *linuxAuthor) attrs(path string) {
	r := a.r
	st, err := os.Lstat(path)
	interop.Must(a.t, err)
	switch link := st.Mode()&os.ModeSymlink != 0; r.IntN(6) {
	case 0:
		if !link {
			interop.Must(a.t, syscall.Chmod(path, uint32(r.IntN(0o10000))))
		}
	case 1:
		interop.Must(a.t, os.Lchown(path, r.IntN(5), r.IntN(5)))
	case 2:
		_ = unix.Lremovexattr(path, fmt.Sprintf("trusted.%d", r.IntN(3)))
	case 3:
		if st.Mode().IsRegular() {
			interop.Must(a.t, unix.Setxattr(path, "security.capability", []byte{1, 0, 0, 2, byte(r.IntN(8)), 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0))
		}
	case 4:
		if st.IsDir() {
			if name := "system.posix_acl_default"; r.IntN(2) == 0 {
				interop.Must(a.t, unix.Setxattr(path, name, acl(uint32(r.IntN(9)), 6), 0))
			} else {
				_ = unix.Removexattr(path, name)
			}
		} else if !link {
			interop.Must(a.t, unix.Setxattr(path, "system.posix_acl_access", acl(uint32(r.IntN(9)), 4), 0))
		}
	default:
		interop.Must(a.t, unix.Lsetxattr(path, fmt.Sprintf("trusted.%d", r.IntN(3)), fmt.Appendf(nil, "%d", r.IntN(1000)), 0))
	}
}

// TestStreamsRandom: random changes between snapshots, with a mount between them, so that numbers
// of inodes are used again. Our streams are received by Linux, Linux's by us.
func TestStreamsRandom(t *testing.T) {
	need.Long(t)
	interop.Linux(t, "cp")
	src, dst, ours := linuxImage(t, "src.img", "4G"), linuxImage(t, "dst.img", "4G"), interop.Image(t, "ours.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "4G", ours)
	dir := filepath.Dir(ours)
	const snapshots = 3
	seeds := interop.Pick(40, 3)
	vol := func(seed int) string { return fmt.Sprintf("v%d", seed) }
	snap := func(seed, i int) string { return fmt.Sprintf("v%d-%d", seed, i) }
	authors := make([]*linuxAuthor, seeds)
	for i := range snapshots {
		interop.Mounted(t, src, []string{"", "compress-force=zstd", "compress-force=lzo"}[i], func(m string) {
			for seed := range seeds {
				if i == 0 {
					interop.Sh(t, "btrfs", "subvolume", "create", m+"/"+vol(seed))
					authors[seed] = &linuxAuthor{t: t, r: rand.New(rand.NewPCG(uint64(seed), 4)), f: interop.NewFiller(uint64(seed))}
				}
				a := authors[seed]
				a.top = m + "/" + vol(seed)
				for range 10 + a.r.IntN(60) {
					a.step()
				}
				snapshotOf(t, a.top, m+"/"+snap(seed, i))
				args := []string{"--proto", fmt.Sprint(1 + seed%2)}
				if seed%2 == 1 {
					args = append(args, "--compressed-data")
				}
				if i > 0 {
					args = append(args, "-p", m+"/"+snap(seed, i-1))
				}
				sendLinux(t, filepath.Join(dir, "linux"+snap(seed, i)), append(args, m+"/"+snap(seed, i))...)
			}
		})
	}
	for seed := range seeds {
		for i := range snapshots {
			name := snap(seed, i)
			interop.Btrlab(t, "receive", "-f", filepath.Join(dir, "linux"+name), ours)
			args := []string{"send", "--proto", fmt.Sprint(1 + seed%2), "-f", filepath.Join(dir, "ours"+name), src + ":/" + name}
			if i > 0 {
				args = append(args, "-p", "/"+snap(seed, i-1))
			}
			interop.Btrlab(t, args...)
		}
	}
	interop.Judged(t, ours)
	twoMounts(t, src, dst, func(want, have string) {
		interop.Mounted(t, ours, "ro", func(mine string) {
			for seed := range seeds {
				for i := range snapshots {
					name := snap(seed, i)
					if out, err := exec.Command("btrfs", "receive", "-f", filepath.Join(dir, "ours"+name), have).CombinedOutput(); err != nil {
						t.Errorf("seed %d: btrfs receive %s: %v\n%s", seed, name, err, interop.Tail(out))
						continue
					}
					sameCarried(t, fmt.Sprintf("seed %d: ours to Linux: %s", seed, name), have+"/"+name, want+"/"+name)
					// Linux does not always set the times of the top directory again after
					// what it has made there for a moment.
					sameCarried(t, fmt.Sprintf("seed %d: Linux's to us: %s", seed, name), mine+"/"+name, want+"/"+name, ".")
				}
			}
		})
		interop.Scrubbed(t, have)
	})
	interop.Judged(t, dst)
}
