// Package packed has the tree that a class is given, in a program that was built with it: make dist
// writes labs.zip here and builds with tag labs. A program without it needs a clone.
package packed

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"strings"

	"btrlab/internal/study/handout"
)

// ErrNone says that the program was built without the tree.
var ErrNone = errors.New("this btrlab has no labs in it, for it was built without make dist: run it inside a clone")

// Files are the files of the tree; an ErrNone if there are none.
func Files() (list []handout.File, err error) {
	if len(zipped) == 0 {
		return nil, ErrNone
	}
	z, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
	if err != nil {
		return nil, err
	}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		list = append(list, handout.File{Path: strings.TrimPrefix(f.Name, handout.ZipFolder+"/"), Exec: f.Mode()&0o100 != 0, Data: b})
	}
	return list, nil
}
