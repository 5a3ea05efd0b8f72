package check_test

import (
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

const stories = "../../data/treelog/testdata/log/"

// logged is an image that Linux left with a log.
func logged(t *testing.T, story string) (*blockdev.Memory, *sched.Task) {
	x := fstest.New(t, fstest.Image(stories+story+".blocks.gz"), fstest.NoCheck(), fstest.FSOptions(func(o *fs.Options) { o.ReadOnly = true }))
	return x.Dev.(*blockdev.Memory).Snapshot(), x.T
}

// TestLogStories: the logs that Linux wrote break no rule.
func TestLogStories(t *testing.T) {
	list, err := filepath.Glob(stories + "*.blocks.gz")
	if err != nil || len(list) < 10 {
		t.Fatal(list, err)
	}
	for _, path := range list {
		name := strings.TrimSuffix(filepath.Base(path), ".blocks.gz")
		dev, tk := logged(t, name)
		r, err := check.Check(tk, dev, check.Options{})
		if err != nil || !r.Clean || len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "a log tree is present at ") {
			t.Errorf("%s: %v, have %v and %q, want a log and nothing found", name, err, r.Findings, r.Notes)
		}
	}
}

// eachLogBlock calls f for the tree of logs and each block of a log, with its place on the device.
// An fsync leaves blocks of older logs: only those count that the superblock leads to.
func eachLogBlock(t *testing.T, tk *sched.Task, dev *blockdev.Memory, f func(n format.Node, at int64)) {
	t.Helper()
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(tk, dev, b, format.SuperOffset); err != nil {
		t.Fatal(err)
	}
	var sb format.Super
	sb.Decode(b)
	place := map[uint64]int64{}
	for at := int64(1 << 20); at+int64(sb.NodeSize) <= dev.Size(); at += int64(sb.NodeSize) {
		n := make(format.Node, format.HeaderSize)
		if err := blockdev.Read(tk, dev, n, at); err != nil {
			t.Fatal(err)
		}
		if n.Owner() == format.TREE_LOG_OBJECTID && n.Generation() == sb.Generation+1 {
			place[n.Bytenr()] = at
		}
	}
	var walk func(bytenr uint64)
	walk = func(bytenr uint64) {
		at, n := place[bytenr], make(format.Node, sb.NodeSize)
		if err := blockdev.Read(tk, dev, n, at); err != nil || at == 0 {
			t.Fatalf("block %d at %d: %v", bytenr, at, err)
		}
		for i := range n.Nritems() {
			if n.Level() > 0 {
				walk(n.Blockptr(i))
			} else if n.Key(i).Type == format.ROOT_ITEM_KEY {
				var r format.RootItem
				r.Decode(n.Item(i))
				walk(r.Bytenr)
			}
		}
		f(n, at)
	}
	walk(sb.LogRoot)
}

// TestBadLogs: a log that breaks a rule is told by it, with its place.
func TestBadLogs(t *testing.T) {
	le := binary.LittleEndian
	const extent = format.EXTENT_DATA_KEY
	byType := func(typ uint8, change func(n format.Node, slot int) bool) func(n format.Node) bool {
		return func(n format.Node) bool {
			for i := range n.Nritems() {
				if n.Level() == 0 && n.Key(i).Type == typ && change(n, i) {
					return true
				}
			}
			return false
		}
	}
	fresh := func(n format.Node, slot int) bool {
		fe := format.FileExtentView(n.Item(slot))
		return fe.Type() != format.FileExtentTypeInline && fe.DiskBytenr() != 0 && fe.Generation() == n.Generation()
	}
	for _, c := range []struct {
		name, story string
		hurt        func(n format.Node) bool // true: done
		want        string
	}{
		{"a key that is no log's", "extents", byType(format.ROOT_ITEM_KEY, func(n format.Node, slot int) bool {
			k := n.Key(slot)
			k.Objectid--
			n.SetKey(slot, k)
			return true
		}), "log.root: root=-6 block="},
		{"a block that another tree has", "extents", byType(format.ROOT_ITEM_KEY, func(n format.Node, slot int) bool {
			var r format.RootItem
			r.Decode(n.Item(slot))
			r.Bytenr = n.Bytenr()
			r.Encode(n.Item(slot))
			return true
		}), "have a block of another tree want one of its own"},
		{"a data extent over a neighbour", "extents", byType(extent, func(n format.Node, slot int) bool {
			if !fresh(n, slot) {
				return false
			}
			le.PutUint64(n.Item(slot)[21:], format.FileExtentView(n.Item(slot)).DiskBytenr()&^(1<<20-1))
			return true
		}), "log.space: log of root=5 block="},
		{"a data extent outside", "extents", byType(extent, func(n format.Node, slot int) bool {
			if !fresh(n, slot) {
				return false
			}
			le.PutUint64(n.Item(slot)[21:], 1<<50)
			return true
		}), "want one in a data block group"},
		{"two new extents that overlap", "leaves", byType(extent, func(n format.Node, slot int) bool {
			if !fresh(n, slot) {
				return false
			}
			before := func(i int) bool { // its data lies right before that of slot
				if n.Key(i).Type != extent || !fresh(n, i) {
					return false
				}
				b := n.Item(i)
				return le.Uint64(b[21:])+le.Uint64(b[29:]) == le.Uint64(n.Item(slot)[21:])
			}
			for i := range slot {
				if before(i) {
					b := n.Item(slot)
					le.PutUint64(b[21:], le.Uint64(b[21:])-format.SectorSize)
					le.PutUint64(b[29:], le.Uint64(b[29:])+format.SectorSize)
					le.PutUint64(b[8:], le.Uint64(b[29:]))
					return true
				}
			}
			return false
		}), "log.space: root=-6, have data extents "},
		{"items of an inode that it does not have", "extents", byType(format.INODE_ITEM_KEY, func(n format.Node, slot int) bool {
			k := n.Key(slot)
			if slot+1 >= n.Nritems() || n.Key(slot+1).Objectid != k.Objectid {
				return false
			}
			k.Objectid--
			n.SetKey(slot, k)
			return true
		}), "want its inode item before it"},
		{"a range of names that ends before it begins", "two-names", byType(format.DIR_LOG_INDEX_KEY, func(n format.Node, slot int) bool {
			le.PutUint64(n.Item(slot), n.Key(slot).Offset-1)
			return true
		}), "log.item: log of root=5 block="},
		{"checksums elsewhere", "extents", func(n format.Node) bool {
			i := n.Nritems() - 1
			if n.Level() > 0 || n.Key(i).Type != format.EXTENT_CSUM_KEY {
				return false
			}
			k := n.Key(i)
			k.Offset += 1 << 40
			n.SetKey(i, k)
			return true
		}, "log.csum: log of root=5 block="},
		{"a checksum that is none of the data", "extents", func(n format.Node) bool {
			i := n.Nritems() - 1
			if n.Level() > 0 || n.Key(i).Type != format.EXTENT_CSUM_KEY {
				return false
			}
			n.Item(i)[0] ^= 1
			return true
		}, "data.csum: logical="},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev, tk := logged(t, c.story)
			done := false
			eachLogBlock(t, tk, dev, func(n format.Node, at int64) {
				if done || !c.hurt(n) {
					return
				}
				done = true
				n.UpdateCsum(format.CsumCRC32C)
				if err := blockdev.Write(tk, dev, n, at); err != nil {
					t.Fatal(err)
				}
			})
			if !done {
				t.Fatal("the log has no such item")
			}
			r, err := check.Check(tk, dev, check.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var l []string
			for _, f := range r.Findings {
				l = append(l, f.String())
			}
			if s := strings.Join(l, "\n"); !strings.Contains(s, c.want) {
				t.Errorf("have\n%s\nwant %q", s, c.want)
			}
		})
	}
}

// TestLogOverCommit: a block of a log that lies where the last commit has an extent would be lost,
// or is the commit's.
func TestLogOverCommit(t *testing.T) {
	dev, tk := logged(t, "extents")
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(tk, dev, b, format.SuperOffset); err != nil {
		t.Fatal(err)
	}
	var sb format.Super
	sb.Decode(b)
	// the block itself, and the middle of it
	for _, at := range []uint64{sb.Root, sb.Root + format.SectorSize} {
		sb.LogRoot, sb.LogRootLevel = at, 0
		sb.Encode(b)
		if err := blockdev.Write(tk, dev, b, format.SuperOffset); err != nil {
			t.Fatal(err)
		}
		r, err := check.Check(tk, dev, check.Options{})
		if err != nil || r.Clean || r.Findings[0].Rule != "log.space" {
			t.Errorf("log at %d: %v, have %v, want log.space", at, err, r.Findings)
		}
	}
}
