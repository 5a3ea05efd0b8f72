package sendstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/format"
)

// testdata has streams of btrfs send; make.sh made them.

// stream is a file of testdata.
func stream(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var names = []string{"full-v1", "full-v2", "inc-v1", "inc-v2"}

// copied reads a stream up to END and gives what a Writer makes of its commands.
func copied(b []byte) (out []byte, read int64, err error) {
	r := NewReader(bytes.NewReader(b))
	if err := r.Header(); err != nil {
		return nil, r.Offset(), err
	}
	var buf bytes.Buffer
	w := NewWriter(&buf, r.Version())
	if err := w.Header(); err != nil {
		return nil, r.Offset(), err
	}
	for {
		c, err := r.Next()
		if err != nil {
			return buf.Bytes(), r.Offset(), err
		}
		w.Begin(c.Cmd)
		for _, f := range c.Fields {
			w.Bytes(f.Attr, f.Value)
		}
		if err := w.End(); err != nil {
			return nil, r.Offset(), err
		}
		if c.Cmd == C_END {
			return buf.Bytes(), r.Offset(), nil
		}
	}
}

// The streams of Linux are read to their end, and written again are the same bytes.
func TestLinuxStreams(t *testing.T) {
	for _, name := range names {
		b := stream(t, name)
		out, read, err := copied(b)
		if err != nil || read != int64(len(b)) || !bytes.Equal(out, b) {
			t.Errorf("%s: read %d of %d bytes, %d are written, error %v", name, read, len(b), len(out), err)
		}
	}
}

// A stream that is cut short anywhere is an error in one line, and so is one with a wrong bit.
func TestCutAndCorrupt(t *testing.T) {
	b := stream(t, "inc-v2")
	for n := range b {
		_, _, err := copied(b[:n])
		if err == nil || strings.Contains(err.Error(), "\n") || n > 0 && !strings.HasPrefix(err.Error(), "stream byte=") {
			t.Fatalf("cut at %d: error %v", n, err)
		}
		bad := bytes.Clone(b)
		bad[n] ^= 1 << (n % 8)
		if _, _, err := copied(bad); err == nil {
			// another version that has the same commands
			if n < len(magic) || n >= headerSize {
				t.Fatalf("bit %d of byte %d: no error", n%8, n)
			}
		}
	}
}

// command is the bytes of a command of version 2.
func command(f func(w *Writer)) []byte {
	var b bytes.Buffer
	w := NewWriter(&b, 2)
	f(w)
	if err := w.End(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// What is wrong with a command is said, and where.
func TestBadCommands(t *testing.T) {
	long := command(func(w *Writer) { w.Begin(C_END) })
	binary.LittleEndian.PutUint32(long, maxCommand+1)
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"nothing", nil, "stream byte=17 command=1: the stream ends, want the header of a command, or end"},
		{"half a header", []byte{1, 2, 3}, "stream byte=17 command=1 (command 0): cut short, have 3 bytes want 10: the header of a command, or end"},
		{"too long", long, "stream byte=17 command=1 (end): bad length, have 16777217 want at most 16777216"},
		{"unknown", command(func(w *Writer) { w.Begin(99) }), "stream byte=17 command=1 (command 99): unknown command in a stream of version 2"},
		{"later version", command(func(w *Writer) { w.Begin(C_ENABLE_VERITY) }), "stream byte=17 command=1 (enable_verity): unknown command in a stream of version 2"},
		{"missing", command(func(w *Writer) { w.Begin(C_RENAME).Text(A_PATH, "a") }), "stream byte=17 command=1 (rename): attribute path_to is missing"},
		{"twice", command(func(w *Writer) { w.Begin(C_UNLINK).Text(A_PATH, "a").Text(A_PATH, "b") }), "stream byte=17 command=1 (unlink): attribute path twice"},
		{"short number", command(func(w *Writer) { w.Begin(C_TRUNCATE).Text(A_PATH, "a").Bytes(A_SIZE, make([]byte, 7)) }),
			"stream byte=17 command=1 (truncate): bad attribute size, have 7 bytes want 8"},
		{"zero byte", command(func(w *Writer) { w.Begin(C_UNLINK).Text(A_PATH, "a\x00b") }),
			`stream byte=17 command=1 (unlink): bad attribute path, have a zero byte in "a\x00b"`},
		{"unknown attribute", command(func(w *Writer) { w.Begin(C_END).Bytes(99, nil) }), "stream byte=17 command=1 (end): bad attribute at 0, have 99 want 1 to 35"},
		{"attribute beyond the end", command(func(w *Writer) {
			w.Begin(C_UNLINK).Text(A_PATH, "abc")
			binary.LittleEndian.PutUint16(w.buf[commandSize+2:], 4)
		}), "stream byte=17 command=1 (unlink): bad attribute path at 0, have 3 bytes want 4"},
	} {
		head := append([]byte(magic), 2, 0, 0, 0)
		if _, _, err := copied(append(head, tt.b...)); err == nil || err.Error() != tt.want {
			t.Errorf("%s:\nhave %v\nwant %s", tt.name, err, tt.want)
		}
	}
	for _, tt := range []struct{ b, want string }{
		{"btrfs-str", "stream byte=0: header cut short, have 9 bytes want 17"},
		{"btrfs-steam\x00\x00\x01\x00\x00\x00", `stream byte=0: bad magic, have "btrfs-steam\x00\x00" want "btrfs-stream\x00"`},
		{magic + "\x04\x00\x00\x00", "stream byte=13: bad version, have 4 want 1 to 3"},
	} {
		if err := NewReader(strings.NewReader(tt.b)).Header(); err == nil || err.Error() != tt.want {
			t.Errorf("have %v\nwant %s", err, tt.want)
		}
	}
	if err := NewReader(strings.NewReader("")).Header(); !errors.Is(err, io.EOF) {
		t.Errorf("no stream: have %v want io.EOF", err)
	}
}

// Values come back as they were given.
func TestValues(t *testing.T) {
	ts := format.Timespec{Sec: -5, Nsec: 999999999}
	u := format.UUID{1, 2, 3}
	var b bytes.Buffer
	w := NewWriter(&b, 2)
	if err := w.Header(); err != nil {
		t.Fatal(err)
	}
	w.Begin(C_UTIMES).Text(A_PATH, "p").Time(A_ATIME, ts).Time(A_MTIME, ts).UUID(A_UUID, u).Uint(A_COMPRESSION, 7).Uint(A_SIZE, 1<<40)
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	r := NewReader(&b)
	if err := r.Header(); err != nil {
		t.Fatal(err)
	}
	c, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if c.Text(A_PATH) != "p" || c.Time(A_ATIME) != ts || c.UUID(A_UUID) != u || c.Uint(A_COMPRESSION) != 7 || c.Uint(A_SIZE) != 1<<40 || c.Has(A_DATA) || c.Uint(A_MODE) != 0 {
		t.Errorf("have %+v", c)
	}
}

// A command that version 1 has no room for is not written.
func TestTooLongForVersion1(t *testing.T) {
	w := NewWriter(io.Discard, 1)
	w.Begin(C_WRITE).Text(A_PATH, strings.Repeat("p", 4096)).Bytes(A_DATA, make([]byte, 62<<10))
	if err := w.End(); err == nil {
		t.Error("no error")
	}
}

// Whatever is read without an error is written again as the same bytes.
func FuzzReader(f *testing.F) {
	for _, name := range names {
		b := stream(f, name)
		f.Add(b[:min(len(b), 4096)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out, read, err := copied(b)
		if err == nil && !bytes.Equal(out, b[:read]) {
			t.Errorf("%d bytes are read, and others are written", read)
		}
	})
}
