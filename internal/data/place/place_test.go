package place_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/place"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

// item is one file extent of a made-up file: in place if it may be overwritten.
type item struct {
	start, end uint64
	typ        uint8
	in         bool
}

// trees are the items of a file, with holes between, and a file system that hands out space in
// pieces.
type trees struct {
	items []item
	piece uint64 // the longest piece of free space
	next  uint64
	left  uint64
	fail  uint64 // file offset at which a look at the tree fails
}

func (x *trees) at(off uint64) (it item, next uint64, ok bool) {
	next = 1 << 40
	for _, it := range x.items {
		if it.start <= off && off < it.end {
			return it, it.end, true
		}
		if it.start > off {
			return item{}, it.start, false
		}
	}
	return item{}, next, false
}

func (x *trees) LookupFileExtent(t *sched.Task, r *ctree.Root, ino format.Ino, off uint64) (uint64, format.FileExtent, bool, error) {
	it, next, ok := x.at(off)
	if !ok {
		return next, format.FileExtent{}, false, nil
	}
	return it.start, format.FileExtent{Type: it.typ, NumBytes: it.end - it.start, DiskBytenr: 1<<30 + it.start, DiskNumBytes: it.end - it.start}, true, nil
}

func (x *trees) CanNocow(t *sched.Task, r *ctree.Root, ino format.Ino, off, length uint64, nodatacow, nowait bool) (uint64, fstree.NocowExtent, error) {
	if x.fail != 0 && off >= x.fail {
		return 0, fstree.NocowExtent{}, errno.EIO
	}
	it, _, ok := x.at(off)
	if !ok || !it.in {
		return 0, fstree.NocowExtent{}, nil
	}
	e := fstree.NocowExtent{Start: it.start, NumBytes: it.end - it.start, Type: it.typ, DiskBytenr: 1<<30 + it.start, DiskNumBytes: it.end - it.start, WriteBytenr: 1<<30 + off}
	return min(length, it.end-off), e, nil
}

func (x *trees) ReserveExtent(t *sched.Task, n, least uint64, hint format.Logical) (format.Logical, uint64, error) {
	n = min(n, x.piece, x.left)
	if n < least {
		return 0, 0, errno.ENOSPC
	}
	at := x.next
	x.next += n
	x.left -= n
	return format.Logical(at), n, nil
}

const kb = 1024

// Next gives the range its places in order: in place where the file may be overwritten,
// preallocated space, and new space for everything between at once, in pieces as free space has
// them. What has no place is named with its range, and what comes after it has one again.
func TestNext(t *testing.T) {
	file := []item{
		{0, 8 * kb, format.FileExtentTypeReg, true},
		{16 * kb, 24 * kb, format.FileExtentTypeReg, false}, // shared, say
		{24 * kb, 32 * kb, format.FileExtentTypePrealloc, true},
	}
	const all = "nocow 0K+8K at 1024M, regular 8K+12K at 2048M, regular 20K+4K at 2048M+12K, prealloc 24K+8K at 1024M+24K, regular 32K+4K at 2048M+16K"
	for _, c := range []struct {
		name       string
		flags      uint64
		x          trees
		start, end uint64
		want       string
	}{
		{"nocow", format.InodeNoDataCow, trees{items: file, piece: 12 * kb, left: 1 << 20}, 0, 36 * kb, all},
		{"cow", 0, trees{items: file, piece: 12 * kb, left: 1 << 20}, 0, 20 * kb, "regular 0K+12K at 2048M, regular 12K+8K at 2048M+12K"},
		{"inside", format.InodeNoDataCow, trees{items: file, piece: 12 * kb, left: 1 << 20}, 4 * kb, 12 * kb, "nocow 4K+4K at 1024M+4K, regular 8K+4K at 2048M"},
		{"no space", format.InodeNoDataCow, trees{items: file, piece: 12 * kb, left: 12 * kb}, 0, 32 * kb,
			"nocow 0K+8K at 1024M, regular 8K+12K at 2048M, 20K+4K ENOSPC, prealloc 24K+8K at 1024M+24K"},
		{"bad tree", format.InodeNoDataCow, trees{items: file, piece: 12 * kb, left: 1 << 20, fail: 16 * kb}, 0, 32 * kb, "nocow 0K+8K at 1024M, 8K+24K EIO"},
	} {
		task := sched.NewTask("test")
		x := c.x
		x.next = 2048 << 20
		f := place.New(&x, &x)
		ip := inode.NewFS(spaceinfo.New(16384, 1), pagecache.NewCache(0, 1<<20, 2<<20)).New(&ctree.Root{ID: 5}, 257, &format.InodeItem{Mode: format.S_IFREG, Flags: c.flags})
		ip.IOTree.Lock(task, c.start, c.end)
		var got []string
		for at := c.start; at < c.end; {
			e, err := f.Next(task, ip, at, c.end)
			if e.Start != at || e.Len == 0 {
				t.Fatalf("%s: piece %+v at %d", c.name, e, at)
			}
			switch where := uint64(e.DiskBytenr); {
			case errors.Is(err, errno.ENOSPC):
				got = append(got, fmt.Sprintf("%dK+%dK ENOSPC", e.Start/kb, e.Len/kb))
			case errors.Is(err, errno.EIO):
				got = append(got, fmt.Sprintf("%dK+%dK EIO", e.Start/kb, e.Len/kb))
			case where%(1<<20) != 0:
				got = append(got, fmt.Sprintf("%v %dK+%dK at %dM+%dK", e.Type, e.Start/kb, e.Len/kb, where>>20, where%(1<<20)/kb))
			default:
				got = append(got, fmt.Sprintf("%v %dK+%dK at %dM", e.Type, e.Start/kb, e.Len/kb, where>>20))
			}
			at += e.Len
		}
		ip.IOTree.Unlock(task, c.start, c.end)
		if have := strings.Join(got, ", "); have != c.want {
			t.Errorf("%s: have %s want %s", c.name, have, c.want)
		}
	}
}
