package transfer

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
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

// besides counts the names of beside.
var besides atomic.Uint64

// beside is a place in the same directory with a name that nobody has.
func (p place) beside() place {
	p.name = fmt.Sprintf(".btrlab-%d-%d", os.Getpid(), besides.Add(1))
	p.rel = filepath.Join(filepath.Dir(p.rel), p.name)
	return p
}

// takes gives what is at q the name of p, in the place of what has it.
func (p place) takes(q place) error {
	err := p.dir.Root.Rename(q.name, p.name)
	if st, serr := p.dir.Lstat(p.name); err != nil && serr == nil && st.IsDir() {
		if err = p.clear(); err == nil { // it was empty
			err = p.dir.Root.Rename(q.name, p.name)
		}
	}
	if cerr := q.clear(); err == nil { // of two names of one file rename(2) keeps both
		err = cerr
	}
	return p.named(err)
}

// begun is a file of the host that is being filled.
type begun struct {
	f        *os.File
	replaces bool         // something else has its name
	whole    func() error // gives it its name
	drop     func() error // removes it
}

// begin makes a file for p. If something is there it stays until the new one is whole.
func (p place) begin() (*begun, error) {
	f, err := p.dir.create(p.name)
	if err == nil {
		return &begun{f, false, func() error { return nil }, p.clear}, nil
	}
	if !errors.Is(err, iofs.ErrExist) {
		return nil, p.named(err)
	}
	if st, err := p.dir.Lstat(p.name); err == nil && st.IsDir() {
		return nil, &unreadable{fmt.Errorf("%s is a directory", p.path)}
	}
	q := p.beside()
	if f, err = p.dir.create(q.name); err != nil {
		return nil, p.named(err)
	}
	return &begun{f, true, func() error { return p.takes(q) }, q.clear}, nil
}

// beginAt is begin for a name of the caller's, whose links are followed. A device or a pipe is
// filled as it is.
func beginAt(dest string) (*begun, error) {
	if real, err := filepath.EvalSymlinks(dest); err == nil {
		dest = real
	}
	st, err := os.Lstat(dest)
	if err != nil || !st.Mode().IsRegular() {
		f, err := os.OpenFile(dest, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		return &begun{f, false, func() error { return nil }, func() error { return dropAt(dest) }}, err
	}
	dir, err := openDir(os.OpenRoot(filepath.Dir(dest)))
	if err != nil {
		return nil, err
	}
	b, err := place{dir: dir, name: filepath.Base(dest), path: dest}.begin()
	if err != nil {
		dir.Close()
		return nil, err
	}
	whole, drop := b.whole, b.drop
	b.whole = func() error { return errors.Join(whole(), dir.Close()) }
	b.drop = func() error { return errors.Join(drop(), dir.Close()) }
	return b, nil
}

// dropAt removes what a copy has begun at dest, but no device and no link that the caller has
// named.
func dropAt(dest string) error {
	if st, err := os.Lstat(dest); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	return os.Remove(dest)
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
