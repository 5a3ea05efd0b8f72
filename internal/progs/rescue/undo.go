package rescue

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

// An undo file has the old contents of what was changed on the devices of an image: a line, then
// for each range the number of the device, its offset and its length, 4, 8 and 4 bytes in little
// endian, and its bytes; a length of 0 and the SHA-256 of all before end it.

const undoHead = "btrlab undo 1\n"

const undoRangeMax = 1 << 20 // bytes

// UndoWriter writes an undo file.
type UndoWriter struct {
	w   *bufio.Writer
	sum hash.Hash
}

// NewUndoWriter begins one.
func NewUndoWriter(w io.Writer) *UndoWriter {
	u := &UndoWriter{w: bufio.NewWriterSize(w, 1<<20), sum: sha256.New()}
	u.write([]byte(undoHead))
	return u
}

func (u *UndoWriter) write(p []byte) {
	u.sum.Write(p)
	_, _ = u.w.Write(p) // Close has the error
}

// Add adds a range with its old contents, at most 1 MiB.
func (u *UndoWriter) Add(dev int, off int64, old []byte) error {
	b := le.AppendUint32(nil, uint32(dev))
	b = le.AppendUint64(b, uint64(off))
	u.write(le.AppendUint32(b, uint32(len(old))))
	u.write(old)
	return nil
}

// Close ends the file, which is not closed.
func (u *UndoWriter) Close() error {
	u.write(make([]byte, 16))
	_, _ = u.w.Write(u.sum.Sum(nil))
	return u.w.Flush()
}

// Undo writes the contents of an undo file back, and returns how many bytes. Nothing is written
// when the file is not whole, or does not fit the devices.
func Undo(t *sched.Task, devs []blockdev.Device, r io.ReadSeeker) (n int64, err error) {
	err = eachUndo(r, func(dev int, off int64, p []byte) error {
		if dev >= len(devs) || off < 0 || off+int64(len(p)) > devs[dev].Size() {
			return fmt.Errorf("an undo file of other devices: %d bytes at %d of device %d", len(p), off, dev+1)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	err = eachUndo(r, func(dev int, off int64, p []byte) error {
		n += int64(len(p))
		return blockdev.Write(t, devs[dev], p, off)
	})
	for _, d := range devs {
		err = errors.Join(err, blockdev.Flush(t, d))
	}
	return n, err
}

func eachUndo(r io.Reader, f func(dev int, off int64, p []byte) error) error {
	sum := sha256.New()
	in := bufio.NewReaderSize(r, 1<<20)
	broken := errors.New("an undo file that is not whole")
	read := func(n int) ([]byte, error) {
		p := make([]byte, n)
		if _, err := io.ReadFull(in, p); err != nil {
			return nil, broken
		}
		return p, nil
	}
	head, err := read(len(undoHead))
	if err != nil || string(head) != undoHead {
		return errors.New("not an undo file")
	}
	sum.Write(head)
	for {
		h, err := read(16)
		if err != nil {
			return err
		}
		sum.Write(h)
		n := le.Uint32(h[12:])
		if n == 0 {
			have, err := read(sha256.Size)
			if err != nil || !bytes.Equal(have, sum.Sum(nil)) {
				return broken
			}
			return nil
		}
		if n > undoRangeMax {
			return broken
		}
		p, err := read(int(n))
		if err != nil {
			return err
		}
		sum.Write(p)
		if err := f(int(le.Uint32(h)), int64(le.Uint64(h[4:])), p); err != nil {
			return err
		}
	}
}
