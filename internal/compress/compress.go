// Package compress encodes and decodes the data of file extents: zlib, LZO and zstd, as btrfs
// frames them. One extent is one stream of at most MaxLen bytes, padded with anything to whole
// sectors.
//
//	zlib   a zlib stream
//	lzo    4 bytes with the length of all, then for each 4096 bytes of data 4 bytes with the length
//	       of the segment, and the segment, LZO1X. The 4 bytes never lie across the end of a sector:
//	       the rest of the sector is padding then
//	zstd   a zstd frame with a window of at most MaxLen bytes
//
// Lengths are little-endian. In a browser zstd is missing: no image of the site has such extents,
// and a page is no larger for it.
//
// Model: fs/btrfs/zlib.c, lzo.c and zstd.c. A stream may hold more than its extent: the rest is
// never looked at; or less: the rest of the extent is zeros.
package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/anchore/go-lzo"
	"github.com/klauspost/compress/zlib"

	"btrlab/internal/errno"
	"btrlab/internal/format"
)

// MaxLen is the longest extent that is compressed, and the longest stream of one, in bytes. Models
// BTRFS_MAX_UNCOMPRESSED and BTRFS_MAX_COMPRESSED.
const MaxLen = 128 << 10

// names are the kinds of compression by format.CompressNone and so on.
var names = [...]string{"none", "zlib", "lzo", "zstd"}

// Name is the name of a kind of compression: zlib, lzo or zstd.
func Name(kind uint8) string {
	if int(kind) < len(names) {
		return names[kind]
	}
	return fmt.Sprintf("compression %d", kind)
}

// Decode fills dst with the first bytes of the stream src, and with zeros after its end. kind is
// format.CompressZlib, CompressLZO or CompressZstd. dst may have been written to when Decode fails.
//
// Errors: EIO, with what is wrong, when the stream is broken before dst is full.
func Decode(kind uint8, dst, src []byte) error {
	if len(dst) > MaxLen || len(src) > MaxLen {
		return broken(kind, "bad length, have %d bytes for %d want at most %d", len(src), len(dst), MaxLen)
	}
	var n int
	var err error
	switch kind {
	case format.CompressZlib:
		n, err = decodeZlib(dst, src)
	case format.CompressLZO:
		n, err = decodeLZO(dst, src)
	case format.CompressZstd:
		n, err = decodeZstd(dst, src)
	default:
		err = broken(kind, "unknown kind")
	}
	if err != nil {
		return err
	}
	clear(dst[n:])
	return nil
}

func broken(kind uint8, msg string, args ...any) error {
	return fmt.Errorf("corrupt %s stream: %s: %w", Name(kind), fmt.Sprintf(msg, args...), errno.EIO)
}

// fill reads dst full, or up to the end of the stream.
func fill(kind uint8, dst []byte, r io.Reader) (int, error) {
	n, err := io.ReadFull(whole{r}, dst)
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, nil
	}
	return n, broken(kind, "%v", err)
}

// whole gives a stream that is cut short an error of its own: io.ReadFull says io.ErrUnexpectedEOF
// also of a stream that ends.
type whole struct{ io.Reader }

var errShort = errors.New("the stream is cut short")

func (w whole) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errShort
	}
	return n, err
}

// zlibs are decoders at rest.
var zlibs sync.Pool

func decodeZlib(dst, src []byte) (int, error) {
	in := bytes.NewReader(src)
	r, ok := zlibs.Get().(io.ReadCloser)
	var err error
	if ok {
		err = r.(zlib.Resetter).Reset(in, nil)
	} else {
		r, err = zlib.NewReader(in)
	}
	if err != nil {
		return 0, broken(format.CompressZlib, "%v", err)
	}
	n, err := fill(format.CompressZlib, dst, r)
	zlibs.Put(r)
	return n, err
}

// lzoWord is the size of a length in an LZO stream.
const lzoWord = 4

// lzoSegmentMax is the longest segment: what LZO1X makes of a sector that it cannot compress.
const lzoSegmentMax = format.SectorSize + format.SectorSize/16 + 64 + 3

func decodeLZO(dst, src []byte) (int, error) {
	const kind = format.CompressLZO
	if len(src) < lzoWord {
		return 0, broken(kind, "%v", errShort)
	}
	total := int(binary.LittleEndian.Uint32(src))
	if total < lzoWord || total > len(src) {
		return 0, broken(kind, "bad length, have %d want %d to %d", total, lzoWord, len(src))
	}
	var sector [format.SectorSize]byte
	n := 0
	for at := lzoWord; at < total && n < len(dst); {
		if at+lzoWord > total {
			return n, broken(kind, "byte %d: %v", at, errShort)
		}
		size := int(binary.LittleEndian.Uint32(src[at:]))
		if at += lzoWord; size > lzoSegmentMax || at+size > total {
			return n, broken(kind, "byte %d: bad segment length, have %d want at most %d", at-lzoWord, size, min(lzoSegmentMax, total-at))
		}
		out := dst[n:]
		if len(out) < len(sector) { // the caller wants a part of the segment
			out = sector[:]
		}
		got, err := lzo.Decompress(src[at:at+size], out[:len(sector)])
		if err != nil {
			return n, broken(kind, "byte %d: %v", at, err)
		}
		n += copy(dst[n:], out[:got])
		at += size
		if left := format.SectorSize - at%format.SectorSize; left < lzoWord {
			at += left
		}
	}
	return n, nil
}
