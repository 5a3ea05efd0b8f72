package crash

import (
	"testing"

	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
)

// A write of a tree block is known by its bytes, alone or at the start of a longer write of
// several. If it were taken for data, the wrong order late-data would hold tree blocks back, and
// what an image has to be would be judged by the wrong writes.
func TestKindOf(t *testing.T) {
	sb := &format.Super{NodeSize: format.NodeSize, FSID: format.UUID{5}}
	node := func(n int, fsid byte) []byte {
		b := make(format.Node, n*format.NodeSize)
		first := b[:format.NodeSize]
		first.SetFSID(format.UUID{fsid})
		first.UpdateCsum(format.CsumCRC32C)
		return b
	}
	spoilt := node(1, 5)
	spoilt[1000] ^= 1
	for _, c := range []struct {
		name string
		off  int64
		data []byte
		want kind
	}{
		{"a tree block", 1 << 20, node(1, 5), kindTree},
		{"two tree blocks", 1 << 20, node(2, 5), kindTree},
		{"a part of a tree block", 1 << 20, node(1, 5)[:4096], kindData},
		{"a tree block of another file system", 1 << 20, node(1, 6), kindData},
		{"bytes that are nearly a tree block", 1 << 20, spoilt, kindData},
		{"data", 1 << 20, make([]byte, 65536), kindData},
		{"nothing", 1 << 20, nil, kindData},
		{"the superblock", format.SuperOffset, make([]byte, format.SuperSize), kindSuper},
		{"the second superblock", int64(format.SuperMirror(1)), make([]byte, format.SuperSize), kindSuper},
		{"data at a superblock's place, and more", format.SuperOffset, make([]byte, 2*format.SuperSize), kindData},
	} {
		if have := kindOf(&dm.Record{Kind: dm.RecordWrite, Off: c.off, Data: c.data}, sb); have != c.want {
			t.Errorf("%s: have %d want %d", c.name, have, c.want)
		}
	}
}

// Tasks write at once: a history has their writes in the order in which they were noted, which need
// not be that of the records that the log had then. A write before the crash counts, whatever comes
// before it in the list.
func TestCompareAnyOrder(t *testing.T) {
	byteOf := func(v byte, at int) noted {
		return noted{off: 0, data: []byte{v}, size: 1, at: at, from: 1, to: underWay, done: underWay}
	}
	h := &history{writes: []noted{byteOf(1, 10), byteOf(2, 5)}}
	for v, ok := range map[byte]bool{0: true, 1: false, 2: true} {
		if loss := h.compare("/f", 7, &node{size: 1, data: []byte{v}}, nil); (loss == nil) != ok {
			t.Errorf("byte %d: %v, want it allowed: %v", v, loss, ok)
		}
	}
}
