package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
)

// testdata/seeds has streams of Linux 6.18, each in a file whose name begins with its kind: what
// lines makes of 1, 200001 bytes in two extents, and inline, with the padding that the extent has.

// lines is the first n bytes of what the streams hold, as
// seq -f "line %.0f of a file that is compressed" 1 20000 prints it.
func lines(n int) []byte {
	var b bytes.Buffer
	for i := 1; b.Len() < n; i++ {
		fmt.Fprintf(&b, "line %d of a file that is compressed\n", i)
	}
	return b.Bytes()[:n]
}

// streams are the files of testdata/seeds, by name.
func streams(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/seeds/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no seeds: %v", err)
	}
	all := map[string][]byte{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(p)] = b
	}
	return all
}

func kindOf(t testing.TB, name string) uint8 {
	t.Helper()
	for kind := uint8(format.CompressZlib); kind <= format.CompressZstd; kind++ {
		if strings.HasPrefix(name, Name(kind)) {
			return kind
		}
	}
	t.Fatalf("no kind in the name %s", name)
	return 0
}

// Streams of Linux decode to what was written, also in part; beyond their end are zeros.
func TestLinuxStreams(t *testing.T) {
	all := lines(200001)
	for name, src := range streams(t) {
		kind, want := kindOf(t, name), all[:MaxLen]
		switch {
		case strings.HasSuffix(name, "tail"):
			// zeros up to the end of the sector
			want = append(bytes.Clone(all[MaxLen:]), make([]byte, 703)...)
		case strings.HasSuffix(name, "inline"):
			want = all[:1000]
		}
		for _, n := range []int{len(want), len(want) - 1, len(want) / 2, 4096, 4095, 1, 0} {
			if n > len(want) {
				continue
			}
			have := bytes.Repeat([]byte{0xee}, n)
			if err := Decode(kind, have, src); err != nil {
				t.Errorf("%s: %d bytes: %v", name, n, err)
			} else if !bytes.Equal(have, want[:n]) {
				t.Errorf("%s: %d bytes differ", name, n)
			}
		}
	}
}

// A stream that is cut short or changed is an error, or decodes to something: it never panics, and
// never writes beyond its end.
func TestBroken(t *testing.T) {
	for name, src := range streams(t) {
		kind := kindOf(t, name)
		dst := make([]byte, MaxLen)
		used := len(bytes.TrimRight(src, "\x00"))
		for _, n := range []int{0, 1, 3, 4, 5, 8, 9, used / 2, used - 20} {
			if err := Decode(kind, dst, src[:max(n, 0)]); !errors.Is(err, errno.EIO) {
				t.Errorf("%s cut to %d of %d bytes: have %v want EIO", name, n, used, err)
			}
		}
		for i := range min(used, 300) {
			p := bytes.Clone(src)
			p[i] ^= 0xff
			_ = Decode(kind, dst, p)
		}
	}
	for _, c := range []struct {
		what string
		kind uint8
		src  string
	}{
		{"no compression", 0, "abcd"},
		{"unknown", 4, "abcd"},
		{"no stream", format.CompressZlib, "not a stream"},
		{"no stream", format.CompressZstd, "not a stream"},
		{"a skippable frame", format.CompressZstd, "\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"},
		{"length below its own", format.CompressLZO, "\x03\x00\x00\x00"},
		{"a huge segment", format.CompressLZO, "\x0c\x00\x00\x00\xff\xff\xff\x7f\x11\x00\x00\x00"},
		{"more than there is", format.CompressLZO, "\xff\xff\xff\xff\x04\x00\x00\x00\x11\x00\x00\x00"},
		{"across the end", format.CompressLZO, "\x0a\x00\x00\x00\x04\x00\x00\x00\x11\x00\x00\x00"},
		{"too long a segment", format.CompressLZO, "\x0d\x00\x00\x00\x05\x00\x00\x00\x11\x00\x00\x00\x00"},
		{"a match before the start", format.CompressLZO, "\x0d\x00\x00\x00\x05\x00\x00\x00\x40\x00\x11\x00\x00"},
		{"a preset dictionary", format.CompressZlib, "\x78\xbb\x00\x00\x00\x01\x00"},
		{"a window of 4 MiB", format.CompressZstd, "\x28\xb5\x2f\xfd\x00\x60\x01\x00\x00"},
		{"no last block", format.CompressZstd, "\x28\xb5\x2f\xfd\x00\x00\x06\x00\x00"},
	} {
		if err := Decode(c.kind, make([]byte, 100), []byte(c.src)); !errors.Is(err, errno.EIO) {
			t.Errorf("%s, %s: have %v want EIO", Name(c.kind), c.what, err)
		}
	}
	if err := Decode(format.CompressZlib, make([]byte, MaxLen+1), nil); !errors.Is(err, errno.EIO) {
		t.Errorf("more than an extent: have %v want EIO", err)
	}
}

// The length of an LZO segment does not lie across the end of a sector: with less than four bytes
// left there, it is in the next one.
func TestPadding(t *testing.T) {
	for left := range 6 {
		// The first segment ends left bytes before the end of the sector. It is literals and the
		// end of the stream; so is the second.
		n := format.SectorSize - 2*lzoWord - left - 5
		want := bytes.Repeat([]byte("ab"), n)[:n+4]
		src := make([]byte, lzoWord, 2*format.SectorSize)
		segment := func(data []byte) {
			b := []byte{byte(17 + len(data))}
			if len(data) > 238 {
				b = []byte{0}
				for n := len(data) - 18; ; n -= 255 {
					if n <= 255 {
						b = append(b, byte(n))
						break
					}
					b = append(b, 0)
				}
			}
			b = append(append(b, data...), 0x11, 0, 0)
			src = binary.LittleEndian.AppendUint32(src, uint32(len(b)))
			src = append(src, b...)
		}
		for segment(want[:n]); len(src) > format.SectorSize-left; segment(want[:n]) {
			n--
			src = src[:lzoWord]
		}
		if have := format.SectorSize - len(src); have != left {
			t.Fatalf("%d bytes left want %d", have, left)
		}
		if left < lzoWord {
			src = append(src, make([]byte, left)...)
		}
		segment(want[n : n+4])
		binary.LittleEndian.PutUint32(src, uint32(len(src)))
		have := make([]byte, n+4)
		if err := Decode(format.CompressLZO, have, src); err != nil || !bytes.Equal(have, want[:n+4]) {
			t.Errorf("%d bytes left: %v", left, err)
		}
	}
}

func fuzz(f *testing.F, kind uint8) {
	for name, src := range streams(f) {
		if kindOf(f, name) == kind {
			f.Add(src, uint32(MaxLen))
			f.Add(src[:min(len(src), 200)], uint32(4096))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, n uint32) {
		n %= MaxLen + 1
		buf := bytes.Repeat([]byte{0xee}, int(n)+64)
		err := Decode(kind, buf[:n:n], src)
		if err != nil && !errors.Is(err, errno.EIO) {
			t.Errorf("have %v want EIO", err)
		}
		for _, c := range buf[n:] {
			if c != 0xee {
				t.Fatal("bytes beyond the end are written")
			}
		}
		if err != nil {
			return
		}
		again := make([]byte, n/2)
		if err := Decode(kind, again, src); err != nil || !bytes.Equal(again, buf[:n/2]) {
			t.Errorf("the first half decodes otherwise, %v", err)
		}
	})
}

func FuzzZlib(f *testing.F) { fuzz(f, format.CompressZlib) }
func FuzzLZO(f *testing.F)  { fuzz(f, format.CompressLZO) }
func FuzzZstd(f *testing.F) { fuzz(f, format.CompressZstd) }

func BenchmarkDecode(b *testing.B) {
	for name, src := range streams(b) {
		if !strings.HasSuffix(name, "full") {
			continue
		}
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, MaxLen)
			b.SetBytes(MaxLen)
			for b.Loop() {
				if err := Decode(kindOf(b, name), dst, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
