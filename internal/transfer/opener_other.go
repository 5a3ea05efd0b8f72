//go:build !linux

package transfer

import (
	"os"

	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/mkfs"
)

// hostOpener opens what Scan has listed.
type hostOpener struct{ keep Keep }

func (o *hostOpener) Close() {}

func (o *hostOpener) Open(e *mkfs.Entry) (mkfs.Object, error) {
	if p, err := openElsewhere(e); p != nil || err != nil {
		return p, err
	}
	if e.Mode&format.S_IFMT != format.S_IFREG {
		return hostObject{e: e}, nil
	}
	f, err := os.Open(hostPath(e))
	if err != nil {
		return nil, err
	}
	return hostObject{f, e}, nil
}

type hostObject struct {
	*os.File
	e *mkfs.Entry
}

func (o hostObject) Attrs() ([]image.Xattr, uint64, error) {
	attrs, flags := kept(o.e, nil, 0)
	return attrs, flags, nil
}

func (o hostObject) Size() (int64, error) {
	st, err := o.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (o hostObject) NextData(off, size int64) (start, end int64, err error) {
	return nextData(o.File, off, size)
}

func (o hostObject) Close() error {
	if o.File == nil {
		return nil
	}
	return o.File.Close()
}
