//go:build !portable

package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"btrlab/internal/hostio"
	"btrlab/internal/script"
)

func init() { jobs["logs"] = logs }

// logs has the kernel replay logs. Arguments: a packed image, and a file with []LogTask. Of each
// task the host gets LogsFile's row, "left-N" with what a workload of the kernel's has left when
// the power went, and "replayed-N" with the image after replay; both as Delta of the packed image.
func logs(_ io.Writer, args []string) error {
	packed, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	b, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	var tasks []LogTask
	if err := json.Unmarshal(b, &tasks); err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	const base = "/tmp/base.img"
	if err := Unpack(packed, base); err != nil {
		return err
	}
	said := make([]LogSaid, len(tasks))
	for i := range tasks {
		progress("log %d of %d", i+1, len(tasks))
		if err := oneLog(packed, base, i, &tasks[i], &said[i]); err != nil {
			said[i].Error = err.Error()
		}
	}
	return writeOut(LogsFile, said)
}

func oneLog(packed []byte, base string, n int, k *LogTask, s *LogSaid) (err error) {
	const img = "/tmp/log.img"
	if err := Unpack(packed, img); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(img)) }()
	var left []byte
	if k.Left != "" {
		left, err = os.ReadFile(k.Left)
	} else {
		left, err = leave(img, base, k.Lines)
	}
	if err != nil {
		return err
	}
	if k.Left == "" {
		// The workload's umount has written on the image: the crash is of a new copy.
		if err := errors.Join(os.WriteFile(filepath.Join("/out", fmt.Sprint("left-", n)), left, 0o644), Unpack(packed, img)); err != nil {
			return err
		}
	}
	if err := Patch(left, img); err != nil {
		return err
	}
	if s.Log, err = HasLog(img); err != nil {
		return err
	}
	m, err := mountLoop(img, "")
	if err != nil {
		return err
	}
	s.Facts, err = Facts("/mnt")
	if err := errors.Join(err, m.Close()); err != nil {
		return err
	}
	replayed, err := Delta(img, base)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("/out", fmt.Sprint("replayed-", n)), replayed, 0o644)
}

// leave runs a workload on the image and returns what a power cut would leave of it after the last
// line. The loop device has given the file all that the file system has written.
func leave(img, base string, lines []string) (left []byte, err error) {
	m, err := mountLoop(img, "commit=300")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for _, l := range lines {
		err := Do("/mnt", l)
		if no := syscall.Errno(0); err != nil && !errors.As(err, &no) {
			return nil, fmt.Errorf("%s: %w", l, err)
		}
		// What cannot be done is an operation, too, as it is in crash.Sequence.Run.
	}
	return Delta(img, base)
}

// HasLog reports whether the superblock of an image names a log.
func HasLog(img string) (bool, error) {
	f, err := os.Open(img)
	if err != nil {
		return false, err
	}
	defer f.Close()
	const logRoot = 64<<10 + 0x60
	b := make([]byte, 8)
	_, err = f.ReadAt(b, logRoot)
	return !bytes.Equal(b, make([]byte, 8)), err
}

// Do does a line of script in the file system that is mounted at dir; it knows the verbs of a
// crash.Sequence, and rm -r of an empty directory. An error wraps an Errno where the kernel
// refused.
func Do(dir, line string) error {
	c, err := parse(line)
	if err != nil || c.verb == "" {
		return err
	}
	at := func(i int) string { return filepath.Join(dir, c.args[i]) }
	switch c.verb {
	case "mkdir":
		return os.Mkdir(at(0), 0o755)
	case "rm":
		if c.flags["r"] != "" {
			return unix.Rmdir(at(0))
		}
		return unix.Unlink(at(0))
	case "mv":
		return os.Rename(at(0), at(1))
	case "ln":
		if c.flags["s"] != "" {
			return os.Symlink(c.args[0], at(1))
		}
		return os.Link(at(0), at(1))
	case "setxattr":
		return unix.Setxattr(at(2), c.args[0], []byte(c.args[1]), 0)
	case "removexattr":
		return unix.Removexattr(at(1), c.args[0])
	case "truncate":
		return os.Truncate(at(0), c.number("size"))
	case "sync":
		return syncFS(dir)
	}
	return c.onFile(at(0))
}

// command is a line that is understood.
type command struct {
	verb  string
	flags map[string]string // without their hyphens; a switch has a text
	args  []string
}

// number is the number of a flag, 0 without one.
func (c *command) number(flag string) int64 {
	n, _ := strconv.ParseInt(c.flags[flag], 10, 64) // none is 0
	return n
}

func parse(line string) (*command, error) {
	words, err := script.Words(line)
	if err != nil || len(words) == 0 {
		return &command{}, err
	}
	c := &command{verb: words[0], flags: map[string]string{}}
	for i := 1; i < len(words); i++ {
		name, isFlag := strings.CutPrefix(words[i], "--")
		switch {
		case words[i] == "-s" || words[i] == "-r":
			c.flags[words[i][1:]] = "true"
		case isFlag && (name == "direct" || name == "keep-size" || name == "punch-hole" || name == "zero-range"):
			c.flags[name] = "true"
		case isFlag && i+1 < len(words):
			i++
			c.flags[name] = words[i]
		case isFlag:
			return nil, fmt.Errorf("flag %s has no value", words[i])
		default:
			c.args = append(c.args, words[i])
		}
	}
	want, listed := map[string]int{"sync": 0, "mv": 2, "ln": 2, "setxattr": 3, "removexattr": 2}[c.verb]
	if !listed {
		want = 1
	}
	if len(c.args) != want {
		return nil, fmt.Errorf("%s: have %d arguments, want %d", c.verb, len(c.args), want)
	}
	return c, nil
}

// onFile opens the file at path, does to it what the command says, and closes it.
func (c *command) onFile(path string) error {
	mode, do := os.O_RDWR, func(*os.File) error { return nil }
	switch c.verb {
	case "touch":
		mode |= os.O_CREATE
	case "fallocate":
		how := uint32(0)
		for name, bits := range map[string]uint32{"keep-size": unix.FALLOC_FL_KEEP_SIZE, "punch-hole": unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, "zero-range": unix.FALLOC_FL_ZERO_RANGE} {
			if c.flags[name] != "" {
				how |= bits
			}
		}
		do = func(f *os.File) error {
			return unix.Fallocate(int(f.Fd()), how, c.number("offset"), c.number("length"))
		}
	case "write":
		_, exact := c.flags["length"]
		text := script.Repeat(c.flags["data"], int(c.number("length")), exact)
		if c.flags["direct"] != "" {
			aligned := hostio.Resident(len(text))
			copy(aligned, text)
			text, mode = aligned, mode|unix.O_DIRECT
		}
		do = func(f *os.File) error { _, err := f.WriteAt(text, c.number("offset")); return err }
	case "fsync":
		mode, do = os.O_RDONLY, (*os.File).Sync
	case "fdatasync":
		mode, do = os.O_RDONLY, func(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
	default:
		return fmt.Errorf("no verb %q", c.verb)
	}
	f, err := os.OpenFile(path, mode, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

// Facts are what can be seen of the tree below dir: of each path its type and permissions, names,
// mtime, size and blocks, and the bytes of a file, the path of another of its names, the target of
// a symbolic link, the attributes of users.
func Facts(dir string) (map[string]string, error) {
	facts, inodes := map[string]string{}, map[uint64]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("mode=%o links=%d mtime=%d size=%d", st.Mode, st.Nlink, info.ModTime().UnixNano(), st.Size)
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if inodes[st.Ino] == "" {
				inodes[st.Ino] = name
			}
			text += fmt.Sprintf(" blocks=%d sum=%016x same=%s", st.Blocks, crc64.Checksum(b, sums), inodes[st.Ino])
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			facts[name] = text + " to=" + to
			return nil
		}
		names := make([]byte, 4096)
		n, err := unix.Llistxattr(path, names)
		if err != nil {
			return &os.PathError{Op: "listxattr", Path: path, Err: err}
		}
		attrs := strings.Split(string(names[:n]), "\x00")
		sort.Strings(attrs)
		for _, a := range attrs {
			if !strings.HasPrefix(a, "user.") {
				continue
			}
			v := make([]byte, 4096)
			n, err := unix.Lgetxattr(path, a, v)
			if err != nil {
				return &os.PathError{Op: "getxattr", Path: path, Err: err}
			}
			text += fmt.Sprintf(" %s=%q", a, v[:n])
		}
		facts[name] = text
		return nil
	})
	return facts, err
}

// Delta is what a file has other than base, as Pack has a file; base is not longer. Patch makes the
// file of a copy of base.
func Delta(path, base string) (out []byte, err error) {
	var files [2]*os.File
	var data [2]map[int64]bool // runs that are not holes
	for i, name := range []string{path, base} {
		if files[i], err = os.Open(name); err != nil {
			return nil, err
		}
		defer files[i].Close()
		if data[i], err = dataRuns(files[i]); err != nil {
			return nil, &os.PathError{Op: "seek", Path: name, Err: err}
		}
	}
	size, err := files[0].Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	out = packHeader(size)
	have, was := make([]byte, packed), make([]byte, packed)
	for off := int64(0); off < size; off += packed {
		if !data[0][off] && !data[1][off] {
			continue
		}
		n, err := files[0].ReadAt(have, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		k, err := files[1].ReadAt(was, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if k < n || !bytes.Equal(have[:n], was[:n]) {
			out = packRun(out, off, have[:n])
		}
	}
	return out, nil
}

// dataRuns are the offsets of the runs of Pack in which a file has no hole, or not only one.
func dataRuns(f *os.File) (map[int64]bool, error) {
	runs := map[int64]bool{}
	for end := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // no more data
			return runs, nil
		}
		if err != nil {
			return nil, err
		}
		if end, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
			return nil, err
		}
		for off := from / packed * packed; off < end; off += packed {
			runs[off] = true
		}
	}
}
