package mount

import (
	"bytes"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"btrlab/internal/format"
)

// kernelPages are the pages of one file that the kernel has in its page cache for programs that
// have mapped the file, while all other reads and writes of it go past that cache
// (FOPEN_DIRECT_IO).
//
// A store through a shared mapping makes a page of the kernel dirty, and the kernel writes the page
// back whole. If a write went past the cache after the kernel had read the page, the page still has
// the old bytes where that write was, and would take the write back. Linux cannot see it: it drops
// the pages of a direct write before and after the write, and a store in between brings the old
// page back. So the server remembers, of each page that a write changes while the kernel may have
// it, the bytes that the kernel was given: the base. When the page comes back, its bytes that are
// as in the base were not stored to, and what the write left there stays.
//
// Two limits. A store of the value that the byte had when the kernel read the page cannot be told
// from no store; the kernel drops the page when the write ends, so this takes a store that is under
// way at the same time as the write, for which either order is right. And the bases take memory: as
// much as was both mapped and written past the cache since the file was opened.
//
// The kernel keeps a page of which a punch, a zeroing or a truncate changes a part, and sets the
// part to zero when it hears that we have. The base follows: cut.
//
// Model: none. A file system in the kernel has one page cache for both.
//
// Its locks: the server's gate before mu, mu before those of the engine; set is a leaf.
type kernelPages struct {
	// mu is held for reading by writes while no page is with the kernel, so that they run beside
	// each other, by reads into the kernel's cache, and by pages that come back without a base; for
	// writing by writes while pages are with the kernel, and where a base is applied.
	mu     sync.RWMutex
	mapped bool // pages may be with the kernel; changes under mu

	set   sync.Mutex // protects the fields below, for holders of mu for reading
	opens int
	have  map[uint64]uint64 // page/64 -> a bit for each page that was given to the kernel
	base  map[uint64]base   // page -> what the kernel was given, if we have something else now

	zeroed atomic.Uint64 // how often zero has ended; changes under mu
}

// base is what the kernel has of a page, but for the stores of mappings.
type base struct {
	bytes []byte
	// before is bytes before the kernel set those in [from, to) to zero; nil if it has not. It does
	// so when it hears that we have: what it sent earlier, when zeroed was less than at, is old.
	before   []byte
	from, to uint64
	at       uint64
}

// page is the unit in which bases are kept, in bytes. It may be less than the kernel's.
const page = format.SectorSize

// reader reads the file from off on, and zeros beyond its end.
type reader func(p []byte, off uint64) error

// open counts an open file; close ends it, and the last one forgets the pages: the kernel writes
// dirty ones back before it, and drops the others when the file is opened again.
func (k *kernelPages) open() {
	k.set.Lock()
	defer k.set.Unlock()
	k.opens++
}

func (k *kernelPages) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.opens--; k.opens == 0 {
		k.mapped, k.have, k.base = false, nil, nil
	}
}

// give runs read, which reads n bytes from off on for the kernel's cache.
func (k *kernelPages) give(off, n uint64, read func() error) error {
	k.mu.RLock()
	if !k.mapped {
		k.mu.RUnlock()
		k.mu.Lock() // writes that are under way end first: they kept no base
		if !k.mapped {
			k.mapped, k.have, k.base = true, map[uint64]uint64{}, map[uint64]base{}
		}
		k.mu.Unlock()
		k.mu.RLock()
	}
	defer k.mu.RUnlock()
	k.set.Lock()
	for p := off / page; p*page < off+n; p++ {
		k.have[p/64] |= 1 << (p % 64)
		delete(k.base, p)
	}
	k.set.Unlock()
	return read()
}

// change runs write, which changes n bytes from off on past the kernel's cache.
func (k *kernelPages) change(off, n uint64, read reader, write func() error) error {
	k.mu.RLock()
	if !k.mapped {
		defer k.mu.RUnlock()
		return write()
	}
	k.mu.RUnlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.locked(off, n, read, write)
}

// zero is change for a write that sets the bytes to zero and of which the kernel does not drop the
// pages at both ends, which have other bytes as well: it sets the same bytes to zero there, after
// write. Models truncate_pagecache_range().
func (k *kernelPages) zero(off, n uint64, read reader, write func() error) error {
	k.mu.RLock()
	if !k.mapped {
		defer k.mu.RUnlock()
		return write()
	}
	k.mu.RUnlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.locked(off, n, read, write); err != nil {
		return err
	}
	k.cut(off, n)
	return nil
}

// truncate runs write, which sets the size of the file. No page comes back meanwhile, so it takes
// no bases; but of the page with the new end, the kernel sets what is beyond it to zero. Models
// fuse_do_setattr() with fuse_set_nowrite().
func (k *kernelPages) truncate(size uint64, write func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := write(); err != nil {
		return err
	}
	if size%page != 0 {
		k.cut(size, page-size%page)
	}
	return nil
}

// cut sets to zero, in the bases of the pages at both ends of n bytes from off on, what the kernel
// sets to zero. The caller holds mu for writing.
func (k *kernelPages) cut(off, n uint64) {
	if n == 0 {
		return
	}
	at := k.zeroed.Add(1)
	for _, p := range [...]uint64{off / page, (off + n - 1) / page} {
		from, to := max(off, p*page)-p*page, min(off+n-p*page, page)
		b, ok := k.base[p]
		if !ok || b.at == at || to-from == page {
			continue
		}
		now := slices.Clone(b.bytes)
		clear(now[from:to])
		k.base[p] = base{now, b.bytes, from, to, at}
	}
}

// locked is change for a caller that holds mu for writing, with pages at the kernel.
func (k *kernelPages) locked(off, n uint64, read reader, write func() error) error {
	for _, p := range k.given(off, n) {
		if _, ok := k.base[p]; ok {
			continue
		}
		b := make([]byte, page)
		if err := read(b, p*page); err != nil {
			return err
		}
		if bytes.Equal(b, zeros) {
			b = zeros
		}
		k.base[p] = base{bytes: b}
	}
	return write()
}

// zeros is the base of every page of zeros: a punch in a large sparse file takes no memory.
var zeros = make([]byte, page)

// given lists the pages from off on, n bytes, that the kernel may have. It takes as long as the
// fewer of these are: the words of the range, or of have. A punch may be of exabytes. The caller
// holds mu for writing.
func (k *kernelPages) given(off, n uint64) (pages []uint64) {
	if n == 0 {
		return nil
	}
	first, last := off/page, (off+n-1)/page
	word := func(w uint64) {
		for left := k.have[w]; left != 0; left &= left - 1 {
			if p := w*64 + uint64(bits.TrailingZeros64(left)); first <= p && p <= last {
				pages = append(pages, p)
			}
		}
	}
	if last/64-first/64 < uint64(len(k.have)) {
		for w := first / 64; w <= last/64; w++ {
			word(w)
		}
		return pages
	}
	for w := range k.have {
		word(w)
	}
	return pages
}

// back runs write with the bytes that the kernel writes back from off on, in which those that no
// mapping has stored are as they are in the file. It does not change p.
func (k *kernelPages) back(off uint64, p []byte, read reader, write func(p []byte) error) error {
	return k.backSince(k.zeroed.Load(), off, p, read, write)
}

// backSince is back for bytes that the kernel sent when zeroed was sent.
func (k *kernelPages) backSince(sent, off uint64, p []byte, read reader, write func(p []byte) error) error {
	k.mu.RLock()
	k.set.Lock()
	stale := false
	for i := off / page; i*page < off+uint64(len(p)) && len(k.base) > 0 && !stale; i++ {
		_, stale = k.base[i]
	}
	k.set.Unlock()
	if !stale {
		defer k.mu.RUnlock()
		return write(p)
	}
	k.mu.RUnlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	merged := slices.Clone(p)
	now := make([]byte, page)
	for i := off / page; i*page < off+uint64(len(p)); i++ {
		b, ok := k.base[i]
		if !ok {
			continue
		}
		if err := read(now, i*page); err != nil {
			return err
		}
		old := b.bytes
		if b.at > sent {
			old = b.before
		}
		next := slices.Clone(b.bytes) // what the kernel has now, or will have
		from, to := max(off, i*page), min(off+uint64(len(p)), (i+1)*page)
		for at := from; at < to; at++ {
			in := at % page
			if p[at-off] == old[in] {
				merged[at-off] = now[in]
			}
			if b.at <= sent || in < b.from || in >= b.to {
				next[in] = p[at-off]
			}
		}
		b.bytes = next
		k.base[i] = b
	}
	return write(merged)
}
