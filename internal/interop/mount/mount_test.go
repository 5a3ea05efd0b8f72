package mount

import (
	"bytes"
	le "encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// fuseMount is an image that the program serves at a directory.
type fuseMount struct {
	dir string
	cmd *exec.Cmd
	out *os.File // what it prints, but for the first byte
	err bytes.Buffer
}

// fuse skips the test where nothing can be mounted by FUSE.
func fuse(t *testing.T, tools ...string) {
	t.Helper()
	interop.Linux(t, tools...)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		need.Without(t, "/dev/fuse")
	}
}

// serve mounts img with the program bin. The mount ends with the test.
func serve(t *testing.T, bin, img string, flags ...string) *fuseMount {
	t.Helper()
	m := &fuseMount{dir: filepath.Join(t.TempDir(), "fuse")}
	interop.Must(t, os.Mkdir(m.dir, 0o755))
	m.cmd = exec.Command(bin, append([]string{"mount", img, m.dir, "--allow-other"}, flags...)...)
	m.cmd.Stderr = &m.err
	out, in, err := os.Pipe()
	interop.Must(t, err)
	m.cmd.Stdout, m.out = in, out
	interop.Must(t, m.cmd.Start())
	interop.Must(t, in.Close())
	t.Cleanup(func() {
		if m.cmd.ProcessState == nil {
			_ = m.cmd.Process.Kill()
			_ = m.cmd.Wait()
		}
		_ = unix.Unmount(m.dir, unix.MNT_DETACH) // it may be gone already
		_ = m.out.Close()
	})
	if line, err := io.ReadAll(io.LimitReader(out, 1)); len(line) == 0 {
		_ = m.cmd.Wait()
		t.Fatalf("mount %s: %v %s", img, err, m.err.String())
	}
	return m
}

// mode is a way to mount, its flags with room for more.
type mode struct {
	name  string
	flags []string
}

// modes are the ways to mount: who caches file data, and how requests come. A kernel that has FUSE
// over io_uring offers it until the end of the test.
func modes(t *testing.T) []mode {
	t.Helper()
	all := []mode{
		{"cache=none", []string{"--cache", "none", "--io-uring", "no"}},
		{"cache=kernel", []string{"--cache", "kernel", "--io-uring", "no"}},
	}
	const enable = "/sys/module/fuse/parameters/enable_uring"
	was, err := os.ReadFile(enable)
	if err != nil {
		t.Log("NOT JUDGED: FUSE over io_uring, which this kernel has not")
		return all
	}
	interop.Must(t, os.WriteFile(enable, []byte("Y"), 0))
	t.Cleanup(func() { interop.Must(t, os.WriteFile(enable, was[:1], 0)) })
	return append(all, mode{"cache=none, io_uring", []string{"--cache", "none", "--io-uring", "yes"}},
		mode{"cache=kernel, io_uring", []string{"--cache", "kernel", "--io-uring", "yes"}})
}

// path is a path below the mount point.
func (m *fuseMount) path(name string) string { return filepath.Join(m.dir, name) }

// end waits for the program after an umount or a signal.
func (m *fuseMount) end(t *testing.T) {
	t.Helper()
	if err := m.cmd.Wait(); err != nil {
		t.Errorf("mount ended with %v\n%s", err, m.err.String())
	}
}

func (m *fuseMount) umount(t *testing.T) {
	t.Helper()
	interop.Sh(t, "umount", m.dir)
	m.end(t)
}

// TestMount: what programs do with a mounted image is what Linux, which mounts it afterwards, and
// both checkers find in it: whoever caches file data.
func TestMount(t *testing.T) {
	fuse(t, "cp", "setfacl", "getfacl", "setfattr")
	bin := interop.Binary(t)
	for _, mode := range modes(t) {
		t.Run(mode.name, func(t *testing.T) {
			img := interop.Image(t, "mount.img")
			interop.Btrlab(t, "mkfs", "-q", "--size", "1G", img)
			m := serve(t, bin, img, mode.flags...)
			want := t.TempDir()
			fill := interop.NewFiller(20261126)
			for i, n := range []int{0, 1, 2048, 4096, 4097, 300000, 5 << 20} {
				interop.Write(t, filepath.Join(want, "tree", fmt.Sprintf("d%d", i%3), fmt.Sprintf("f%d", i)), fill.Bytes(n))
			}
			interop.Must(t, os.Symlink("d0/f0", filepath.Join(want, "tree", "link")))
			interop.Must(t, os.Link(filepath.Join(want, "tree/d1/f1"), filepath.Join(want, "tree/hard")))
			interop.Must(t, unix.Mkfifo(filepath.Join(want, "tree/fifo"), 0o640))
			interop.Sh(t, "cp", "-a", filepath.Join(want, "tree"), m.dir)
			interop.SameTree(t, m.dir, want)

			mountNames(t, m)
			mountBytes(t, m)
			mountRights(t, m)
			for _, name := range []string{"names", "bytes", "rights"} { // as the mount has them
				interop.Sh(t, "cp", "-a", m.path(name), want)
			}
			m.umount(t)
			interop.Judged(t, img)
			interop.Mounted(t, img, "ro", func(dir string) { interop.SameTree(t, dir, want) })
			interop.Mounted(t, img, "", func(dir string) {
				if out := interop.Sh(t, "getfacl", "-cpn", filepath.Join(dir, "rights/acl/made")); !strings.Contains(out, "user:1000:rw") {
					t.Errorf("the list that Linux finds: %s", out)
				}
				interop.Scrubbed(t, dir)
			})
		})
	}
}

// mountNames makes, links, moves and removes names.
func mountNames(t *testing.T, m *fuseMount) {
	t.Helper()
	interop.Must(t, os.Mkdir(m.path("names"), 0o755))
	for _, name := range []string{"a", "b", "open"} {
		interop.Must(t, os.WriteFile(m.path("names/"+name), []byte(name), 0o644))
	}
	at := func(name string) string { return m.path("names/" + name) }
	rename := func(from, to string, flags uint) error {
		return unix.Renameat2(unix.AT_FDCWD, at(from), unix.AT_FDCWD, at(to), flags)
	}
	if err := rename("a", "b", unix.RENAME_NOREPLACE); !errors.Is(err, unix.EEXIST) {
		t.Errorf("RENAME_NOREPLACE: %v, want EEXIST", err)
	}
	interop.Must(t, rename("a", "b", unix.RENAME_EXCHANGE))
	if p, err := os.ReadFile(at("a")); string(p) != "b" {
		t.Errorf("after RENAME_EXCHANGE a has %q, %v", p, err)
	}
	interop.Must(t, rename("b", "c", unix.RENAME_WHITEOUT))
	var st unix.Stat_t
	interop.Must(t, unix.Lstat(at("b"), &st))
	if st.Mode != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("whiteout: mode %o device %d", st.Mode, st.Rdev)
	}
	interop.Must(t, os.Remove(at("b"))) // a device 0,0 is nothing that cp copies

	f, err := os.OpenFile(at("open"), os.O_RDWR, 0)
	interop.Must(t, err)
	interop.Must(t, os.Remove(at("open")))
	_, err = f.WriteAt([]byte("still here"), 100)
	interop.Must(t, err)
	p := make([]byte, 10)
	if _, err := f.ReadAt(p, 100); err != nil || string(p) != "still here" {
		t.Errorf("read of an unlinked file: %q, %v", p, err)
	}
	interop.Must(t, f.Close())

	fd, err := unix.Open(m.path("names"), unix.O_TMPFILE|unix.O_RDWR, 0o640)
	interop.Must(t, err)
	_, err = unix.Write(fd, []byte("temporary"))
	interop.Must(t, err)
	interop.Must(t, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, at("linked"), unix.AT_SYMLINK_FOLLOW))
	interop.Must(t, unix.Close(fd))
	if p, err := os.ReadFile(at("linked")); string(p) != "temporary" {
		t.Errorf("linked: %q, %v", p, err)
	}

	// A directory that is read while names come and go: what stays is seen once.
	interop.Must(t, os.Mkdir(at("many"), 0o755))
	for i := range 3000 {
		interop.Must(t, os.WriteFile(at(fmt.Sprintf("many/%04d", i)), nil, 0o600))
	}
	d, err := os.Open(at("many"))
	interop.Must(t, err)
	seen := map[string]int{}
	for round := 0; ; round++ {
		list, err := d.Readdirnames(100)
		for _, name := range list {
			seen[name]++
		}
		if errors.Is(err, io.EOF) {
			break
		}
		interop.Must(t, err)
		if round < 1000 {
			interop.Must(t, os.WriteFile(at(fmt.Sprintf("many/new%d", round)), nil, 0o600))
			interop.Must(t, os.Remove(at(fmt.Sprintf("many/%04d", 2*round+1))))
		}
	}
	interop.Must(t, d.Close())
	for i := 0; i < 3000; i += 2 {
		if name := fmt.Sprintf("%04d", i); seen[name] != 1 {
			t.Fatalf("%s was read %d times", name, seen[name])
		}
	}
}

// mountBytes writes in every way, and reads by another one.
func mountBytes(t *testing.T, m *fuseMount) {
	t.Helper()
	interop.Must(t, os.Mkdir(m.path("bytes"), 0o755))
	f, err := os.OpenFile(m.path("bytes/file"), os.O_RDWR|os.O_CREATE, 0o644)
	interop.Must(t, err)
	fd := int(f.Fd())
	interop.Must(t, f.Truncate(1<<20))
	read := func(off int64, n int) []byte {
		p := make([]byte, n)
		_, err := f.ReadAt(p, off)
		interop.Must(t, err)
		return p
	}
	// A shared mapping and system calls see each other's bytes.
	p, err := unix.Mmap(fd, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	interop.Must(t, err)
	copy(p[5000:], "by mmap")
	if have := read(5000, 7); string(have) != "by mmap" {
		t.Errorf("read after a store to a mapping: %q", have)
	}
	_, err = f.WriteAt([]byte("by write"), 20000)
	interop.Must(t, err)
	if have := string(p[20000:20008]); have != "by write" {
		t.Errorf("load from a mapping after a write: %q", have)
	}
	interop.Must(t, unix.Msync(p, unix.MS_SYNC))
	interop.Must(t, unix.Munmap(p))

	direct, err := os.OpenFile(m.path("bytes/file"), os.O_RDWR|syscall.O_DIRECT, 0)
	interop.Must(t, err)
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	interop.Must(t, err)
	copy(page, "by O_DIRECT")
	_, err = direct.WriteAt(page, 128<<10)
	interop.Must(t, err)
	if have := read(128<<10, 11); string(have) != "by O_DIRECT" {
		t.Errorf("read after O_DIRECT: %q", have)
	}
	interop.Must(t, direct.Close())

	app, err := os.OpenFile(m.path("bytes/file"), os.O_WRONLY|os.O_APPEND, 0)
	interop.Must(t, err)
	_, err = app.WriteString("at the end")
	interop.Must(t, err)
	interop.Must(t, app.Close())
	if have := read(1<<20, 10); string(have) != "at the end" {
		t.Errorf("read after O_APPEND: %q", have)
	}
	interop.Must(t, f.Truncate(1<<20))

	interop.Must(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4096, 16384))
	if have := read(5000, 7); !bytes.Equal(have, make([]byte, 7)) {
		t.Errorf("read of a hole: %q", have)
	}
	interop.Must(t, unix.Fallocate(fd, 0, 2<<20, 4096))
	interop.Must(t, unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, 200000, 100))
	interop.Must(t, f.Sync())
	if at, err := unix.Seek(fd, 0, unix.SEEK_DATA); err != nil || at != 128<<10 {
		t.Errorf("SEEK_DATA: %d, %v", at, err)
	}
	if at, err := unix.Seek(fd, 128<<10, unix.SEEK_HOLE); err != nil || at != 132<<10 {
		t.Errorf("SEEK_HOLE: %d, %v, want %d", at, err, 132<<10)
	}
	g, err := os.Create(m.path("bytes/copy"))
	interop.Must(t, err)
	from := int64(0)
	for {
		n, err := unix.CopyFileRange(fd, &from, int(g.Fd()), nil, 1<<30, 0)
		interop.Must(t, err)
		if n == 0 {
			break
		}
	}
	interop.Must(t, g.Close())
	interop.Must(t, f.Close())
	if at, err := interop.Differ(m.path("bytes/file"), m.path("bytes/copy")); err != nil || at >= 0 {
		t.Errorf("copy_file_range: differs at %d, %v", at, err)
	}
}

// mountRights sets permissions, attributes and lists.
func mountRights(t *testing.T, m *fuseMount) {
	t.Helper()
	interop.Must(t, os.Mkdir(m.path("rights"), 0o755))
	name := m.path("rights/file")
	interop.Must(t, os.WriteFile(name, []byte("x"), 0o755))
	interop.Must(t, unix.Chmod(name, 0o6755))
	interop.Must(t, os.Chown(name, 1000, 100))
	var st unix.Statx_t
	interop.Must(t, unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_ALL, &st))
	if st.Mode&0o7777 != 0o755 || st.Uid != 1000 || st.Mask&unix.STATX_BTIME == 0 || time.Since(time.Unix(st.Btime.Sec, 0)) > time.Hour {
		t.Errorf("after chown: mode %o owner %d, born %d", st.Mode, st.Uid, st.Btime.Sec)
	}
	interop.Sh(t, "setfattr", "-n", "user.colour", "-v", "red", name)
	interop.Must(t, os.Mkdir(m.path("rights/acl"), 0o755))
	interop.Sh(t, "setfacl", "-d", "-m", "u:1000:rw", m.path("rights/acl"))
	interop.Must(t, os.WriteFile(m.path("rights/acl/made"), nil, 0o664))
	if out := interop.Sh(t, "getfacl", "-cpn", m.path("rights/acl/made")); !strings.Contains(out, "user:1000:rw") {
		t.Errorf("the list of what was made in a directory with a default list:\n%s", out)
	}
	if out, err := exec.Command("setpriv", "--reuid", "1234", "--clear-groups", "touch", m.path("rights/no")).CombinedOutput(); err == nil {
		t.Errorf("another user may write in a directory of mode 755: %s", out)
	}
}

// TestMountEnds: a signal and an umount commit; a server that is killed leaves what fsync promised,
// and the last commit of the rest.
func TestMountEnds(t *testing.T) {
	fuse(t)
	bin := interop.Binary(t)
	img := interop.Image(t, "ends.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "512M", img)

	m := serve(t, bin, img, "--breakdown")
	interop.Must(t, os.WriteFile(m.path("term"), []byte("by SIGTERM"), 0o644))
	interop.Must(t, m.cmd.Process.Signal(syscall.SIGTERM))
	m.end(t)
	if text, err := io.ReadAll(m.out); err != nil || !strings.Contains(string(text), "processor time: ") {
		t.Errorf("the end of a mount with --breakdown prints %q, %v", text, err)
	}
	interop.Judged(t, img)

	m = serve(t, bin, img)
	f, err := os.Create(m.path("busy")) // the mount is in use when the signal comes
	interop.Must(t, err)
	_, err = f.WriteString("kept")
	interop.Must(t, err)
	interop.Must(t, m.cmd.Process.Signal(syscall.SIGINT))
	m.end(t)
	if _, err := f.WriteString("lost"); err == nil {
		t.Error("a write after the end of the mount succeeds")
	}
	f.Close()
	interop.Judged(t, img)

	m = serve(t, bin, img, "--commit", "0")
	interop.Must(t, os.WriteFile(m.path("unsynced"), []byte("no"), 0o644))
	f, err = os.Create(m.path("synced"))
	interop.Must(t, err)
	_, err = f.WriteString("promised")
	interop.Must(t, err)
	interop.Must(t, f.Sync())
	interop.Must(t, m.cmd.Process.Kill())
	_ = m.cmd.Wait() // killed
	f.Close()
	interop.Must(t, unix.Unmount(m.dir, unix.MNT_DETACH))
	interop.Mounted(t, img, "", func(dir string) { // Linux replays the log
		for name, want := range map[string]string{"term": "by SIGTERM", "busy": "kept", "synced": "promised"} {
			if p, err := os.ReadFile(filepath.Join(dir, name)); string(p) != want {
				t.Errorf("%s: have %q, %v want %q", name, p, err, want)
			}
		}
	})
	interop.Judged(t, img)

	// A device that fails: the program is told, and so is who mounted; the last commit stays.
	m = serve(t, bin, img, "--fault", "eio:write:3+")
	f, err = os.Create(m.path("failing"))
	interop.Must(t, err)
	_, err = f.Write(make([]byte, 4<<20))
	interop.Must(t, err)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("fsync on a device that fails: %v, want EIO", err)
	}
	f.Close()
	interop.Sh(t, "umount", m.dir)
	if err := m.cmd.Wait(); err == nil || !strings.Contains(m.err.String(), "input/output error") || strings.Count(m.err.String(), "\n") != 1 {
		t.Errorf("the end of a mount whose device fails: %v, %q, want one line", err, m.err.String())
	}
	interop.Judged(t, img)
	if out, err := exec.Command(bin, "cat", img+":/synced").Output(); string(out) != "promised" {
		t.Errorf("after the device failed: %q, %v", out, err)
	}
}

// at runs lines in the server of a mount and returns what they print, with the exit code.
func (m *fuseMount) at(t *testing.T, bin string, as *syscall.Credential, lines ...string) (string, error) {
	t.Helper()
	c := exec.Command(bin, "sh", "--at", m.dir)
	c.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestMountAt: lines run in the server of a mount that programs write to; what they change the
// programs see at once, policies and quotas change under way, and both checkers find nothing. Other
// users may not; a crash is one.
func TestMountAt(t *testing.T) {
	fuse(t)
	bin := interop.Binary(t)
	for _, mode := range modes(t) {
		t.Run(mode.name, func(t *testing.T) {
			img := interop.Image(t, "at.img")
			interop.Btrlab(t, "mkfs", "-q", "--size", "2G", img)
			m := serve(t, bin, img, mode.flags...)
			run := func(lines ...string) string {
				t.Helper()
				out, err := m.at(t, bin, nil, lines...)
				if err != nil {
					t.Errorf("%q: %v %s", lines, err, out)
				}
				return out
			}
			interop.Write(t, m.path("home/f"), bytes.Repeat([]byte("0123456789abcdef"), 1024))
			if _, err := os.Stat(m.path("snap/home/f")); !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
			run("snapshot / /snap")
			if b, err := os.ReadFile(m.path("snap/home/f")); err != nil || len(b) != 16384 {
				t.Errorf("of the snapshot %d bytes, %v", len(b), err)
			}
			run("truncate --size 5 /home/f", "subvolume delete /snap", "mkdir /home/new")
			if b, err := os.ReadFile(m.path("home/f")); err != nil || string(b) != "01234" {
				t.Errorf("after truncate %d bytes, %v", len(b), err)
			}
			if _, err := os.Stat(m.path("snap")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a deleted subvolume: %v", err)
			}
			if _, err := os.Stat(m.path("home/new")); err != nil {
				t.Error(err)
			}

			stop, done := make(chan struct{}), make(chan error)
			const writers = 3
			for w := range writers {
				go func() { done <- m.busy(w, stop) }()
			}
			for i, p := range []string{"unlocked", "range-lock", "prewait", "modern", "locked"} {
				run("policy "+p, "check", fmt.Sprintf("snapshot / /s%d", i), "drop-caches", "quota enable", "quota show", "sync", "quota disable")
			}
			if have := run("policy"); have != "locked\n" {
				t.Errorf("policy %q", have)
			}
			close(stop)
			for range writers {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if os.Geteuid() == 0 {
				if out, err := m.at(t, bin, &syscall.Credential{Uid: 1000, Gid: 1000}, "policy"); err == nil || strings.Contains(out, "locked\n") {
					t.Errorf("another user: %v %s", err, out)
				}
			}
			// Clients are in the middle of their lines when the mount ends: those end first.
			var clients sync.WaitGroup
			for range 3 {
				clients.Go(func() {
					out, err := m.at(t, bin, nil, slices.Repeat([]string{"check", "ls /", "policy"}, 400)...)
					if err == nil || strings.Contains(out, "has found") || strings.Contains(out, "bad file descriptor") {
						t.Errorf("a client at the end of the mount: %v %s", err, interop.Tail([]byte(out)))
					}
				})
			}
			run("sync", "sync")
			m.umount(t)
			clients.Wait()
			interop.Judged(t, img)

			m = serve(t, bin, img, mode.flags...)
			f, err := os.Create(m.path("durable"))
			interop.Must(t, err)
			_, err = f.WriteString("durable")
			interop.Must(t, errors.Join(err, f.Sync()))
			run("fault eio:write:1+")
			if _, err = f.WriteString("more"); err == nil {
				err = f.Sync()
			}
			if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EROFS) {
				t.Errorf("a sync to a device that fails: %v", err)
			}
			f.Close()
			run("fault", "crash")
			if err := m.cmd.Wait(); m.cmd.ProcessState.ExitCode() != 137 {
				t.Errorf("the server after a crash: %v", err)
			}
			interop.Sh(t, "umount", m.dir)
			interop.Mounted(t, img, "", func(dir string) {
				if b, err := os.ReadFile(filepath.Join(dir, "durable")); err != nil || string(b) != "durable" {
					t.Errorf("after the crash: %q, %v", b, err)
				}
			})
			interop.Judged(t, img)
		})
	}
}

// busy writes, syncs, renames and removes files until stop, and reads each back.
func (m *fuseMount) busy(w int, stop chan struct{}) error {
	f := interop.NewFiller(uint64(w))
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		a, b := m.path(fmt.Sprintf("w%d.%d", w, i%7)), m.path(fmt.Sprintf("r%d.%d", w, i%5))
		want := f.Bytes(1 + i*7919%200000)
		if err := os.WriteFile(a, want, 0o644); err != nil {
			return err
		}
		if have, err := os.ReadFile(a); err != nil || !bytes.Equal(have, want) {
			return fmt.Errorf("%s: %d bytes, %d written, %v", a, len(have), len(want), err)
		}
		if i%3 == 0 {
			if err := os.Rename(a, b); err != nil {
				return err
			}
		}
	}
}

// TestMountPrograms: what git, sqlite, tar and rsync write to a mount they read back, and the
// copies that go there and back are the same, with links, lists, attributes and holes.
func TestMountPrograms(t *testing.T) {
	fuse(t, "git", "sqlite3", "rsync", "tar", "setfacl", "setfattr")
	bin := interop.Binary(t)
	for _, mode := range modes(t) {
		t.Run(mode.name, func(t *testing.T) {
			img := interop.Image(t, "programs.img")
			interop.Btrlab(t, "mkfs", "-q", "--size", "2G", img)
			m := serve(t, bin, img, mode.flags...)

			repo := m.path("repo")
			interop.Sh(t, "git", "init", "-q", repo)
			f := interop.NewFiller(3)
			for i := range 60 {
				interop.Write(t, filepath.Join(repo, fmt.Sprintf("d%d/f%d", i%5, i)), f.Bytes(i*i*20))
				if i%20 == 19 {
					interop.Sh(t, "git", "-C", repo, "add", "-A")
					interop.Sh(t, "git", "-C", repo, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", fmt.Sprint(i))
				}
			}
			interop.Sh(t, "git", "-c", "safe.directory=*", "clone", "-q", "--no-hardlinks", repo, m.path("clone"))
			interop.Sh(t, "git", "-C", m.path("clone"), "gc", "-q")
			interop.Sh(t, "git", "-C", m.path("clone"), "fsck", "--strict")

			db := m.path("db")
			for _, mode := range []string{"delete", "wal"} {
				sql := "pragma journal_mode=" + mode + "; create table if not exists t(id integer primary key, b blob);"
				for range 20 {
					sql += "begin; insert into t(b) select randomblob(3000) from (with recursive c(x) as (select 1 union all select x+1 from c where x<50) select x from c); " +
						"delete from t where id%7=3; commit;"
				}
				interop.Sh(t, "sqlite3", db, sql)
			}
			if out := interop.Sh(t, "sqlite3", db, "pragma integrity_check; select count(*)>500 from t; vacuum; pragma integrity_check;"); out != "ok\n1\nok\n" {
				t.Errorf("sqlite: %q", out)
			}

			tree := t.TempDir()
			interop.Write(t, filepath.Join(tree, "a/f"), f.Bytes(300001))
			interop.Write(t, filepath.Join(tree, "a/holes"), []byte("begin"))
			interop.Must(t, os.Truncate(filepath.Join(tree, "a/holes"), 9<<20))
			interop.Must(t, os.Link(filepath.Join(tree, "a/f"), filepath.Join(tree, "hard")))
			interop.Must(t, os.Symlink("a/f", filepath.Join(tree, "soft")))
			interop.Must(t, unix.Mkfifo(filepath.Join(tree, "pipe"), 0o640))
			interop.Sh(t, "setfacl", "-m", "u:1234:rw,g:99:r", filepath.Join(tree, "a/f"))
			interop.Sh(t, "setfattr", "-n", "user.note", "-v", "text", filepath.Join(tree, "a"))
			interop.Must(t, os.Chmod(filepath.Join(tree, "a/holes"), os.ModeSetuid|0o755))
			back := t.TempDir()
			interop.Sh(t, "rsync", "-aHAXS", tree+"/", m.path("rsync"))
			interop.Sh(t, "rsync", "-aHAXS", m.path("rsync")+"/", filepath.Join(back, "rsync"))
			interop.SameTree(t, filepath.Join(back, "rsync"), tree)
			if out := interop.Sh(t, "rsync", "-aHAXSn", "--itemize-changes", "--checksum", tree+"/", m.path("rsync")); out != "" {
				t.Errorf("rsync would still change\n%s", out)
			}
			interop.Must(t, os.Mkdir(m.path("tar"), 0o755))
			interop.Sh(t, "sh", "-c", "tar -C "+tree+" --xattrs --acls -Scf - . | tar -C "+m.path("tar")+" --xattrs --xattrs-include='*' --acls -xpf -")
			interop.SameTree(t, m.path("tar"), tree)
			m.umount(t)
			interop.Judged(t, img)
		})
	}
}

// mountKills is how often TestMountKilled kills the server.
var mountKills = flag.Int("mount.kills", 0, "kill the server of a mount so often; 0 is twice in each mode")

// TestMountKilled: the server is killed while programs write and sync. Linux replays the log: every
// file that was synced is there, as it was, and both checkers find nothing.
func TestMountKilled(t *testing.T) {
	fuse(t)
	bin := interop.Binary(t)
	modes := modes(t)
	n := 2 * len(modes)
	if *mountKills > 0 {
		n = *mountKills
	}
	for kill := range n {
		mode := modes[kill%len(modes)]
		img := interop.Image(t, "killed.img")
		interop.Btrlab(t, "mkfs", "-q", "-f", "--size", "1G", img)
		m := serve(t, bin, img, append(mode.flags, "--commit", "1s")...)
		const writers = 4
		synced := make(chan []string, writers)
		for w := range writers {
			go func() { synced <- m.syncs(w, kill) }()
		}
		time.Sleep(time.Duration(200+kill*137%1500) * time.Millisecond)
		interop.Must(t, m.cmd.Process.Kill())
		_ = m.cmd.Wait() // killed
		var names []string
		for range writers {
			names = append(names, <-synced...)
		}
		interop.Sh(t, "umount", "-l", m.dir)
		interop.Mounted(t, img, "", func(dir string) {
			for _, name := range names {
				var w, i int
				if _, err := fmt.Sscanf(filepath.Base(name), "%d.%d", &w, &i); err != nil {
					t.Fatal(err)
				}
				have, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil || !bytes.Equal(have, syncedBytes(w, i, kill)) {
					t.Errorf("kill %d, %s: %s, which was synced: %d bytes, %v", kill, mode.name, name, len(have), err)
				}
			}
		})
		interop.Judged(t, img)
		if len(names) < 5 {
			t.Errorf("kill %d: %d files were synced", kill, len(names))
		}
		interop.Must(t, os.Remove(img))
	}
}

// syncedBytes is what file i of writer w holds.
func syncedBytes(w, i, kill int) []byte {
	return interop.NewFiller(uint64(w<<40 | kill<<20 | i)).Bytes(1 + (i*7919+w)%90000)
}

// syncs makes files, each written in pieces and synced, under a name in a directory or renamed to
// it, until the server is gone, and returns those whose sync had returned.
func (m *fuseMount) syncs(w, kill int) (names []string) {
	for i := 0; ; i++ {
		name := fmt.Sprintf("d%d/%d.%d", i%3, w, i)
		if os.MkdirAll(m.path(filepath.Dir(name)), 0o755) != nil {
			return names
		}
		f, err := os.Create(m.path(name))
		if err != nil {
			return names
		}
		for b := syncedBytes(w, i, kill); len(b) > 0 && err == nil; {
			n := min(len(b), 30000)
			_, err = f.Write(b[:n])
			b = b[n:]
		}
		if err == nil {
			err = f.Sync()
		}
		f.Close()
		if err != nil {
			return names
		}
		names = append(names, name)
		if i%4 == 3 {
			os.Remove(m.path(names[0])) // its absence is as good as its presence from now on
			names = names[1:]
		}
	}
}

// TestMountGuest: a file of a mount is the disk of another file system. Linux mounts it by a loop
// device, and what was synced there is there after the next mount; ext4's checker and both of ours
// find nothing.
func TestMountGuest(t *testing.T) {
	fuse(t, "mkfs.ext4", "e2fsck", "losetup")
	bin := interop.Binary(t)
	for _, p := range []string{"locked", "range-lock"} {
		img := interop.Image(t, "host.img")
		interop.Btrlab(t, "mkfs", "-q", "-f", "--size", "1G", img)
		m := serve(t, bin, img, "--policy", p)
		disk, guest := m.path("vm.raw"), t.TempDir()
		interop.Must(t, os.WriteFile(disk, nil, 0o644))
		interop.Must(t, os.Truncate(disk, 300<<20))
		interop.Sh(t, "mkfs.ext4", "-q", "-F", disk)
		want := t.TempDir()
		for turn := range 2 {
			interop.Sh(t, "mount", "-o", "loop", disk, guest)
			for w := range 3 {
				b := interop.NewFiller(uint64(turn*10 + w)).Bytes(3<<20 + 17*w)
				for _, dir := range []string{guest, want} {
					interop.Write(t, filepath.Join(dir, fmt.Sprintf("t%d/f%d", turn, w)), b)
				}
				interop.Sh(t, "sync", "-f", guest)
			}
			interop.Sh(t, "cp", "-a", filepath.Join(guest, "t0"), filepath.Join(guest, fmt.Sprintf("copy%d", turn)))
			interop.Sh(t, "cp", "-a", filepath.Join(guest, "t0"), filepath.Join(want, fmt.Sprintf("copy%d", turn)))
			interop.Sh(t, "umount", guest)
			interop.Sh(t, "e2fsck", "-fn", disk)
		}
		m.umount(t)
		interop.Judged(t, img)
		interop.Mounted(t, img, "", func(dir string) {
			interop.Sh(t, "mount", "-o", "loop,ro", filepath.Join(dir, "vm.raw"), guest)
			defer interop.Sh(t, "umount", guest)
			for _, d := range []string{"t0", "t1", "copy0", "copy1"} {
				interop.Sh(t, "diff", "-r", filepath.Join(guest, d), filepath.Join(want, d))
			}
		})
		interop.Must(t, os.Remove(img))
	}
}

var mappedWrites = flag.Int("mount.mapped", 3000, "writes of each task of TestMountMapped in each mode")

// TestMountMapped: tasks store into words of a page through a shared mapping while others write
// other words of it by pwrite, and none is lost, whoever caches (xfstests generic/344). With
// --cache none the kernel gives whole pages back after a write has gone past them.
func TestMountMapped(t *testing.T) {
	fuse(t)
	const pages, workers = 2, 2
	for _, mode := range modes(t) {
		img := interop.Image(t, "mapped.img")
		interop.Btrlab(t, "mkfs", "-q", "--size", "256M", img)
		m := serve(t, interop.Binary(t), img, mode.flags...)
		f, err := os.Create(m.path("f"))
		interop.Must(t, err)
		interop.Must(t, f.Truncate(pages*4096))
		mapping, err := unix.Mmap(int(f.Fd()), 0, pages*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		interop.Must(t, err)
		var stored [pages]uint64
		ended := make(chan bool)
		var stores, writes sync.WaitGroup
		for p := range pages {
			stores.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
						stored[p]++
						le.LittleEndian.PutUint64(mapping[p*4096:], stored[p])
					}
				}
			})
		}
		for w := range workers {
			writes.Go(func() {
				for n := uint64(1); n <= uint64(*mappedWrites); n++ {
					at := int64(int(n)%pages*4096 + 512*(1+w))
					_, err := f.WriteAt(le.LittleEndian.AppendUint64(nil, n), at)
					var have [8]byte
					if err == nil {
						_, err = f.ReadAt(have[:], at)
					}
					if v := le.LittleEndian.Uint64(have[:]); err != nil || v != n {
						t.Errorf("%s: task %d has written %d at %d and reads %d, %v", mode.name, w, n, at, v, err)
						return
					}
				}
			})
		}
		writes.Wait()
		close(ended)
		stores.Wait()
		interop.Must(t, unix.Msync(mapping, unix.MS_SYNC))
		interop.Must(t, unix.Munmap(mapping))
		for p := range pages {
			var have [8]byte
			_, err = f.ReadAt(have[:], int64(p*4096))
			if v := le.LittleEndian.Uint64(have[:]); err != nil || v != stored[p] {
				t.Errorf("%s: the last store into page %d was %d, have %d, %v", mode.name, p, stored[p], v, err)
			}
		}
		interop.Must(t, f.Close())
		m.umount(t)
		interop.Judged(t, img)
	}
}

// TestMountAttributes: ctime is new at once after chattr, and utime(NULL) works on an append-only
// file and directory, as in Linux (xfstests generic/277 and generic/079); what names a time does
// not.
func TestMountAttributes(t *testing.T) {
	fuse(t, "chattr", "touch")
	img := interop.Image(t, "attributes.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "256M", img)
	m := serve(t, interop.Binary(t), img)
	for _, name := range []string{"f", "d"} {
		path := m.path(name)
		if name == "d" {
			interop.Must(t, os.Mkdir(path, 0o755))
		} else {
			interop.Must(t, os.WriteFile(path, nil, 0o644))
		}
		ctime := func() (ns int64) {
			var st unix.Stat_t
			interop.Must(t, unix.Stat(path, &st))
			return st.Ctim.Nano()
		}
		// The clock ticks every 4 ms, and what the kernel keeps it keeps for a second.
		before, after := ctime(), int64(0)
		for i := 0; i < 20 && after <= before; i++ {
			interop.Sh(t, "chattr", []string{"+A", "-A"}[i%2], path)
			after = ctime()
		}
		if after <= before {
			t.Errorf("%s: ctime is as before chattr", name)
		}
		interop.Sh(t, "chattr", "+a", path)
		interop.Sh(t, "touch", path)
		if out, err := exec.Command("touch", "-d", "2001-01-01", path).CombinedOutput(); err == nil {
			t.Errorf("%s: touch -d of an append-only object works: %s", name, out)
		}
		interop.Sh(t, "chattr", "-a", "+i", path)
		if out, err := exec.Command("touch", path).CombinedOutput(); err == nil {
			t.Errorf("%s: touch of an immutable object works: %s", name, out)
		}
		interop.Sh(t, "chattr", "-i", path)
	}
	m.umount(t)
	interop.Judged(t, img)
}

// TestMountAlone: a server makes no request of its own mount, neither when it begins nor when it
// ends by a signal: killed while it waits for itself it could not end, and whoever touches the
// mount would hang.
func TestMountAlone(t *testing.T) {
	fuse(t)
	img := interop.Image(t, "alone.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "256M", img)
	m := serve(t, interop.Binary(t), img, "--debug")
	interop.Must(t, m.cmd.Process.Signal(syscall.SIGTERM))
	m.end(t)
	for line := range strings.Lines(m.err.String()) {
		if _, request, ok := strings.Cut(line, " rx "); ok && !strings.Contains(request, ": INIT ") && !strings.Contains(request, ": DESTROY ") {
			t.Errorf("a request although no program used the mount: %s", line)
		}
	}
	if !strings.Contains(m.err.String(), "INIT") {
		t.Errorf("--debug shows no request: %q", m.err.String())
	}
}

// TestMountAddresses: a limit of the address space that is too small for the server is one line,
// and under one that is not it works.
func TestMountAddresses(t *testing.T) {
	fuse(t, "prlimit")
	img := interop.Image(t, "addresses.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "256M", img)
	dir := t.TempDir()
	out, err := exec.Command("prlimit", "--as=3000000000", interop.Binary(t), "mount", img, dir, "--memory", "2G").CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "ulimit -v") {
		t.Errorf("mount with too few addresses: %v, %q", err, out)
	}
}

var mountFaults = flag.Int("mount.faults", 2, "mounts of TestMountFaults")

// TestMountFaults: under programs that use a mount a write or a flush fails, the host has no room,
// or a write is torn and nothing comes after it. Programs get errors, the server ends with 0 or 1,
// and afterwards the image is sound for both checkers and has what was synced before.
func TestMountFaults(t *testing.T) {
	fuse(t)
	bin := interop.Binary(t)
	rng := rand.New(rand.NewPCG(7, 7))
	for n := range *mountFaults {
		img := interop.Image(t, fmt.Sprintf("faults-%d.img", n))
		interop.Btrlab(t, "mkfs", "-q", "--size", "256M", img)
		fault := fmt.Sprintf("%s:write:%d%s", []string{"eio", "enospc", "torn"}[rng.IntN(3)], 1+rng.IntN(80), []string{"", "+"}[rng.IntN(2)])
		if rng.IntN(5) == 0 {
			fault = fmt.Sprintf("eio:flush:%d+", 1+rng.IntN(20))
		}
		m := serve(t, bin, img, "--fault", fault)
		synced := map[string][]byte{}
		for i := range 20 {
			name, p := fmt.Sprintf("f%d", i), bytes.Repeat([]byte{byte(i + 1)}, 1+rng.IntN(200_000))
			f, err := os.Create(m.path(name))
			if err != nil {
				break
			}
			_, err = f.Write(p)
			if err == nil && f.Sync() == nil {
				synced[name] = p
			}
			f.Close()
			if i%5 == 4 {
				_ = os.Remove(m.path(fmt.Sprintf("f%d", i-4)))
				delete(synced, fmt.Sprintf("f%d", i-4))
			}
		}
		interop.Sh(t, "umount", m.dir)
		var exit *exec.ExitError
		if err := m.cmd.Wait(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 || strings.Contains(m.err.String(), "goroutine")) {
			t.Errorf("--fault %s: the server ended with %v, %s", fault, err, m.err.String())
		}
		interop.Judged(t, img)
		interop.Btrlab(t, "touch", img+":/replayed") // the log
		for name, want := range synced {
			if have, err := exec.Command(bin, "cat", img+":/"+name).Output(); err != nil || !bytes.Equal(have, want) {
				t.Errorf("--fault %s: %s was synced, and has %d bytes of %d, %v", fault, name, len(have), len(want), err)
			}
		}
	}
}

// TestMountCachedDirect: under --cache kernel a file that is open twice, with O_DIRECT and without,
// has what was written last by either, also from a store through a mapping that was synced, and
// Linux finds it so. Direct writes come in beside each other then.
func TestMountCachedDirect(t *testing.T) {
	fuse(t)
	const size, block = 1 << 20, 4096
	for _, mode := range modes(t) {
		if !strings.HasPrefix(mode.name, "cache=kernel") {
			continue
		}
		t.Run(mode.name, func(t *testing.T) {
			img := interop.Image(t, "both.img")
			interop.Btrlab(t, "mkfs", "-q", "--size", "256M", img)
			m := serve(t, interop.Binary(t), img, mode.flags...)
			cached, err := os.Create(m.path("f"))
			interop.Must(t, err)
			interop.Must(t, cached.Truncate(size))
			direct, err := os.OpenFile(m.path("f"), os.O_RDWR|syscall.O_DIRECT, 0)
			interop.Must(t, err)
			mapped, err := unix.Mmap(int(cached.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			interop.Must(t, err)
			want := make([]byte, size)
			page := alignedPage(t)
			rng := rand.New(rand.NewPCG(11, 11))
			for i := range 2000 {
				at := rng.IntN(size/block) * block
				for j := range page {
					page[j] = byte(i + j*7)
				}
				switch rng.IntN(5) {
				case 0:
					_, err = direct.WriteAt(page, int64(at))
					copy(want[at:], page)
				case 1:
					_, err = cached.WriteAt(page[:1000], int64(at+500))
					copy(want[at+500:], page[:1000])
				case 2:
					copy(mapped[at+3000:], page[:77])
					copy(want[at+3000:], page[:77])
					err = unix.Msync(mapped[at:at+block], unix.MS_SYNC)
				case 3:
					if _, err = direct.ReadAt(page, int64(at)); !bytes.Equal(page, want[at:at+block]) {
						t.Fatalf("step %d: a direct read at %d has other bytes", i, at)
					}
				case 4:
					have := make([]byte, block)
					if _, err = cached.ReadAt(have, int64(at)); !bytes.Equal(have, want[at:at+block]) {
						t.Fatalf("step %d: a cached read at %d has other bytes", i, at)
					}
				}
				interop.Must(t, err)
			}
			interop.Must(t, errors.Join(unix.Munmap(mapped), cached.Close(), direct.Close()))
			m.umount(t)
			interop.Judged(t, img)
			interop.Mounted(t, img, "ro", func(dir string) {
				if have, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || !bytes.Equal(have, want) {
					t.Errorf("Linux reads other bytes: %v", err)
				}
			})
		})
	}
}

// alignedPage is a page of memory that O_DIRECT takes.
func alignedPage(t *testing.T) []byte {
	t.Helper()
	p, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	interop.Must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(p) })
	return p
}

// TestMountDiscard: what is deleted on a mount with --discard takes no place in the image file once
// it is committed, and fstrim gives back what was free before.
func TestMountDiscard(t *testing.T) {
	fuse(t, "fstrim")
	img := interop.Image(t, "discard.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "300M", img)
	taken := func() int64 {
		var st syscall.Stat_t
		interop.Must(t, syscall.Stat(img, &st))
		return st.Blocks * 512
	}
	big := interop.NewFiller(1).Bytes(30 << 20)
	m := serve(t, interop.Binary(t), img, "--discard")
	goes := func() {
		t.Helper()
		name := filepath.Join(m.dir, "goes")
		interop.Write(t, name, big)
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		interop.Must(t, err)
		interop.Must(t, errors.Join(f.Sync(), f.Close(), os.Remove(name)))
	}
	goes()
	interop.Write(t, filepath.Join(m.dir, "stays"), big[:1<<20])
	m.umount(t)
	if n := taken(); n > 8<<20 {
		t.Errorf("with --discard %d bytes are taken", n)
	}
	m = serve(t, interop.Binary(t), img)
	goes()
	m.umount(t)
	if n := taken(); n < 30<<20 {
		t.Errorf("without it %d bytes are taken", n)
	}
	m = serve(t, interop.Binary(t), img)
	if out := interop.Sh(t, "fstrim", "-v", m.dir); !strings.Contains(out, "MiB") {
		t.Errorf("fstrim: %s", out)
	}
	if b, err := os.ReadFile(filepath.Join(m.dir, "stays")); err != nil || !bytes.Equal(b, big[:1<<20]) {
		t.Errorf("%d bytes of what stays, %v", len(b), err)
	}
	m.umount(t)
	if n := taken(); n > 8<<20 {
		t.Errorf("after fstrim %d bytes are taken", n)
	}
	interop.Judged(t, img)
}

// TestMountLimits: the limit of a quota is EDQUOT on the mount, and the longest extended attribute
// is as long as Linux's.
func TestMountLimits(t *testing.T) {
	fuse(t)
	img := interop.Image(t, "limits.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "300M", img)
	interop.Btrlab(t, "quota", "enable", img)
	interop.Btrlab(t, "subvolume", "create", img+":/s")
	interop.Btrlab(t, "quota", "limit", "5M", img+":/s")
	longest := func(dir string) int {
		file := filepath.Join(dir, "x")
		interop.Write(t, file, nil)
		last := 0
		for n := 16 << 10; n > 16000; n-- {
			if err := unix.Setxattr(file, "user.a", make([]byte, n), 0); err == nil {
				last = n
				break
			} else if err != unix.ENOSPC {
				t.Fatalf("an attribute of %d bytes: %v", n, err)
			}
		}
		interop.Must(t, os.Remove(file))
		return last
	}
	m := serve(t, interop.Binary(t), img)
	err := os.WriteFile(filepath.Join(m.dir, "s", "f"), make([]byte, 20<<20), 0o644)
	if !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("20 MiB where 5 are allowed: %v", err)
	}
	interop.Must(t, os.WriteFile(filepath.Join(m.dir, "f"), make([]byte, 20<<20), 0o644))
	have := longest(m.dir)
	m.umount(t)
	interop.Mounted(t, img, "", func(dir string) {
		if want := longest(dir); have != want || have == 0 {
			t.Errorf("the longest attribute has %d bytes, in Linux %d", have, want)
		}
	})
	interop.Judged(t, img)
}
