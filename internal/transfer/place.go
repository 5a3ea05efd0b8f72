package transfer

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
)

// place is a name in a directory of the host that a transfer fills. What is reached by it lies in
// that directory: a symbolic link that is there already is not followed, it is in the way of a
// directory and makes room for anything else.
type place struct {
	dir  *hostDir
	name string
	path string // of the host, for messages
	rel  string // from the directory at which the transfer begins
}

// hostDir is a directory of the host that is open.
type hostDir struct {
	*os.Root
	self *os.File // the same, for calls that Root does not have
}

// openDir takes root over, and its error.
func openDir(root *os.Root, err error) (*hostDir, error) {
	if err != nil {
		return nil, err
	}
	self, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, err
	}
	return &hostDir{root, self}, nil
}

// Close closes the directory.
func (d *hostDir) Close() error { return errors.Join(d.self.Close(), d.Root.Close()) }

// in is the place name in the directory sub, which is at p.
func (p place) in(sub *hostDir, name string) place {
	return place{dir: sub, name: name, path: filepath.Join(p.path, name), rel: filepath.Join(p.rel, name)}
}

// named gives an error of the host the whole path.
func (p place) named(err error) error {
	var pe *iofs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		return &iofs.PathError{Op: pe.Op, Path: p.path, Err: pe.Err}
	case errors.As(err, &le):
		return &os.LinkError{Op: le.Op, Old: le.Old, New: p.path, Err: le.Err}
	}
	return err
}

// mkdir makes the directory, unless it is there, and opens it.
func (p place) mkdir(mode iofs.FileMode) (*hostDir, error) {
	if err := p.dir.Mkdir(p.name, mode); err != nil {
		if !errors.Is(err, iofs.ErrExist) {
			return nil, p.named(err)
		}
		st, err := p.dir.Lstat(p.name)
		if err != nil {
			return nil, p.named(err)
		}
		if !st.IsDir() {
			return nil, &unreadable{fmt.Errorf("%s is no directory, and not followed", p.path)}
		}
	}
	sub, err := openDir(p.dir.OpenRoot(p.name))
	return sub, p.named(err)
}

// clear removes what is there and no directory that has something in it.
func (p place) clear() error {
	if err := p.dir.Root.Remove(p.name); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return p.named(err)
	}
	return nil
}

// create makes a new file in the place of what is there.
func (p place) create() (*os.File, error) {
	f, err := p.dir.create(p.name)
	if !errors.Is(err, iofs.ErrExist) {
		return f, p.named(err)
	}
	if st, err := p.dir.Lstat(p.name); err == nil && st.IsDir() {
		return nil, &unreadable{fmt.Errorf("%s is a directory", p.path)}
	}
	if err := p.clear(); err != nil {
		return nil, err
	}
	f, err = p.dir.create(p.name)
	return f, p.named(err)
}
