package jobs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Pack is a file without its zeros: its size, then offset, length and bytes of each run, by numbers
// of eight bytes. Unpack makes the file again.
func Pack(path string) (out []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	out = packHeader(size)
	buf, zero := make([]byte, packed), make([]byte, packed)
	for off := int64(0); off < size; off += packed {
		n, err := f.ReadAt(buf, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if !bytes.Equal(buf[:n], zero[:n]) {
			out = packRun(out, off, buf[:n])
		}
	}
	return out, nil
}

const packed = 16 << 10 // bytes of a run

func packHeader(size int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(size)) }

func packRun(out []byte, off int64, p []byte) []byte {
	out = binary.LittleEndian.AppendUint64(out, uint64(off))
	out = binary.LittleEndian.AppendUint64(out, uint64(len(p)))
	return append(out, p...)
}

// Unpack makes the file that Pack has read.
func Unpack(b []byte, path string) error { return unpack(b, path, os.O_TRUNC|os.O_CREATE) }

// Patch makes a copy of its base the file of which Delta has read the difference.
func Patch(b []byte, path string) error { return unpack(b, path, 0) }

func unpack(b []byte, path string, flags int) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|flags, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	number := func() uint64 {
		if len(b) < 8 {
			b = nil
			return 0
		}
		n := binary.LittleEndian.Uint64(b)
		b = b[8:]
		return n
	}
	if err := f.Truncate(int64(number())); err != nil {
		return err
	}
	for len(b) > 0 {
		off, n := number(), number()
		if n > uint64(len(b)) {
			return fmt.Errorf("bad packed file, have %d bytes of a run want %d", len(b), n)
		}
		if _, err := f.WriteAt(b[:n], int64(off)); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
