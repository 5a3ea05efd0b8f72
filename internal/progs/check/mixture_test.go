package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// A database preallocates its file, writes pieces of it past the cache, and syncs. Pieces that a
// commit has have their checksums in the checksum tree, pieces that only an fsync has have them in
// the log, and one file extent covers both. A pattern says for each block of the file when it is
// written: t before the commit, l after it, a dot never.

// mixture leaves an image with a file of one preallocated extent, and its log if the pattern has an
// l.
func mixture(t *testing.T, pattern string) (*blockdev.Memory, *sched.Task) {
	t.Helper()
	x := fstest.New(t, fstest.MkfsOptions(func(o *mkfs.Options) { o.MetadataProfile = "single" }), fstest.FSOptions(func(o *fs.Options) { o.Policy = policy.MustParse("modern") }))
	f := x.Create("/f")
	x.Must(f.Fallocate(x.T, 0, 0, int64(len(pattern)*format.SectorSize)))
	for _, when := range []byte("tl") {
		for i := range len(pattern) {
			if pattern[i] == when {
				_, err := f.WriteDirect(x.T, []byte(strings.Repeat(string(rune('a'+i)), format.SectorSize)), int64(i*format.SectorSize))
				x.Must(err)
			}
		}
		if when == 't' {
			x.Must(x.FS.Sync(x.T))
			x.Must(f.Close(x.T))
			x.FS.DropCaches(x.T)
			f = x.Open("/f")
		} else {
			x.ReadFile("/f") // as the database does: the pieces are one range in memory again
		}
	}
	x.Must(f.Fsync(x.T))
	dev := x.Dev.(*blockdev.Memory).Snapshot()
	x.Must(f.Close(x.T))
	return dev, x.T
}

func findings(t *testing.T, tk *sched.Task, dev blockdev.Device) string {
	t.Helper()
	r, err := check.Check(tk, dev, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var l []string
	for _, f := range r.Findings {
		l = append(l, f.String())
	}
	return strings.Join(l, "\n")
}

// patternsOf are all words of n letters.
func patternsOf(letters string, n int) []string {
	l := []string{""}
	for range n {
		var next []string
		for _, p := range l {
			for _, c := range letters {
				next = append(next, p+string(c))
			}
		}
		l = next
	}
	return l
}

// TestLogMixtures: wherever the checksums of a logged extent are, in the log or in the checksum
// tree, the image is whole. The judge blamed those that had some of the log's after some of the
// tree's.
func TestLogMixtures(t *testing.T) {
	for _, p := range patternsOf("tl.", 4) {
		dev, tk := mixture(t, p)
		r, err := check.Check(tk, dev, check.Options{})
		if logged := strings.Contains(fmt.Sprint(r.Notes), "a log tree is present"); err != nil || len(r.Findings) > 0 || logged != strings.Contains(p, "l") {
			t.Errorf("%s: %v, a log: %v, have %v want nothing", p, err, logged, r.Findings)
		}
	}
}

// TestLogMixtureDamaged: of a logged extent, whose data lies in an extent of the last commit, every
// checksum counts, on both sides.
func TestLogMixtureDamaged(t *testing.T) {
	need.Long(t)
	for _, p := range patternsOf("tl", 4) {
		for _, where := range []byte("tl") {
			last := strings.LastIndexByte(p, where)
			if last < 0 || !strings.Contains(p, "l") { // without a log there is nothing to judge
				continue
			}
			t.Run(fmt.Sprintf("%s, a checksum of %c lost", p, where), func(t *testing.T) {
				dev, tk := mixture(t, p)
				first := last // of the run that ends at last: its checksums are one item
				for first > 0 && p[first-1] == where {
					first--
				}
				moved := false
				move := func(n format.Node, at int64) {
					i := n.Nritems() - 1
					if n.Level() > 0 || i < 0 || n.Key(i).Type != format.EXTENT_CSUM_KEY {
						return
					}
					k := n.Key(i)
					k.Offset += 1 << 40
					n.SetKey(i, k)
					n.UpdateCsum(format.CsumCRC32C)
					if err := blockdev.Write(tk, dev, n, at); err != nil {
						t.Fatal(err)
					}
					moved = true
				}
				start, logged := loggedData(t, tk, dev)
				if where == 'l' {
					eachLogBlock(t, tk, dev, move)
				} else {
					eachCopyOf(t, tk, dev, format.CSUM_TREE_OBJECTID, move)
				}
				lost := start + uint64(first*format.SectorSize)
				want := fmt.Sprintf("no csum of logical %d want one, in the log or in tree 7", lost)
				if !logged(lost) { // the commit alone has it
					want = fmt.Sprintf("no checksum of logical %d want all of ", lost)
				}
				if s := findings(t, tk, dev); !moved || !strings.Contains(s, want) {
					t.Errorf("moved %v, have\n%s\nwant %q", moved, s, want)
				}
			})
		}
	}
}

// loggedData is where the data extent lies that the log names, and which bytes of it the log says
// are written.
func loggedData(t *testing.T, tk *sched.Task, dev *blockdev.Memory) (start uint64, has func(at uint64) bool) {
	t.Helper()
	var written [][2]uint64
	eachLogBlock(t, tk, dev, func(n format.Node, _ int64) {
		for i := range n.Nritems() {
			if n.Level() > 0 || n.Key(i).Type != format.EXTENT_DATA_KEY {
				continue
			}
			var fe format.FileExtent
			fe.Decode(n.Item(i))
			if start = fe.DiskBytenr; fe.Type == format.FileExtentTypeReg {
				written = append(written, [2]uint64{start + fe.Offset, start + fe.Offset + fe.NumBytes})
			}
		}
	})
	return start, func(at uint64) bool {
		return slices.ContainsFunc(written, func(w [2]uint64) bool { return w[0] <= at && at < w[1] })
	}
}

// eachCopyOf calls f for the copies of the newest block of a tree, which is small, with their
// places.
func eachCopyOf(t *testing.T, tk *sched.Task, dev *blockdev.Memory, tree uint64, f func(n format.Node, at int64)) {
	t.Helper()
	type copied struct {
		n  format.Node
		at int64
	}
	var newest []copied
	for at := int64(1 << 20); at+format.NodeSize <= dev.Size(); at += format.NodeSize {
		n := make(format.Node, format.NodeSize)
		if err := blockdev.Read(tk, dev, n, at); err != nil {
			t.Fatal(err)
		}
		if n.Owner() != tree || n.Bytenr() == 0 || !format.CsumCRC32C.BlockMatch(n) {
			continue
		}
		if len(newest) > 0 && n.Generation() > newest[0].n.Generation() {
			newest = nil
		}
		if len(newest) == 0 || n.Generation() == newest[0].n.Generation() {
			newest = append(newest, copied{n, at})
		}
	}
	if len(newest) == 0 || slices.ContainsFunc(newest, func(c copied) bool { return c.n.Bytenr() != newest[0].n.Bytenr() }) {
		t.Fatalf("tree %d has %d blocks", tree, len(newest))
	}
	for _, c := range newest {
		f(c.n, c.at)
	}
}
