// Package guest reads the disks of virtual machines that are files in the format qcow2, as the
// device that the guest sees. They are read only here: who writes on one has to keep its tables,
// and qemu has what does.
//
// A disk is refused that lies on another file (a backing file, an external data file) or is
// encrypted. The format is go-qcow2reader's; what is looked at here is what it would take on trust.
package guest

import (
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/lima-vm/go-qcow2reader/image/qcow2"
	"github.com/lima-vm/go-qcow2reader/log"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// Magic is how a qcow2 image begins.
const Magic = qcow2.Magic

// Limits of the header, which are qemu's.
const (
	headerSize     = 104
	maxClusterBits = 21
	maxL1Bytes     = 32 << 20
)

// Incompatible features.
const (
	featureCorrupt  = 1 << 1
	featureDataFile = 1 << 2
)

// Disk is a guest's disk. Many tasks may read it.
type Disk struct {
	dev blockdev.Device
	img *qcow2.Qcow2
}

// Open is the disk that the file dev holds, which must begin with Magic. Closing it closes dev; an
// error leaves dev open.
func Open(t *sched.Task, dev blockdev.Device) (*Disk, error) {
	if err := look(t, dev); err != nil {
		return nil, err
	}
	img, err := qcow2.Open(readerAt{dev}, nil)
	if err == nil {
		err = img.Readable()
	}
	if err != nil {
		return nil, fmt.Errorf("is a qcow2 image that cannot be read: %w", err)
	}
	return &Disk{dev: dev, img: img}, nil
}

// look judges the header: a few bytes of it could ask for any amount of memory, or for any file.
func look(t *sched.Task, dev blockdev.Device) error {
	h := make([]byte, headerSize)
	if dev.Size() < headerSize {
		return fmt.Errorf("is a qcow2 image of %d bytes, want a header of %d", dev.Size(), headerSize)
	}
	if err := blockdev.Read(t, dev, h, 0); err != nil {
		return err
	}
	be := binary.BigEndian
	version, backing, bits, size := be.Uint32(h[4:]), be.Uint64(h[8:]), be.Uint32(h[20:]), be.Uint64(h[24:])
	switch {
	case backing != 0:
		return errors.New("is a qcow2 image that lies on another file, want all of the disk: qemu-img convert -O raw IN OUT")
	case bits < 9 || bits > maxClusterBits:
		return fmt.Errorf("is a qcow2 image with clusters of 2^%d bytes, want 2^9 to 2^%d", bits, maxClusterBits)
	case int64(size) < 0:
		return fmt.Errorf("is a qcow2 image of a disk of %d bytes, want less than 2^63", size)
	}
	l1 := uint64(be.Uint32(h[36:])) * 8
	if at := be.Uint64(h[40:]); l1 > maxL1Bytes || at > uint64(dev.Size()) || at+l1 > uint64(dev.Size()) {
		return fmt.Errorf("is a qcow2 image whose L1 table is %d bytes at %d of %d, want it inside, of %d at most", l1, at, dev.Size(), maxL1Bytes)
	}
	if version < 3 {
		return nil
	}
	switch features := be.Uint64(h[72:]); { // the rest of them is judged by the library
	case features&featureCorrupt != 0:
		return errors.New("is a qcow2 image that is marked corrupt: qemu-img check -r all")
	case features&featureDataFile != 0:
		return errors.New("is a qcow2 image that has its data in another file: qemu-img convert -O raw IN OUT")
	}
	return nil
}

// Name is that of the file.
func (d *Disk) Name() string { return d.dev.Name() }

// Size is the guest's, in bytes.
func (d *Disk) Size() int64 { return d.img.Size() }

// Close closes the file.
func (d *Disk) Close() error { return errors.Join(d.img.Close(), d.dev.Close()) }

// Submit reads, before it returns. A write is EROFS.
func (d *Disk) Submit(t *sched.Task, b *blockdev.Bio) {
	b.Err = d.do(b)
	b.EndIO(t, b)
}

func (d *Disk) do(b *blockdev.Bio) error {
	switch b.Op {
	case blockdev.OpFlush:
		return nil
	case blockdev.OpWrite:
		return errno.EROFS
	}
	if err := blockdev.CheckRange(d, b); err != nil {
		return err
	}
	off := b.Off
	for _, v := range b.Vecs {
		n, err := d.img.ReadAt(v, off)
		if n < len(v) {
			return fmt.Errorf("%s: qcow2: %d bytes at %d of the disk: %w", d.Name(), len(v), off, errors.Join(err, errno.EIO))
		}
		off += int64(n)
	}
	return nil
}

// readerAt gives the bytes of a device to a library that knows no tasks.
type readerAt struct{ dev blockdev.Device }

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > r.dev.Size() {
		return 0, fmt.Errorf("read at %d, want 0 to %d: %w", off, r.dev.Size(), io.EOF)
	}
	t := sched.Adopt("qcow2")
	defer t.Retire()
	n := min(int64(len(p)), r.dev.Size()-off)
	if err := blockdev.Read(t, r.dev, p[:n], off); err != nil {
		return 0, err
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// The library has no zstd of its own, and takes one Read for a whole cluster: a Read that ends with
// the stream, or before the cluster does, is an error to it. It would print what it thinks of a
// disk.
func init() {
	log.SetWarnFunc(nil)
	qcow2.SetDecompressor(qcow2.CompressionTypeZlib, func(r io.Reader) (io.ReadCloser, error) {
		return whole{flate.NewReader(r)}, nil
	})
	qcow2.SetDecompressor(qcow2.CompressionTypeZstd, func(r io.Reader) (io.ReadCloser, error) {
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return whole{d.IOReadCloser()}, nil
	})
}

// whole reads as many bytes as it is asked for, if there are as many.
type whole struct{ io.ReadCloser }

func (w whole) Read(p []byte) (int, error) {
	n, err := io.ReadFull(w.ReadCloser, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}
