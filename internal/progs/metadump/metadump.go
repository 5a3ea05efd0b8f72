// Package metadump writes and reads the dumps of btrfs-image: the metadata of a file system without
// its file data, for somebody who is to look at a broken one.
//
// A dump is clusters, one after the other. A cluster begins with a block of 1 KiB: a header and up
// to 83 items, each a logical address and a number of bytes. The items' bytes follow, each zlib of
// its own if the header says so, then zeros up to the next multiple of 1 KiB. An item is the
// primary superblock, neighbouring tree blocks, 256 KiB of them at most, or a piece of a free space
// cache.
//
// The normal case: Create writes a dump of an image. Open finds the superblock and the chunks of a
// dump, and Restore writes it to devices: to one, to as many as there were, or at the logical
// addresses.
//
// Models btrfs-progs' image/. Differences are named where they are.
package metadump

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"btrlab/internal/format"
)

// The format.
const (
	// Magic begins each cluster, little endian.
	Magic = 0xbd5c25e27295668b
	// magicData begins the clusters of a dump with file data, which an experimental btrfs-image
	// writes.
	magicData = 0x31765f506d55445f

	blockSize    = 1 << 10
	headerSize   = 21 // magic, bytenr, nritems, compress
	itemSize     = 12 // bytenr, size
	clusterItems = (blockSize - headerSize) / itemSize
	itemMax      = 256 << 10 // bytes of neighbouring tree blocks in an item
	// plainMax bounds what is in an item, in bytes: no cache of free space is larger.
	plainMax = 64 << 20

	compressNone = 0
	compressZlib = 1
)

var le = binary.LittleEndian

// ErrNoDump is in the error of Open for what is no dump.
var ErrNoDump = errors.New("is no dump of btrfs-image")

// item is the place of an item in a dump.
type item struct {
	bytenr uint64 // logical
	off    int64  // in the dump, in bytes
	size   int64  // there
	zlib   bool
}

// source is a dump that is read.
type source struct {
	r    io.ReaderAt
	size int64 // bytes
}

// each calls f with the items in order.
func (s source) each(f func(it item) error) error {
	b := make([]byte, blockSize)
	for pos := int64(0); pos < s.size; {
		if err := s.cluster(pos, b); err != nil {
			return err
		}
		at := pos + blockSize
		for i := range int(le.Uint32(b[16:])) {
			p := b[headerSize+i*itemSize:]
			it := item{le.Uint64(p), at, int64(le.Uint32(p[8:])), b[20] == compressZlib}
			if it.size == 0 || it.size > s.size-at {
				return fmt.Errorf("dump is cut short or damaged: item %d of the cluster at %d has %d bytes, have %d", i, pos, it.size, s.size-at)
			}
			if err := f(it); err != nil {
				return err
			}
			at += it.size
		}
		pos = int64(format.AlignUp(uint64(at), blockSize))
	}
	return nil
}

// cluster reads the header block at pos into b and judges it.
func (s source) cluster(pos int64, b []byte) error {
	if s.size-pos < blockSize {
		return fmt.Errorf("dump is cut short: its cluster at %d has %d bytes, want %d at least", pos, s.size-pos, blockSize)
	}
	if _, err := s.r.ReadAt(b, pos); err != nil {
		return fmt.Errorf("read of the cluster at %d: %w", pos, err)
	}
	switch magic, own := le.Uint64(b), le.Uint64(b[8:]); {
	case magic == magicData && pos == 0:
		return errors.New("is a dump with file data (btrfs-image -d), which is not read here")
	case magic != Magic && pos == 0:
		return ErrNoDump
	case magic != Magic:
		return fmt.Errorf("cluster at %d, bad magic, have 0x%x want 0x%x", pos, magic, uint64(Magic))
	case own != uint64(pos):
		return fmt.Errorf("cluster at %d, bad bytenr, have %d", pos, own)
	}
	if n := le.Uint32(b[16:]); n > clusterItems {
		return fmt.Errorf("cluster at %d, bad number of items, have %d want at most %d", pos, n, clusterItems)
	}
	if c := b[20]; c != compressNone && c != compressZlib {
		return fmt.Errorf("cluster at %d, bad compression, have %d want 0, none, or 1, zlib", pos, c)
	}
	return nil
}

// pieces calls f with the bytes of an item, len(buf) of them at a time; at counts from its start.
func (s source) pieces(it item, buf []byte, f func(at uint64, p []byte) error) error {
	var r io.Reader = io.NewSectionReader(s.r, it.off, it.size)
	if it.zlib {
		z, err := zlib.NewReader(r)
		if err != nil {
			return fmt.Errorf("item at %d: zlib: %w", it.off, err)
		}
		r = z
	}
	for at := uint64(0); ; {
		n, err := io.ReadFull(r, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF || err == io.ErrUnexpectedEOF && n == 0 {
			return fmt.Errorf("item at %d: %w", it.off, err)
		}
		if n == 0 {
			return nil
		}
		if at+uint64(n) > plainMax {
			return fmt.Errorf("item at %d has more than %d bytes", it.off, plainMax)
		}
		if err := f(at, buf[:n]); err != nil {
			return err
		}
		if at += uint64(n); n < len(buf) {
			return nil
		}
	}
}

// writer writes the clusters of a dump.
type writer struct {
	w     io.Writer
	level int    // of zlib; 0 is without
	pos   uint64 // where the cluster begins, in bytes

	items  [][]byte
	starts []uint64
}

// add takes an item.
func (w *writer) add(bytenr uint64, p []byte) error {
	w.items, w.starts = append(w.items, bytes.Clone(p)), append(w.starts, bytenr)
	if len(w.items) == clusterItems {
		return w.flush()
	}
	return nil
}

// compress compresses the items, on all processors: each is a stream of its own.
func (w *writer) compress() error {
	workers := min(runtime.GOMAXPROCS(0), len(w.items))
	errs := make([]error, workers)
	var all sync.WaitGroup
	for k := range workers {
		all.Go(func() {
			z, err := zlib.NewWriterLevel(io.Discard, w.level)
			for i := k; i < len(w.items) && err == nil; i += workers {
				var b bytes.Buffer
				z.Reset(&b)
				_, err = z.Write(w.items[i])
				err = errors.Join(err, z.Close())
				w.items[i] = b.Bytes()
			}
			errs[k] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// flush writes the cluster, if it has items.
func (w *writer) flush() error {
	if len(w.items) == 0 {
		return nil
	}
	head := make([]byte, blockSize)
	le.PutUint64(head, Magic)
	le.PutUint64(head[8:], w.pos)
	le.PutUint32(head[16:], uint32(len(w.items)))
	if w.level > 0 {
		head[20] = compressZlib
		if err := w.compress(); err != nil {
			return err
		}
	}
	for i, p := range w.items {
		at := head[headerSize+i*itemSize:]
		le.PutUint64(at, w.starts[i])
		le.PutUint32(at[8:], uint32(len(p)))
	}
	for _, p := range append([][]byte{head}, w.items...) {
		if _, err := w.w.Write(p); err != nil {
			return err
		}
		w.pos += uint64(len(p))
	}
	end := format.AlignUp(w.pos, blockSize)
	_, err := w.w.Write(make([]byte, end-w.pos))
	w.pos, w.items, w.starts = end, nil, nil
	return err
}
