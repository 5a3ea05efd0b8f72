package compress

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zlib"

	"btrlab/internal/format"
)

// Method is how data is compressed. The zero value is not at all.
type Method struct {
	Kind  uint8 // format.CompressNone, CompressZlib, CompressLZO, CompressZstd
	Level int   // of zlib 1 to 9, of zstd 1 to 15; 0 is the default, 3. LZO has none.
}

const levelDefault = 3

// Parse reads a method as mount options of Linux write it: zlib, zlib:9, lzo, zstd, zstd:15.
func Parse(s string) (Method, error) {
	name, level, leveled := strings.Cut(s, ":")
	for kind := uint8(format.CompressZlib); kind <= format.CompressZstd; kind++ {
		if name != Name(kind) {
			continue
		}
		m := Method{Kind: kind}
		if !leveled {
			return m, nil
		}
		most := map[uint8]int{format.CompressZlib: 9, format.CompressZstd: 15}[kind]
		n, err := strconv.Atoi(level)
		if err != nil || n < 1 || n > most {
			if most == 0 {
				return Method{}, fmt.Errorf("bad compression %q, want no level with lzo", s)
			}
			return Method{}, fmt.Errorf("bad compression level %q, want 1 to %d", level, most)
		}
		m.Level = n
		return m, nil
	}
	return Method{}, fmt.Errorf("bad compression %q, want zlib[:LEVEL], lzo or zstd[:LEVEL]", s)
}

// Incompat is the feature that an image with such extents must say that it has, 0 for none.
func (m Method) Incompat() uint64 {
	switch m.Kind {
	case format.CompressLZO:
		return format.IncompatCompressLZO
	case format.CompressZstd:
		return format.IncompatCompressZSTD
	}
	return 0
}

// Encode appends the stream of src, which is 1 to MaxLen bytes, to dst[:0] and returns it, or nil
// when it would be longer than most bytes, at most MaxLen.
func (m Method) Encode(dst, src []byte, most int) []byte {
	level := m.Level
	if level == 0 {
		level = levelDefault
	}
	dst = dst[:0]
	switch m.Kind {
	case format.CompressZlib:
		dst = encodeZlib(dst, src, level)
	case format.CompressLZO:
		dst = encodeLZO(dst, src, most)
	case format.CompressZstd:
		dst = encodeZstd(dst, src, level)
	default:
		return nil
	}
	if len(dst) == 0 || len(dst) > most {
		return nil
	}
	return dst
}

// zlibWriters are writers at rest, by level.
var zlibWriters [10]sync.Pool

func encodeZlib(dst, src []byte, level int) []byte {
	b := bytes.NewBuffer(dst)
	w, ok := zlibWriters[level].Get().(*zlib.Writer)
	if ok {
		w.Reset(b)
	} else {
		var err error
		if w, err = zlib.NewWriterLevel(b, level); err != nil {
			return nil
		}
	}
	_, err := w.Write(src)
	if cerr := w.Close(); err != nil || cerr != nil {
		return nil
	}
	w.Reset(io.Discard) // lets b go
	zlibWriters[level].Put(w)
	return b.Bytes()
}

// encodeLZO frames segments of a sector each. It gives up, with an empty stream, when it gets
// longer than most.
func encodeLZO(dst, src []byte, most int) []byte {
	dst = append(dst, 0, 0, 0, 0)
	for len(src) > 0 {
		n := min(len(src), format.SectorSize)
		if left := format.SectorSize - len(dst)%format.SectorSize; left < lzoWord {
			dst = append(dst, make([]byte, left)...)
		}
		at := len(dst)
		dst = lzo1x(append(dst, 0, 0, 0, 0), src[:n])
		binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-lzoWord))
		if len(dst) > most {
			return dst[:0]
		}
		src = src[n:]
	}
	binary.LittleEndian.PutUint32(dst, uint32(len(dst)))
	return dst
}

// The instructions of LZO1X that lzo1x uses. A match of 3 to 8 bytes at most 2048 bytes back has
// two bytes, any other at most 16384 back three or more. The lowest two bits of the second byte
// from its end say how many literals follow, up to three.
const (
	lzoNear      = 2048
	lzoNearMost  = 8
	lzoFar       = 0x20
	lzoFarMost   = 33
	lzoEnd       = 0x11
	lzoFirst     = 17  // the first byte of a stream that begins with literals, less their number
	lzoFirstMost = 238 // the most of them
	lzoMatch     = 4   // the shortest match that is looked for
	lzoHashBits  = 12
)

// lzo1x appends src, at most a sector, as LZO1X: at each byte the last place with the same four
// bytes is a match or none.
func lzo1x(dst, src []byte) []byte {
	var last [1 << lzoHashBits]uint16 // place + 1
	start, lit := len(dst), 0
	for at := 0; at+lzoMatch <= len(src); {
		word := binary.LittleEndian.Uint32(src[at:])
		h := word * 2654435761 >> (32 - lzoHashBits)
		from := int(last[h]) - 1
		last[h] = uint16(at + 1)
		if from < 0 || binary.LittleEndian.Uint32(src[from:]) != word {
			at++
			continue
		}
		n := lzoMatch
		for at+n < len(src) && src[from+n] == src[at+n] {
			n++
		}
		dst = lzoLiterals(dst, start, src[lit:at])
		dst = lzoCopy(dst, at-from, n)
		at += n
		lit = at
	}
	dst = lzoLiterals(dst, start, src[lit:])
	return append(dst, lzoEnd, 0, 0)
}

// lzoLiterals appends literals; the stream begins at start.
func lzoLiterals(dst []byte, start int, p []byte) []byte {
	switch n := len(p); {
	case n == 0:
		return dst
	case len(dst) == start && n <= lzoFirstMost:
		dst = append(dst, byte(lzoFirst+n))
	case len(dst) > start && n <= 3:
		dst[len(dst)-2] |= byte(n)
	case n <= 18:
		dst = append(dst, byte(n-3))
	default:
		dst = lzoLength(append(dst, 0), n-18)
	}
	return append(dst, p...)
}

// lzoCopy appends a copy of n bytes from back bytes before.
func lzoCopy(dst []byte, back, n int) []byte {
	back--
	if n <= lzoNearMost && back < lzoNear {
		return append(dst, byte((n-1)<<5|(back&7)<<2), byte(back>>3))
	}
	if n <= lzoFarMost {
		dst = append(dst, byte(lzoFar|(n-2)))
	} else {
		dst = lzoLength(append(dst, lzoFar), n-lzoFarMost)
	}
	return append(dst, byte(back<<2), byte(back>>6))
}

// lzoLength appends a length, at least 1, that its instruction has no room for.
func lzoLength(dst []byte, n int) []byte {
	for ; n > 255; n -= 255 {
		dst = append(dst, 0)
	}
	return append(dst, byte(n))
}
