package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"btrlab/internal/format"
)

// Cpio archives: the portable formats newc (070701), crc (070702) and odc (070707), one or several
// after each other, as in an initramfs. The reader makes headers of tar of them, so that In and
// Scan know one kind of archive. In newc the data of a file with several names comes with the last
// of them: the names before it wait for that one, to which they become links.
//
// Model: the unpacker of the kernel (init/initramfs.c) and GNU cpio. Differences: the old binary
// format is refused, as the kernel does; a wrong checksum of a crc archive is an error.

// Sizes of the headers, and the most that a name with its NUL may have, in bytes: PATH_MAX.
const (
	newcHeader  = 110
	odcHeader   = 76
	maxCpioName = 4096
)

// typeSocket stands for what tar has no type of.
const typeSocket = 0x80

// cpioField is a number of a header: where it stands, and its length in digits.
type cpioField struct{ off, n int }

// cpioKind is one of the formats.
type cpioKind struct {
	header, base, align int
	summed              bool
	ino, mode, uid, gid cpioField
	nlink, mtime, size  cpioField
	devs, rdevs         [2]cpioField // major and minor, or one number
	name, sum           cpioField
}

// cpioKinds are the formats, by their magic.
func cpioKinds(magic string) (k cpioKind, ok bool) {
	switch magic {
	case "070701", "070702":
		f := func(i int) cpioField { return cpioField{6 + 8*i, 8} }
		return cpioKind{newcHeader, 16, 4, magic == "070702", f(0), f(1), f(2), f(3), f(4), f(5), f(6),
			[2]cpioField{f(7), f(8)}, [2]cpioField{f(9), f(10)}, f(11), f(12)}, true
	case "070707":
		f := func(off, n int) cpioField { return cpioField{off, n} }
		return cpioKind{odcHeader, 8, 1, false, f(12, 6), f(18, 6), f(24, 6), f(30, 6), f(36, 6), f(48, 11), f(65, 11),
			[2]cpioField{f(6, 6)}, [2]cpioField{f(42, 6)}, f(59, 6), cpioField{}}, true
	}
	return k, false
}

// cpioInode names an inode of one archive.
type cpioInode struct{ major, minor, ino uint64 }

// cpioReader reads an archive entry by entry. It reads no byte of r after the header that Next has
// given, but for the data that Read gives.
type cpioReader struct {
	r     io.Reader
	off   int64 // in r
	kind  cpioKind
	left  int64  // of the data of the entry
	pad   int64  // after it
	sums  bool   // the data has a checksum
	sum   uint32 // ... so far
	want  uint32
	name  string                      // of the entry
	bad   error                       // what is wrong with its data
	first map[cpioInode]string        // names of inodes that have been given
	wait  map[cpioInode][]*tar.Header // names of inodes whose data is still to come
	order []cpioInode                 // of wait
	next  []*tar.Header               // links to give before the archive goes on
	ended bool

	peeked []byte // of r, before what it gives
}

func newCpioReader(r io.Reader) *cpioReader {
	c := &cpioReader{r: r}
	c.begin()
	return c
}

// begin forgets the inodes: those of the next archive are others.
func (c *cpioReader) begin() {
	c.first, c.wait, c.order = map[cpioInode]string{}, map[cpioInode][]*tar.Header{}, nil
}

// Next is the next entry; io.EOF after the last one.
func (c *cpioReader) Next() (*tar.Header, error) {
	for {
		if len(c.next) > 0 {
			h := c.next[0]
			c.next = c.next[1:]
			return h, nil
		}
		switch {
		case c.bad != nil:
			return nil, c.bad
		case c.ended:
			return nil, io.EOF
		}
		if err := c.skip(); err != nil {
			return nil, err
		}
		h, id, several, err := c.header()
		switch {
		case err != nil:
			return nil, err
		case h == nil:
			if err := c.trailer(); err != nil {
				return nil, err
			}
		case !several:
			return h, nil
		default:
			if h = c.linked(h, id); h != nil {
				return h, nil
			}
		}
	}
}

// linked is the entry of one of several names of an inode; nil if it waits for the data.
func (c *cpioReader) linked(h *tar.Header, id cpioInode) *tar.Header {
	if first, ok := c.first[id]; ok {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		return h
	}
	if h.Typeflag == tar.TypeReg && h.Size == 0 {
		if c.wait[id] == nil {
			c.order = append(c.order, id)
		}
		c.wait[id] = append(c.wait[id], h)
		return nil
	}
	c.give(h, id)
	return h
}

// give makes the names that have waited for h links to it.
func (c *cpioReader) give(h *tar.Header, id cpioInode) {
	c.first[id] = h.Name
	for _, l := range c.wait[id] {
		if l != h {
			l.Typeflag, l.Linkname = tar.TypeLink, h.Name
			c.next = append(c.next, l)
		}
	}
	delete(c.wait, id)
}

// trailer ends an archive: files that wait for data have none. Zeros may follow, and another
// archive.
func (c *cpioReader) trailer() error {
	for _, id := range c.order {
		if l := c.wait[id]; len(l) > 0 {
			c.next = append(c.next, l[0])
			c.give(l[0], id)
		}
	}
	c.begin()
	var b [1]byte
	for {
		err := c.full(b[:])
		switch {
		case errors.Is(err, io.EOF):
			c.ended = true
			return nil
		case err != nil:
			return err
		case b[0] != 0:
			c.peeked, c.off = b[:], c.off-1
			return nil
		}
	}
}

// header reads a header with its name, and the target of a symbolic link; nil is a trailer. several
// says that the inode id has other names.
func (c *cpioReader) header() (h *tar.Header, id cpioInode, several bool, err error) {
	at := c.off
	b := make([]byte, newcHeader)
	if err := c.full(b[:6]); err != nil {
		return nil, id, false, c.cut(at, err)
	}
	kind, ok := cpioKinds(string(b[:6]))
	if !ok {
		return nil, id, false, fmt.Errorf("at %d, have %q want 070701, 070702 or 070707: newc, crc or odc, not compressed", at, b[:6])
	}
	c.kind = kind
	b = b[:kind.header]
	if err := c.full(b[6:]); err != nil {
		return nil, id, false, c.cut(at, err)
	}
	num := func(f cpioField) (n uint64) {
		if f.n > 0 && err == nil {
			n, err = strconv.ParseUint(string(b[f.off:f.off+f.n]), kind.base, 64)
		}
		return n
	}
	mode, size, nlink, namesize := num(kind.mode), num(kind.size), num(kind.nlink), num(kind.name)
	id = cpioInode{num(kind.devs[0]), num(kind.devs[1]), num(kind.ino)}
	h = &tar.Header{Mode: int64(mode & 0o7777), Uid: int(num(kind.uid)), Gid: int(num(kind.gid)), ModTime: time.Unix(int64(num(kind.mtime)), 0), Size: int64(size)}
	major, minor := num(kind.rdevs[0]), num(kind.rdevs[1])
	if kind.rdevs[1].n == 0 {
		rdev := format.DecodeDev(major)
		major, minor = rdev>>20, rdev&(1<<20-1)
	}
	c.want, c.sum, c.sums = uint32(num(kind.sum)), 0, false
	if err != nil || namesize == 0 || namesize > maxCpioName {
		return nil, id, false, fmt.Errorf("bad header at %d, want numbers in base %d, and a name of at most %d bytes", at, kind.base, maxCpioName)
	}
	name := make([]byte, namesize)
	if err := errors.Join(c.full(name), c.drop(c.padding(int64(kind.header)+int64(namesize)))); err != nil {
		return nil, id, false, c.cut(at, err)
	}
	c.left, c.pad = int64(size), c.padding(int64(size))
	name, _, _ = bytes.Cut(name, []byte{0})
	if h.Name = string(name); h.Name == "TRAILER!!!" {
		return nil, id, false, c.skip()
	}
	c.name = h.Name
	err = c.typed(h, uint32(mode), major, minor)
	return h, id, nlink > 1 && h.Typeflag != tar.TypeDir, err
}

// typed gives h its type and what that has.
func (c *cpioReader) typed(h *tar.Header, mode uint32, major, minor uint64) error {
	switch mode & format.S_IFMT {
	case format.S_IFREG:
		h.Typeflag, c.sums = tar.TypeReg, c.kind.summed
		return nil
	case format.S_IFDIR:
		h.Typeflag = tar.TypeDir
	case format.S_IFCHR:
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeChar, int64(major), int64(minor)
	case format.S_IFBLK:
		h.Typeflag, h.Devmajor, h.Devminor = tar.TypeBlock, int64(major), int64(minor)
	case format.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case format.S_IFSOCK:
		h.Typeflag = typeSocket
	case format.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		target := make([]byte, min(c.left, format.SectorSize)) // too long is too long
		if _, err := io.ReadFull(c, target); err != nil {
			return fmt.Errorf("%s ends too soon: %w", h.Name, err)
		}
		h.Linkname = string(target)
	default:
		h.Typeflag = 0xff // of no inode: whoever takes entries says so
	}
	h.Size = 0
	return nil
}

// padding is how many bytes follow n of them.
func (c *cpioReader) padding(n int64) int64 { return -n & int64(c.kind.align-1) }

// Read reads the data of the entry. At its end the checksum must be right, if there is one.
func (c *cpioReader) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.off += int64(n)
	c.left -= int64(n)
	if c.sums {
		for _, b := range p[:n] {
			c.sum += uint32(b)
		}
		if c.left == 0 && c.sum != c.want {
			c.bad = fmt.Errorf("%s: bad checksum before %d, have %#x want %#x", c.name, c.off, c.sum, c.want)
			return n, c.bad // also by Next: a caller of io.ReadFull does not see it
		}
	}
	switch {
	case errors.Is(err, io.EOF) && c.left > 0:
		err = io.ErrUnexpectedEOF
	case c.left == 0:
		err = nil
	}
	return n, err
}

// skip goes to the end of the entry.
func (c *cpioReader) skip() error {
	n := c.left + c.pad
	c.left, c.pad = 0, 0
	return c.drop(n)
}

// drop leaves out n bytes, or up to the end.
func (c *cpioReader) drop(n int64) error {
	if n == 0 {
		return nil
	}
	c.off += n
	if s, ok := c.r.(io.Seeker); ok {
		_, err := s.Seek(n, io.SeekCurrent)
		return err
	}
	_, err := io.CopyN(io.Discard, c.r, n)
	if errors.Is(err, io.EOF) {
		err = nil // the next header is missing
	}
	return err
}

// full fills p.
func (c *cpioReader) full(p []byte) error {
	k := copy(p, c.peeked)
	c.peeked = c.peeked[k:]
	n, err := io.ReadFull(c.r, p[k:])
	c.off += int64(n + k)
	if k > 0 && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// cut is the error of an archive that ends in a header, or before one.
func (c *cpioReader) cut(at int64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it ends at %d without a trailer", at)
	}
	return err
}
