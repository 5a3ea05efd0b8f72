// Package handout makes what a class is given: the committed tree without solutions and without its
// history.
//
// Whatever has instructor in its path, as a folder or as the first word of a file's name
// (instructor_test.go), is left out. The answers to the predictions go along sealed (package
// grade), so that grading can set them beside what a student said. File HANDOUT says what the tree
// is, and has the digests of the starters: a test of a starter that a student has changed says so
// and is skipped.
//
// Of such a tree, the part that grading one lab needs is in an autograder for Gradescope
// (autograder.go).
//
// Invariants:
//   - the same commit gives the same bytes;
//   - the working tree has no say: a solution that was written where the starter is and not
//     committed is not handed out.
package handout

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"btrlab/internal/study/course"
	"btrlab/internal/study/judges"
)

// File is a file of a tree, by its path in it, with slashes.
type File struct {
	Path string
	Exec bool
	Data []byte
}

// Committed reads the files of the last commit of the clone at root.
func Committed(root string) ([]File, error) {
	if _, err := os.Stat(filepath.Join(root, judges.HandoutFile)); err == nil {
		return nil, fmt.Errorf("%s is a handout itself: it is made from a clone", root)
	}
	out, err := output(exec.Command("git", "-C", root, "archive", "--format=tar", "HEAD"))
	if err != nil {
		return nil, fmt.Errorf("read the last commit of %s: %w", root, err)
	}
	return untar(bytes.NewReader(out))
}

// Uncommitted are the paths in the clone at root that differ from the last commit, with those that
// git does not know and does not ignore: their changes are not handed out.
func Uncommitted(root string) ([]string, error) {
	out, err := output(exec.Command("git", "-C", root, "status", "--porcelain", "-z"))
	if err != nil {
		return nil, fmt.Errorf("read the state of %s: %w", root, err)
	}
	const status = len("XY ")
	var l []string
	entries := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	for i := 0; i < len(entries); i++ {
		e := entries[i]
		if len(e) <= status {
			continue
		}
		l = append(l, e[status:])
		if strings.ContainsAny(e[:2], "RC") {
			i++ // its old name
		}
	}
	return l, nil
}

func untar(r io.Reader) ([]File, error) {
	var l []File
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return nil, err
		}
		switch h.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		case tar.TypeReg:
		default:
			return nil, fmt.Errorf("%s is a file of type %q, want regular files only", h.Name, h.Typeflag)
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		l = append(l, File{h.Name, h.Mode&0o100 != 0, b})
	}
}

// kept says whether a path is handed out.
func kept(name string) bool {
	return !slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool {
		return s == "instructor" || strings.HasPrefix(s, "instructor_")
	})
}

const about = `# This tree is a handout of btrlab: everything but the solutions and what is for whoever teaches.
# make test, make grade LAB=4 and btrlab lab work in it; make labs, which grades the solutions, does not.
# What follows are the starters, as sha256sum writes and checks them.
`

// From returns the files of a tree that are handed out, by path.
func From(tree []File) ([]File, error) {
	byPath := map[string][]byte{}
	var l []File
	for _, f := range tree {
		byPath[f.Path] = f.Data
		if kept(f.Path) {
			l = append(l, f)
		}
	}
	marker := []byte(about)
	for _, lab := range course.Labs {
		dir := path.Join("labs", lab.Folder)
		starter, ok := byPath[path.Join(dir, lab.File)]
		if !ok {
			return nil, fmt.Errorf("lab %d has no starter %s", lab.N, path.Join(dir, lab.File))
		}
		marker = fmt.Appendf(marker, "%x  %s\n", sha256.Sum256(starter), path.Join(dir, lab.File))
		if answers, ok := byPath[path.Join(dir, course.AnswersFile)]; ok {
			l = append(l, File{Path: path.Join(dir, course.SealedFile), Data: lab.Seal(answers)})
		}
	}
	l = append(l, File{Path: judges.HandoutFile, Data: marker})
	beside, err := aroundTree()
	if err != nil {
		return nil, err
	}
	l = append(l, beside...)
	slices.SortFunc(l, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return l, nil
}

func (f File) mode() fs.FileMode {
	if f.Exec {
		return 0o755
	}
	return 0o644
}

// WriteTree writes the files below dir, which must not be there. They are written beside it, to dir
// with .part~ at the end: dir is whole or not there.
func WriteTree(dir string, l []File) error {
	if _, err := os.Lstat(dir); err == nil {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrExist}
	}
	part := dir + ".part~"
	if err := os.RemoveAll(part); err != nil { // of one that was killed
		return err
	}
	defer os.RemoveAll(part)
	if err := os.Mkdir(part, 0o755); err != nil {
		return err
	}
	for _, f := range l {
		to := filepath.Join(part, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, f.Data, f.mode()); err != nil {
			return err
		}
	}
	return os.Rename(part, dir)
}

// ZipFolder is the folder in which a handout's zip has the files.
const ZipFolder = "btrlab"

// WriteZip writes the files as a zip, in folder under, which may be empty. The bytes depend on
// nothing else.
func WriteZip(w io.Writer, under string, l []File) error {
	z := zip.NewWriter(w)
	for _, f := range l {
		h := &zip.FileHeader{Name: path.Join(under, f.Path), Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		h.SetMode(f.mode())
		to, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := to.Write(f.Data); err != nil {
			return err
		}
	}
	return z.Close()
}
