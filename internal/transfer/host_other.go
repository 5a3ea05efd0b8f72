//go:build !linux

package transfer

import (
	"errors"
	iofs "io/fs"
	"os"
	"time"
)

var errNotHere = errors.New("not on this system")

// fromSys and readAttrs know no more than statAttrs.
func (h *inodeAttrs) fromSys(iofs.FileInfo)                            {}
func readAttrs(_ *inodeAttrs, _ string, _ iofs.FileInfo, _ Keep) error { return nil }

// readable leaves it to the opening of a file.
func readable(string) error { return nil }

func (o *object) setxattr(string, []byte) error { return errNotHere }

func (o *object) setFlags(uint32) error { return errNotHere }

// setTimes sets no times of links.
func (d *hostDir) setTimes(name string, atime, mtime time.Time) error {
	if st, err := d.Lstat(name); err == nil && st.Mode()&iofs.ModeSymlink != 0 {
		return nil
	}
	return d.Chtimes(name, atime, mtime)
}

// create makes a file that is not there yet.
func (d *hostDir) create(name string) (*os.File, error) {
	return d.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

func (p place) mknod(uint32, uint64) error { return errNotHere }

// holdsOwners says whether this process may give files away.
func holdsOwners() bool { return false }

// openFile opens a file for reading.
func openFile(path string) (*os.File, error) { return os.Open(path) }

// ofFile knows no more than statAttrs.
func (h *inodeAttrs) ofFile(*os.File, Keep) error { return nil }

// link gives the file first, a path from d, the name to as well.
func (d *hostDir) link(first, to string) error { return d.Link(first, to) }
