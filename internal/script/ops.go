package script

import (
	"errors"
	"fmt"
	gopath "path"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// onFile opens the file at path for writing and runs do.
func onFile(path string, more fs.OpenFlags, do func(t *sched.Task, f *fs.File) error) op {
	return func(t *sched.Task, x *fs.FS) error { return OnFile(t, x, path, fs.O_RDWR|more, do) }
}

// OnFile opens the file at path, runs do and closes it. A file that it makes has permissions 644.
func OnFile(t *sched.Task, x *fs.FS, path string, flags fs.OpenFlags, do func(t *sched.Task, f *fs.File) error) error {
	f, err := x.OpenFile(t, path, flags, 0o644)
	if err != nil {
		return err
	}
	err = do(t, f)
	if cerr := f.Close(t); err == nil {
		err = cerr
	}
	return err
}

// Touch makes an empty file; one that is there stays as it is.
func Touch(t *sched.Task, x *fs.FS, path string) error {
	return OnFile(t, x, path, fs.O_RDWR|fs.O_CREAT, func(*sched.Task, *fs.File) error { return nil })
}

// MkdirAll makes the directory path and those above it that are missing, which have permissions
// 755. A directory that is there is no error.
func MkdirAll(t *sched.Task, x *fs.FS, path string, perm uint32) error {
	at, err := x.Stat(t, path)
	switch {
	case err == nil && at.IsDir():
		return nil
	case err == nil:
		return errno.ENOTDIR
	case !errors.Is(err, errno.ENOENT):
		return err
	}
	if err := MkdirAll(t, x, gopath.Dir(path), 0o755); err != nil {
		return err
	}
	return x.Mkdir(t, path, perm)
}

// NoAttribute is the error about an extended attribute that a file does not have, by its name:
// ENODATA to a system call.
type NoAttribute string

func (e NoAttribute) Error() string { return fmt.Sprintf("there is no attribute %q", string(e)) }

// RemoveXattr takes an extended attribute from a file. ENOENT is for the file alone.
func RemoveXattr(t *sched.Task, x *fs.FS, path, name string) error {
	err := x.Removexattr(t, path, name)
	if errors.Is(err, errno.ENOENT) {
		if _, gone := x.Stat(t, path); gone == nil {
			return NoAttribute(name)
		}
	}
	return err
}

// Move renames from to to, or into the directory to.
func Move(t *sched.Task, x *fs.FS, from, to string) error {
	to = IntoDir(t, x, from, to)
	err := x.Rename(t, from, to)
	if errors.Is(err, errno.EINVAL) {
		err = fmt.Errorf("a directory does not move into itself, to %s: %w", to, err)
	}
	return err
}

// IntoDir is to, or the name of from in it when to is a directory.
func IntoDir(t *sched.Task, x *fs.FS, from, to string) string {
	if at, err := x.Stat(t, to); err == nil && at.IsDir() {
		return gopath.Join(to, gopath.Base(from))
	}
	return to
}

// ParseMode reads permissions, in octal.
func ParseMode(s string) (uint32, error) {
	mode, err := strconv.ParseUint(s, 8, 32)
	if err != nil || mode > 0o7777 {
		return 0, fmt.Errorf("mode %q, want an octal number to 7777", s)
	}
	return uint32(mode), nil
}

// Range is the flags of fallocate.
type Range struct {
	Offset, Length    Size
	keep, punch, zero bool
}

// Flags adds the flags to f.
func (r *Range) Flags(f *pflag.FlagSet) {
	f.Var(&r.Offset, "offset", "start of the range (default 0)")
	f.Var(&r.Length, "length", "length of the range (required)")
	f.BoolVar(&r.keep, "keep-size", false, "do not make the file longer")
	f.BoolVar(&r.punch, "punch-hole", false, "free the range; it reads as zeros")
	f.BoolVar(&r.zero, "zero-range", false, "make the range read as zeros and keep it reserved")
}

// Allocate does to the range of f what the flags say.
func (r *Range) Allocate(t *sched.Task, f *fs.File) error {
	var mode uint32
	if r.keep || r.punch {
		mode |= fs.FALLOC_FL_KEEP_SIZE
	}
	if r.punch {
		mode |= fs.FALLOC_FL_PUNCH_HOLE
	}
	if r.zero {
		mode |= fs.FALLOC_FL_ZERO_RANGE
	}
	return f.Fallocate(t, mode, r.Offset.N, r.Length.N)
}

// Repeat is text, or with exact set n bytes of it again and again; of 0xcd without a text, as
// xfs_io writes.
func Repeat(text string, n int, exact bool) []byte {
	switch {
	case !exact:
		return []byte(text)
	case text == "":
		text = "\xcd"
	}
	return []byte(strings.Repeat(text, (n+len(text)-1)/len(text))[:n])
}
