package compress

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/format"
)

// methods are all kinds at some levels.
var methods = []string{"zlib", "zlib:1", "zlib:9", "lzo", "zstd", "zstd:1", "zstd:15"}

// mixture is n bytes of text with some that do not compress.
func mixture(r *rand.Rand, n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		for range r.IntN(300) {
			b.WriteByte(byte(r.Uint32()))
		}
		for range r.IntN(40) {
			fmt.Fprintf(&b, "line %d\n", r.IntN(20))
		}
		b.Write(make([]byte, r.IntN(600)))
	}
	return b.Bytes()[:n]
}

// What is encoded decodes to the same.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range methods {
		m, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			n := 1 + r.IntN(12000)
			if i%20 == 0 {
				n = 1 + r.IntN(MaxLen)
			}
			roundTrip(t, m, mixture(r, n))
		}
		if p := m.Encode(nil, make([]byte, MaxLen), 20000); p == nil {
			t.Errorf("%s: zeros do not compress", s)
		}
		noise := make([]byte, 8192)
		for i := range noise {
			noise[i] = byte(r.Uint32())
		}
		if p := m.Encode(nil, noise, len(noise)-format.SectorSize); p != nil {
			t.Errorf("%s: noise of %d bytes has become %d", s, len(noise), len(p))
		}
	}
}

func roundTrip(t *testing.T, m Method, src []byte) {
	t.Helper()
	p := m.Encode(nil, src, MaxLen)
	if p == nil {
		return
	}
	// the rest of the last sector on disk
	p = append(p, make([]byte, (format.SectorSize-len(p)%format.SectorSize)%format.SectorSize)...)
	if len(p) > MaxLen {
		return
	}
	have := bytes.Repeat([]byte{0xee}, len(src)+100)[:min(len(src)+100, MaxLen)]
	if err := Decode(m.Kind, have, p); err != nil {
		t.Fatalf("%s: %d bytes: %v", Name(m.Kind), len(src), err)
	}
	if !bytes.Equal(have[:len(src)], src) || len(bytes.Trim(have[len(src):], "\x00")) > 0 {
		t.Fatalf("%s: %d bytes differ", Name(m.Kind), len(src))
	}
}

func FuzzRoundTrip(f *testing.F) {
	r := rand.New(rand.NewPCG(2, 2))
	for i := range 8 {
		f.Add(mixture(r, 100<<i), uint8(i))
	}
	f.Fuzz(func(t *testing.T, src []byte, kind uint8) {
		if len(src) > 0 && len(src) <= MaxLen {
			roundTrip(t, Method{Kind: 1 + kind%3}, src)
		}
	})
}

func TestParse(t *testing.T) {
	for s, want := range map[string]Method{
		"zlib": {Kind: format.CompressZlib}, "zlib:9": {format.CompressZlib, 9}, "lzo": {Kind: format.CompressLZO},
		"zstd": {Kind: format.CompressZstd}, "zstd:15": {format.CompressZstd, 15},
	} {
		if have, err := Parse(s); have != want || err != nil {
			t.Errorf("%s: have %v, %v want %v", s, have, err, want)
		}
	}
	for _, s := range []string{"", "none", "gzip", "zlib:0", "zlib:10", "lzo:1", "zstd:16", "zstd:", "zstd:x", "zstd:-1"} {
		if have, err := Parse(s); err == nil {
			t.Errorf("%q is taken for %v", s, have)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	src := mixture(rand.New(rand.NewPCG(3, 3)), MaxLen)
	for _, s := range methods {
		b.Run(s, func(b *testing.B) {
			m, _ := Parse(s)
			dst := make([]byte, 0, MaxLen+4096)
			b.SetBytes(MaxLen)
			n := 0
			for b.Loop() {
				n = len(m.Encode(dst, src, MaxLen))
			}
			b.ReportMetric(float64(n)/MaxLen, "ratio")
		})
	}
}

// Before a segment of LZO there is room for its length in the sector, or the sector is filled up:
// with exactly four bytes left the length goes there, and the bytes after it into the next sector.
// Linux reads no other stream, and its own never has another. Noise of each length brings the end
// of the first segment to each place before the end of a sector.
func TestEncodePadding(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	noise := make([]byte, 3*format.SectorSize)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	seen := map[int]bool{}
	// A sector with a run of n bytes becomes shorter with n, so that its end goes over all places.
	for run := 1; run < 200; run++ {
		src := bytes.Clone(noise)
		for i := range run {
			src[100+i] = 'x'
		}
		p := Method{Kind: format.CompressLZO}.Encode(nil, src, MaxLen)
		if p == nil {
			t.Fatal("not encoded")
		}
		if n := binary.LittleEndian.Uint32(p); int(n) != len(p) {
			t.Fatalf("the stream says %d bytes, and has %d", n, len(p))
		}
		// Walk over the segments as Linux does: lzo_decompress_bio().
		at := lzoWord
		for range len(src) / format.SectorSize {
			if left := format.SectorSize - at%format.SectorSize; left < lzoWord {
				if len(bytes.Trim(p[at:at+left], "\x00")) > 0 {
					t.Fatalf("run of %d: the padding at %d is %x", run, at, p[at:at+left])
				}
				at += left
				seen[left] = true
			} else if left < 2*lzoWord {
				seen[left] = true
			}
			if at+lzoWord > len(p) {
				t.Fatalf("run of %d: no segment at %d of %d bytes", run, at, len(p))
			}
			at += lzoWord + int(binary.LittleEndian.Uint32(p[at:]))
		}
		if at != len(p) {
			t.Fatalf("run of %d: the segments end at %d of %d bytes", run, at, len(p))
		}
		have := make([]byte, len(src))
		if err := Decode(format.CompressLZO, have, p); err != nil || !bytes.Equal(have, src) {
			t.Fatalf("run of %d: %v", run, err)
		}
	}
	for left := 1; left < 2*lzoWord; left++ {
		if !seen[left] {
			t.Errorf("no segment begins with %d bytes left in its sector", left)
		}
	}
}

// The stream begins at the beginning of the buffer that it is given, whatever that holds: writeback
// gives the buffer of the extent before.
func TestEncodeAgain(t *testing.T) {
	src := bytes.Repeat([]byte("0123456789abcdef"), 2000)
	for _, s := range methods {
		m, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		want := m.Encode(nil, src, MaxLen)
		for _, used := range [][]byte{bytes.Repeat([]byte{0xee}, 100), make([]byte, 7, MaxLen)} {
			if have := m.Encode(used, src, MaxLen); !bytes.Equal(have, want) || len(want) == 0 {
				t.Errorf("%s: %d bytes into a used buffer, %d into a new one", s, len(have), len(want))
			}
		}
	}
}
