//go:build !portable

package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"btrlab/internal/hostio"
)

func init() {
	jobs["images"], jobs["crash"], jobs["replay"], jobs["nowait"] = images, crash, replay, nowait
}

// images mounts each of the disks, reads its tree, scrubs it and writes on it. Argument: how many
// disks there are. The host gets ImagesFile.
func images(_ io.Writer, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var said []ImageSaid
	for i := range n {
		var s ImageSaid
		if err := oneImage("/dev/vd"+string(rune('a'+i)), &s); err != nil {
			s.Error = err.Error()
		}
		said = append(said, s)
	}
	return writeOut(ImagesFile, said)
}

func oneImage(device string, s *ImageSaid) (err error) {
	progress("%s: mount", device)
	if err := unix.Mount(device, "/mnt", "btrfs", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	defer func() { err = errors.Join(err, umount("/mnt")) }()
	if s.Before, err = Manifest("/mnt"); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	progress("%s: scrub", device)
	if s.ScrubErrors, err = hostio.Scrub("/mnt"); err != nil {
		return fmt.Errorf("scrub: %w", err)
	}
	progress("%s: write", device)
	if err := writeOn("/mnt"); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := syncFS("/mnt"); err != nil {
		return err
	}
	progress("%s: read again", device)
	s.After, err = Manifest("/mnt")
	return err
}

// writeOn has a kernel make what is made of files: new ones of sizes around each border, one that
// is written over, cut, punched and shared, an attribute, names that change, a snapshot that stays.
func writeOn(dir string) error {
	at := func(name string) string { return filepath.Join(dir, "linux", name) }
	if err := os.Mkdir(at(""), 0o755); err != nil {
		return err
	}
	content := func(n int, seed byte) []byte {
		b := make([]byte, n)
		rand.NewChaCha8([32]byte{seed}).Read(b)
		return b
	}
	for i, n := range []int{0, 700, 2048, 4096, 4097, 100000, 1 << 20} {
		if err := os.WriteFile(at(fmt.Sprint("f", i)), content(n, byte(i)), 0o644); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(at("f6"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	write := func(off int64, n int) error { _, err := f.WriteAt(content(n, 99), off); return err }
	err = errors.Join(syncFS(dir), write(40960, 8192), write(600<<10+100, 5000), f.Sync(), unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 200<<10, 100<<10),
		f.Truncate(900<<10+17), unix.Fallocate(fd, 0, 1<<20, 1<<20), unix.Fsetxattr(fd, "user.k", []byte("value"), 0))
	if err != nil {
		return err
	}
	shared, err := os.Create(at("shared"))
	if err != nil {
		return err
	}
	err = errors.Join(unix.IoctlFileClone(int(shared.Fd()), fd), shared.Close(), os.Rename(at("f1"), at("renamed")), os.Link(at("f3"), at("linked")), os.Remove(at("f2")),
		os.Symlink("f3", at("symbolic")), hostio.Snapshot(dir, filepath.Join(dir, "snap")), write(0, 12345), f.Sync())
	return err
}

// progress tells the console what is going on, for whoever waits for a guest.
func progress(format string, args ...any) {
	f, err := os.OpenFile("/dev/console", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	fmt.Fprintf(f, format+"\n", args...)
	_ = f.Close()
}

func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

func umount(dir string) error { return errors.Join(syncFS(dir), unix.Unmount(dir, 0)) }

// crash makes images whose power was cut after an fsync. Arguments: the images, which are files,
// and behind each a seed. The host gets each as "crash-SEED", packed, and CrashFile.
func crash(_ io.Writer, args []string) error {
	var said []CrashSaid
	for i := 0; i+1 < len(args); i += 2 {
		seed, err := strconv.ParseUint(args[i+1], 10, 64)
		if err != nil {
			return err
		}
		progress("crash %d", seed)
		s, err := oneCrash(args[i], seed)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		said = append(said, s)
	}
	return writeOut(CrashFile, said)
}

func oneCrash(packed string, seed uint64) (s CrashSaid, err error) {
	s.Seed, s.Promised = seed, map[string]string{}
	b, err := os.ReadFile(packed)
	if err != nil {
		return s, err
	}
	const img = "/tmp/crash.img"
	if err := Unpack(b, img); err != nil {
		return s, err
	}
	m, err := mountLoop(img, "commit=300")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, m.Close(), os.Remove(img)) }()
	w := &randomWriter{dir: "/mnt", r: rand.New(rand.NewPCG(seed, 7)), dirs: []string{""}}
	for range 25 {
		w.step()
	}
	if err := syncFS("/mnt"); err != nil {
		return s, err
	}
	for range 12 {
		w.step()
	}
	for range 3 {
		w.step()
		if len(w.files) == 0 {
			continue
		}
		path := w.files[w.r.IntN(len(w.files))]
		f, err := os.OpenFile(filepath.Join("/mnt", path), os.O_RDWR, 0)
		if err != nil {
			return s, err
		}
		_, err = f.WriteAt(w.content(), int64(w.r.IntN(40000)))
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return s, err
		}
		b, err := os.ReadFile(filepath.Join("/mnt", path))
		if err != nil {
			return s, err
		}
		// What comes after may change it again, in memory or in the log.
		s.Promised = map[string]string{path: Sum(b)}
		w.log = append(w.log, "fsync "+path)
	}
	s.Log = strings.Join(w.log, "; ")
	// The loop device has given the file all that the file system has written: this is what a power
	// cut leaves now.
	if b, err = Pack(img); err != nil {
		return s, err
	}
	return s, os.WriteFile(filepath.Join("/out", fmt.Sprint("crash-", seed)), b, 0o644)
}

// mountLoop mounts an image. A loop device of the last one may still be on its way out, and then
// its reads fail.
func mountLoop(img, options string) (m *hostio.Mount, err error) {
	for range 10 {
		if m, err = hostio.MountLoop(img, "/mnt", "btrfs", options); !errors.Is(err, unix.EIO) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return m, err
}

// randomWriter does random operations in a mounted file system. What cannot be done is left out.
type randomWriter struct {
	dir         string
	r           *rand.Rand
	dirs, files []string
	next        int
	log         []string
}

func (w *randomWriter) content() []byte {
	b := make([]byte, 1+w.r.IntN(30000))
	c := byte(w.r.Uint32())
	for i := range b {
		b[i] = c + byte(i>>9)
	}
	return b
}

func (w *randomWriter) name() string {
	w.next++
	return filepath.Join(w.dirs[w.r.IntN(len(w.dirs))], fmt.Sprint("n", w.next))
}

func (w *randomWriter) step() {
	at := func(name string) string { return filepath.Join(w.dir, name) }
	name := w.name()
	if len(w.files) < 3 {
		w.note(os.WriteFile(at(name), w.content(), 0o644), &w.files, name, "create "+name)
		return
	}
	i := w.r.IntN(len(w.files))
	old := w.files[i]
	switch w.r.IntN(9) {
	case 0, 1:
		w.note(os.WriteFile(at(name), w.content(), 0o644), &w.files, name, "create "+name)
	case 2:
		w.note(os.Mkdir(at(name), 0o755), &w.dirs, name, "mkdir "+name)
	case 3:
		if w.note(os.Rename(at(old), at(name)), &w.files, name, "rename "+old+" "+name) {
			w.files = slices.Delete(w.files, i, i+1)
		}
	case 4:
		w.note(os.Link(at(old), at(name)), &w.files, name, "link "+old+" "+name)
	case 5:
		if w.note(os.Remove(at(old)), nil, "", "unlink "+old) {
			w.files = slices.Delete(w.files, i, i+1)
		}
	case 6:
		n := w.r.IntN(50000)
		w.note(os.Truncate(at(old), int64(n)), nil, "", fmt.Sprint("truncate ", old, " ", n))
	default:
		f, err := os.OpenFile(at(old), os.O_RDWR, 0)
		if err != nil {
			return
		}
		off := int64(w.r.IntN(60000))
		b := w.content()
		what := "write"
		if w.r.IntN(4) == 0 {
			what = "punch"
			err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, int64(len(b)))
		} else {
			_, err = f.WriteAt(b, off)
		}
		if w.r.IntN(4) == 0 {
			what, err = what+" and fsync", errors.Join(err, f.Sync())
		}
		w.note(errors.Join(err, f.Close()), nil, "", fmt.Sprint(what, " ", old, " ", off, " ", len(b)))
	}
}

// note adds a name to a list if what made it succeeded.
func (w *randomWriter) note(err error, list *[]string, name, text string) bool {
	if err != nil {
		return false
	}
	if list != nil {
		*list = append(*list, name)
	}
	w.log = append(w.log, text)
	return true
}

// replay mounts crashed images, which replays their logs, and reads them. Arguments: the packed
// images. The host gets each as "replayed-N", packed, and ReplayFile.
func replay(_ io.Writer, args []string) error {
	var said []ReplaySaid
	for i, packed := range args {
		progress("replay %d", i)
		var s ReplaySaid
		if err := oneReplay(packed, fmt.Sprint("replayed-", i), &s); err != nil {
			s.Error = err.Error()
		}
		said = append(said, s)
	}
	return writeOut(ReplayFile, said)
}

func oneReplay(packed, out string, s *ReplaySaid) error {
	b, err := os.ReadFile(packed)
	if err != nil {
		return err
	}
	const img = "/tmp/replay.img"
	if err := Unpack(b, img); err != nil {
		return err
	}
	m, err := mountLoop(img, "")
	if err != nil {
		return errors.Join(err, os.Remove(img))
	}
	s.Tree, err = Manifest("/mnt")
	if err = errors.Join(err, m.Close()); err == nil {
		if b, err = Pack(img); err == nil {
			err = os.WriteFile(filepath.Join("/out", out), b, 0o644)
		}
	}
	return errors.Join(err, os.Remove(img))
}

// nowait tries a write with RWF_NOWAIT on files in every state. Arguments: a packed image, empty,
// of 256 MiB or more, and how many rounds more the writes of the full file system are asked. The
// host gets NowaitFile, of the first round, NowaitSpaceFile, and an image of each group of states,
// "nowait-GROUP", as it was before the writes.
func nowait(_ io.Writer, args []string) error {
	b, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	more, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	verdicts := map[string]string{}
	for group := range NowaitGroups {
		rounds := 1
		if group == NowaitFull {
			rounds += more
		}
		if err := nowaitGroup(b, group, rounds, verdicts); err != nil {
			return fmt.Errorf("group %d: %w", group, err)
		}
	}
	return writeOut(NowaitFile, verdicts)
}

func nowaitGroup(packed []byte, group NowaitGroup, rounds int, verdicts map[string]string) (err error) {
	const img = "/tmp/nowait.img"
	if err := Unpack(packed, img); err != nil {
		return err
	}
	m, err := mountLoop(img, "commit=300,nodiscard")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close(), os.Remove(img)) }()
	if group == NowaitQuota {
		if err := hostio.EnableQuota("/mnt"); err != nil {
			return fmt.Errorf("quota: %w", err)
		}
	}
	cells := NowaitCells(group)
	for _, c := range cells {
		for _, side := range []string{"kernel", "ours"} {
			if err := c.make(filepath.Join("/mnt", c.File(side))); err != nil {
				return fmt.Errorf("%s: %w", c.Key(), err)
			}
		}
	}
	if err := m.Sync(); err != nil {
		return err
	}
	switch group {
	case NowaitSnapshot:
		err = hostio.Snapshot("/mnt", "/mnt/snap")
	case NowaitQuota:
		err = hostio.LimitQuota("/mnt", 5, 64<<10) // less than there is
	case NowaitFull:
		err = fillUp("/mnt/filler")
	}
	if err = errors.Join(err, m.Sync()); err != nil {
		return err
	}
	b, err := Pack(img)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join("/out", fmt.Sprint("nowait-", int(group))), b, 0o644); err != nil {
		return err
	}
	var spaces strings.Builder
	for round := range rounds {
		for _, c := range cells {
			progress("%s", c.Key())
			space := metadataSpace()
			v, err := c.try(filepath.Join("/mnt", c.File("kernel")))
			if err != nil {
				return fmt.Errorf("%s: %w", c.Key(), err)
			}
			if round == 0 {
				verdicts[c.Key()] = v
			}
			fmt.Fprintf(&spaces, "round %d, %s: %s;%s\n", round+1, c.Key(), v, space)
		}
	}
	if group != NowaitFull {
		return nil
	}
	return os.WriteFile(filepath.Join("/out", NowaitSpaceFile), []byte(spaces.String()), 0o644)
}

// metadataSpace is what the kernel shows of space_info of metadata of the only btrfs that is
// mounted.
func metadataSpace() (text string) {
	for _, name := range []string{"metadata/total_bytes", "metadata/bytes_used", "metadata/bytes_pinned", "metadata/bytes_reserved", "metadata/bytes_may_use", "metadata/bytes_readonly", "global_rsv_reserved", "global_rsv_size"} {
		paths, _ := filepath.Glob("/sys/fs/btrfs/*-*/allocation/" + name) // a good pattern
		for _, path := range paths {
			b, _ := os.ReadFile(path) // a kernel that does not show it
			text += " " + filepath.Base(name) + "=" + strings.TrimSpace(string(b))
		}
	}
	return text
}

// fillUp allocates space until there is none.
func fillUp(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	off := int64(0)
	for n := int64(32 << 20); n >= 4096; {
		if err := unix.Fallocate(int(f.Fd()), 0, off, n); err != nil {
			n /= 2
			continue
		}
		off += n
	}
	return f.Close()
}

// make makes the cell's file by the running kernel.
func (c *NowaitCell) make(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fd := int(f.Fd())
	if c.State.NoCOW {
		const nocowFlag = 0x00800000 // FS_NOCOW_FL
		if err := unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, nocowFlag); err != nil {
			return err
		}
	}
	for _, s := range strings.Split(c.State.make, ";") {
		words := strings.Fields(s)
		// The words are ours.
		number := func(i int) int64 { n, _ := strconv.ParseInt(words[i], 10, 64); return n << 10 }
		switch words[0] {
		case "write":
			_, err = f.WriteAt(bytes.Repeat([]byte("linux"), int(number(2))/5+1)[:number(2)], number(1))
		case "falloc":
			err = unix.Fallocate(fd, 0, number(1), number(2))
		case "keep":
			err = unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, number(1), number(2))
		case "punch":
			err = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, number(1), number(2))
		case "sync":
			err = f.Sync()
		case "clone":
			var to *os.File
			if to, err = os.Create(path + ".link"); err == nil {
				err = errors.Join(to.Close(), clone(fd, path+".link", c.State.NoCOW))
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return f.Sync()
}

func clone(from int, path string, nocow bool) error {
	to, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if nocow {
		err = unix.IoctlSetPointerInt(int(to.Fd()), unix.FS_IOC_SETFLAGS, 0x00800000)
	}
	return errors.Join(err, unix.IoctlFileClone(int(to.Fd()), from), to.Close())
}

// try brings the file into the cell's state of the cache and tries the write. A verdict in brackets
// says why it was not tried.
func (c *NowaitCell) try(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	all := make([]byte, 256<<10)
	// The end of the last cell's write has tree blocks locked, for a moment. In a full file system,
	// or one beyond its quota, the write of what is dirty may fail.
	_ = unix.Syncfs(fd)
	read := func() { _, _ = unix.Pread(fd, all, 0) }
	read() // so that the metadata is in memory in every state of the range
	// A page that is in use at this moment stays, and the range would not be cold.
	for drop := 0; ; drop++ {
		if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
			return "", err
		}
		in, err := hostio.InMemory(fd, c.State.Off, c.State.Len)
		if err != nil {
			return "", err
		}
		if !in {
			break
		}
		if drop == 19 {
			return "(in memory)", nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	p := hostio.Resident(int(c.State.Len))
	switch c.Cache {
	case "cached":
		read()
	case "dirty":
		if n, err := unix.Pwrite(fd, p, c.State.Off); n != len(p) {
			return "(" + Verdict(n, c.State.Len, err) + ")", nil
		}
	}
	if c.Way == "direct" {
		direct, err := unix.Open(path, unix.O_RDWR|unix.O_DIRECT, 0)
		if err != nil {
			return "", err
		}
		defer unix.Close(direct)
		fd = direct
	}
	for try := 0; ; try++ {
		n, err := unix.Pwritev2(fd, [][]byte{p}, c.State.Off, unix.RWF_NOWAIT)
		// EAGAIN is also the answer while a worker has a tree block locked, which ends in a moment;
		// it changes nothing, so the question may be put again.
		if !errors.Is(err, unix.EAGAIN) || try == 4 {
			return Verdict(n, c.State.Len, err), nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}
