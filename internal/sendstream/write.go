package sendstream

import (
	"encoding/binary"
	"fmt"
	"io"

	"btrlab/internal/format"
)

// Writer writes a stream: Header, then for each command Begin, its attributes in order, DATA last,
// and End.
type Writer struct {
	w       io.Writer
	version uint32
	buf     []byte // the command under way
}

// NewWriter writes a stream of the version to w; the caller buffers.
func NewWriter(w io.Writer, version uint32) *Writer { return &Writer{w: w, version: version} }

// Version is the version of the stream.
func (w *Writer) Version() uint32 { return w.version }

// Header writes the header of the stream.
func (w *Writer) Header() error {
	_, err := w.w.Write(binary.LittleEndian.AppendUint32([]byte(magic), w.version))
	return err
}

// Begin begins a command.
func (w *Writer) Begin(c Cmd) *Writer {
	var head [commandSize]byte
	binary.LittleEndian.PutUint16(head[4:], uint16(c))
	w.buf = append(w.buf[:0], head[:]...)
	return w
}

// field begins an attribute of n bytes.
func (w *Writer) field(a Attr, n int) *Writer {
	w.buf = binary.LittleEndian.AppendUint16(w.buf, uint16(a))
	if w.version == 1 || a != A_DATA {
		if n > 0xffff {
			panic(fmt.Sprintf("sendstream: attribute %v of %d bytes", a, n))
		}
		w.buf = binary.LittleEndian.AppendUint16(w.buf, uint16(n))
	}
	return w
}

// Bytes adds an attribute of any type; but for the DATA of version 2 it has at most 65535 bytes.
func (w *Writer) Bytes(a Attr, p []byte) *Writer {
	w.field(a, len(p))
	w.buf = append(w.buf, p...)
	return w
}

// Text adds a path or a name.
func (w *Writer) Text(a Attr, s string) *Writer {
	w.field(a, len(s))
	w.buf = append(w.buf, s...)
	return w
}

// Uint adds a number, in as many bytes as the attribute has.
func (w *Writer) Uint(a Attr, n uint64) *Writer {
	size := attrTable[a].kind.size()
	w.field(a, size)
	for i := range size {
		w.buf = append(w.buf, byte(n>>(8*i)))
	}
	return w
}

// UUID adds a uuid.
func (w *Writer) UUID(a Attr, u format.UUID) *Writer { return w.Bytes(a, u[:]) }

// Time adds a time.
func (w *Writer) Time(a Attr, ts format.Timespec) *Writer {
	w.field(a, kindTime.size())
	w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(ts.Sec))
	w.buf = binary.LittleEndian.AppendUint32(w.buf, ts.Nsec)
	return w
}

// End writes the command. A command of version 1 that is longer than that allows is an error.
func (w *Writer) End() error {
	if w.version == 1 && len(w.buf) > maxCommandV1 {
		return fmt.Errorf("command %v has %d bytes, want at most %d in version 1", Cmd(binary.LittleEndian.Uint16(w.buf[4:])), len(w.buf), maxCommandV1)
	}
	binary.LittleEndian.PutUint32(w.buf, uint32(len(w.buf)-commandSize))
	binary.LittleEndian.PutUint32(w.buf[6:], commandSum(w.buf[:commandSize], w.buf[commandSize:]))
	_, err := w.w.Write(w.buf)
	return err
}
