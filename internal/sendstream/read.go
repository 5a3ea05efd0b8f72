package sendstream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Reader reads the commands of a stream.
type Reader struct {
	r       io.Reader
	off     int64 // of what is read next
	number  int   // commands read
	version uint32
	buf     []byte
	cmd     Command
}

// NewReader reads from r; the caller buffers.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Version is the version of the stream whose header was read last.
func (r *Reader) Version() uint32 { return r.version }

// Offset is the bytes read so far.
func (r *Reader) Offset() int64 { return r.off }

// Header reads the header of a stream. io.EOF when there is none: the input ends. The commands are
// counted anew.
func (r *Reader) Header() error {
	at := r.off
	b, err := r.take(headerSize)
	switch {
	case errors.Is(err, io.EOF):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("stream byte=%d: header cut short, have %d bytes want %d", at, r.off-at, headerSize)
	case err != nil:
		return err
	}
	if string(b[:len(magic)]) != magic {
		return fmt.Errorf("stream byte=%d: bad magic, have %q want %q", at, b[:len(magic)], magic)
	}
	v := binary.LittleEndian.Uint32(b[len(magic):])
	if v < MinVersion || v > MaxVersion {
		return fmt.Errorf("stream byte=%d: bad version, have %d want %d to %d", at+int64(len(magic)), v, MinVersion, MaxVersion)
	}
	r.version, r.number = v, 0
	return nil
}

// take reads the next n bytes: io.EOF when there is none, io.ErrUnexpectedEOF when there are fewer.
// Memory grows with what has come, not with n, which may be damaged.
func (r *Reader) take(n int) ([]byte, error) {
	r.buf = r.buf[:0]
	for len(r.buf) < n {
		step := min(n-len(r.buf), 256<<10)
		at := len(r.buf)
		if cap(r.buf) < at+step {
			r.buf = append(make([]byte, 0, at+step), r.buf...)
		}
		r.buf = r.buf[:at+step]
		k, err := io.ReadFull(r.r, r.buf[at:])
		r.off += int64(k)
		if err != nil {
			if errors.Is(err, io.EOF) && at > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return r.buf, nil
}

// Next reads a command and checks it: checksum, number, the attributes that it must have and their
// lengths. The command is good until the next call. An input that ends before END is an error.
func (r *Reader) Next() (*Command, error) {
	r.number++
	c := &r.cmd
	*c = Command{Offset: r.off, Number: r.number, Fields: c.Fields[:0]}
	b, err := r.take(commandSize)
	if err != nil {
		return nil, r.short(err, commandSize, "the header of a command, or end")
	}
	var head [commandSize]byte
	copy(head[:], b)
	size := int64(binary.LittleEndian.Uint32(head[:]))
	c.Cmd = Cmd(binary.LittleEndian.Uint16(head[4:]))
	most := int64(maxCommand)
	if r.version == 1 {
		most = maxCommandV1 - commandSize
	}
	if size > most {
		return nil, c.Errorf("bad length, have %d want at most %d", size, most)
	}
	if b, err = r.take(int(size)); err != nil {
		return nil, r.short(err, commandSize+size, "all of it")
	}
	if have, want := commandSum(head[:], b), binary.LittleEndian.Uint32(head[6:]); have != want {
		return nil, c.Errorf("bad crc, have %#08x want %#08x", have, want)
	}
	if !c.Cmd.known() || cmdTable[c.Cmd].version > r.version {
		return nil, c.Errorf("unknown command in a stream of version %d", r.version)
	}
	if err := c.decode(b, r.version); err != nil {
		return nil, err
	}
	return c, nil
}

// short is the error of a command that is not all there, of which size bytes are wanted.
func (r *Reader) short(err error, size int64, what string) error {
	c := &r.cmd
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if have := r.off - c.Offset; have > 0 {
		return c.Errorf("cut short, have %d bytes want %d: %s", have, size, what)
	}
	return fmt.Errorf("stream byte=%d command=%d: the stream ends, want %s", c.Offset, c.Number, what)
}

// decode takes the attributes apart.
func (c *Command) decode(b []byte, version uint32) error {
	for at := 0; at < len(b); {
		if len(b)-at < 2 {
			return c.Errorf("bad attribute at %d, have %d bytes want at least 2", at, len(b)-at)
		}
		a := Attr(binary.LittleEndian.Uint16(b[at:]))
		if a == 0 || a >= attrs {
			return c.Errorf("bad attribute at %d, have %d want 1 to %d", at, uint16(a), attrs-1)
		}
		value := b[at+2:]
		if version == 1 || a != A_DATA {
			if len(b)-at < fieldSize {
				return c.Errorf("bad attribute %v at %d, have %d bytes want at least %d", a, at, len(b)-at, fieldSize)
			}
			n := int(binary.LittleEndian.Uint16(b[at+2:]))
			if value = b[at+fieldSize:]; n > len(value) {
				return c.Errorf("bad attribute %v at %d, have %d bytes want %d", a, at, len(value), n)
			}
			value = value[:n:n]
			at += fieldSize + n
		} else {
			at = len(b)
		}
		if err := c.check(a, value); err != nil {
			return err
		}
		c.Fields = append(c.Fields, Field{a, value})
	}
	for _, a := range cmdTable[c.Cmd].needs {
		if !c.Has(a) {
			return c.Errorf("attribute %v is missing", a)
		}
	}
	return nil
}

// check says why a value is none for the attribute.
func (c *Command) check(a Attr, value []byte) error {
	switch k := attrTable[a].kind; {
	case c.Has(a):
		return c.Errorf("attribute %v twice", a)
	case k.size() != 0 && len(value) != k.size():
		return c.Errorf("bad attribute %v, have %d bytes want %d", a, len(value), k.size())
	case k == kindPath && strings.IndexByte(string(value), 0) >= 0:
		return c.Errorf("bad attribute %v, have a zero byte in %q", a, value)
	}
	return nil
}
