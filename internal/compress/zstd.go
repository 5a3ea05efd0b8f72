//go:build !js

package compress

import (
	"bytes"
	"errors"
	"sync"

	"github.com/klauspost/compress/zstd"

	"btrlab/internal/format"
)

// zstds are decoders at rest, zstdWriters are encoders by level.
var (
	zstds       sync.Pool
	zstdWriters sync.Map
)

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

// encodeZstd makes one frame, with a window that every reader of btrfs takes.
func encodeZstd(dst, src []byte, level int) []byte {
	e, ok := zstdWriters.Load(level)
	if !ok {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)), zstd.WithWindowSize(MaxLen), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil
		}
		e, _ = zstdWriters.LoadOrStore(level, w)
	}
	return e.(*zstd.Encoder).EncodeAll(src, dst)
}
