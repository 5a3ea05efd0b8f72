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
// Lengths are little-endian.
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
	"github.com/klauspost/compress/zstd"

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

// zlibs and zstds are decoders at rest.
var zlibs, zstds sync.Pool

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

func decodeZstd(dst, src []byte) (int, error) {
	src, err := zstdFrame(src)
	if err != nil {
		return 0, broken(format.CompressZstd, "%v", err)
	}
	d, ok := zstds.Get().(*zstd.Decoder)
	if !ok {
		// Of one decoder, concurrency 1: it decodes in the caller, without goroutines.
		if d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(MaxLen)); err != nil {
			return 0, broken(format.CompressZstd, "%v", err)
		}
	}
	n := 0
	if err = d.Reset(bytes.NewReader(src)); err == nil {
		n, err = fill(format.CompressZstd, dst, d)
	} else {
		err = broken(format.CompressZstd, "%v", err)
	}
	_ = d.Reset(nil) // lets src go
	zstds.Put(d)
	return n, err
}

// zstdFrame is the first frame of src: what follows is padding. Blocks have a header of three
// bytes: from the lowest bit on the mark of the last block, two bits of its type, and its length.
func zstdFrame(src []byte) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return nil, err
	}
	if h.Skippable {
		return nil, errors.New("a skippable frame")
	}
	const header, typeRLE = 3, 1
	at := h.HeaderSize
	for last := false; !last; {
		if at+header > len(src) {
			return nil, errShort
		}
		b := uint32(src[at]) | uint32(src[at+1])<<8 | uint32(src[at+2])<<16
		last = b&1 != 0
		n := int(b >> 3)
		if b>>1&3 == typeRLE {
			n = 1
		}
		at += header + n
	}
	if h.HasCheckSum {
		at += 4
	}
	if at > len(src) {
		return nil, errShort
	}
	return src[:at], nil
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
