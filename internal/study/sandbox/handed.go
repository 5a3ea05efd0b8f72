package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btrlab/internal/study/grade"
)

// What a student hands in is small, and regular files. A named pipe would keep the grader waiting,
// a device would fill its memory, and a link may lead to what is not the student's.
const (
	maxHanded  = 1 << 20 // bytes of a file, and of all Go files together
	MaxFiles   = 64      // Go files of a submission
	MaxEntries = 4096    // of a folder, whatever they are
)

// HandedError says why a file that a student hands in is not read, in one line.
type HandedError struct{ File, Why string }

func (e *HandedError) Error() string { return e.File + ": " + e.Why }

// Entries are what is in a folder of a student's, by name. An error is a *HandedError if there is
// too much of it, or the system's.
func Entries(dir string) ([]fs.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := f.ReadDir(MaxEntries + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(l) > MaxEntries:
		return nil, &HandedError{filepath.Base(dir), fmt.Sprintf("has more than %d entries, want at most that", MaxEntries)}
	}
	slices.SortFunc(l, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return l, nil
}

// File is a Go file of a submission as it was read, once.
type File struct {
	Path string
	Data []byte
}

// Read reads a file of a student's. An error is a *HandedError if the file is none to be
// read, or the system's.
func Read(path string) ([]byte, error) {
	at, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if err := regular(path, at); err != nil {
		return nil, err
	}
	// Whatever is there by now: it is not waited for, and is the file that was looked at.
	f, err := os.OpenFile(path, os.O_RDONLY|openNow, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil {
		return nil, err
	} else if !os.SameFile(at, now) {
		return nil, &HandedError{filepath.Base(path), "has become another file while it was read"}
	}
	var b bytes.Buffer
	if n, err := io.Copy(&b, io.LimitReader(f, maxHanded+1)); err != nil {
		return nil, err
	} else if n > maxHanded {
		return nil, tooLong(path)
	}
	return b.Bytes(), nil
}

// regular is an error if what is at path is no regular file, or more than is handed in.
func regular(path string, x fs.FileInfo) error {
	what := ""
	switch m := x.Mode(); {
	case m.IsRegular():
		if x.Size() > maxHanded {
			return tooLong(path)
		}
		return nil
	case m&fs.ModeSymlink != 0:
		what = "a symbolic link"
	case m.IsDir():
		what = "a folder"
	case m&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case m&fs.ModeSocket != 0:
		what = "a socket"
	default:
		what = "a device"
	}
	return &HandedError{filepath.Base(path), "is " + what + ", want a regular file"}
}

func tooLong(path string) error {
	return &HandedError{filepath.Base(path), fmt.Sprintf("has more than %d KiB, want at most that", maxHanded>>10)}
}

// ReadAll reads the Go files of a submission.
func ReadAll(paths []string) ([]File, error) {
	if len(paths) > MaxFiles {
		return nil, &HandedError{filepath.Base(paths[MaxFiles]), fmt.Sprintf("is one Go file of %d, want at most %d", len(paths), MaxFiles)}
	}
	var l []File
	all := 0
	for _, p := range paths {
		b, err := Read(p)
		if err != nil {
			return nil, err
		}
		if all += len(b); all > maxHanded {
			return nil, &HandedError{filepath.Base(p), fmt.Sprintf("and the files before it have more than %d KiB, want at most that", maxHanded>>10)}
		}
		l = append(l, File{p, b})
	}
	return l, nil
}

// Unread is the rows of a submission with a file that is not read, or nil and the error if that is
// another one.
func Unread(err error, max float64) ([]grade.Row, error) {
	var h *HandedError
	if errors.As(err, &h) {
		return grade.Refused("check", max, []string{h.Error()}), nil
	}
	return nil, err
}
