package mkfs_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	. "btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// everyDir calls f for root and the directories below it.
func everyDir(root *Entry, f func(d *Entry)) {
	for _, e := range root.Entries {
		if e.IsDir() {
			everyDir(e, f)
		}
	}
	f(root)
}

// TestPack: a tree whose files are packed, and one that was packed and is not any more, makes the
// same bytes as one that never was.
func TestPack(t *testing.T) {
	tk := sched.NewTask("pack")
	common := &contents{data: []byte("all alike")}
	built := func(root *Entry) []byte {
		dev := blockdev.NewMemory(80 << 20)
		o := Options{Open: func() Opener { return source{} }, Now: time.Unix(1e9, 0), MetadataProfile: "single", FSID: format.UUID{1}, DevUUID: format.UUID{2}, ChunkTreeUUID: format.UUID{3},
			SubvolUUID: format.UUID{4}}
		fstest.Must(Build(tk, dev, o, root))
		p := make([]byte, dev.Size())
		fstest.NoError(blockdev.Read(tk, dev, p, 0))
		return p
	}
	for seed := range uint64(4) {
		g := &grower{r: rand.New(rand.NewPCG(seed, 1)), bytes: 1 << 20}
		root := g.dir(4)
		root.Mode = format.S_IFDIR | 0o751
		files := 0
		everyDir(root, func(d *Entry) {
			for _, e := range d.Entries {
				if e.Link != nil {
					e.Link.Several = true
				}
			}
			for i := range 2 + int(seed)*30 { // owners and modes of all kinds, or a few
				e := &Entry{Name: fmt.Sprintf("%x%d", g.r.Uint32(), i), Mode: format.S_IFREG | uint32(g.r.IntN(2+i))&0o7777, UID: uint32(i % 3), Atime: g.time(), Mtime: g.time()}
				if i%2 == 0 {
					e.Source, e.Size = common, int64(len(common.data))
				}
				if i%50 == 7 {
					e.Mtime = time.Date(3000, 1, 1, 0, 0, 0, 5, time.UTC) // is not packed
				}
				d.Add(e)
				if files++; i%20 == 3 { // a second name
					second := &Entry{Name: fmt.Sprintf("%xsecond", g.r.Uint32())}
					second.LinkTo(e)
					d.Add(second)
				}
			}
		})
		want := built(root)
		packed := 0
		everyDir(root, func(d *Entry) {
			n := d.Names()
			d.Pack(common)
			packed += n - len(d.Entries)
			if d.Names() != n {
				t.Errorf("seed %d: %s has %d names, before %d", seed, d.Path(), d.Names(), n)
			}
		})
		if packed < files*8/10 {
			t.Errorf("seed %d: %d of %d files are packed", seed, packed, files)
		}
		if have := built(root); !bytes.Equal(have, want) {
			t.Errorf("seed %d, packed: %s", seed, fstest.DiffAt(have, want))
		}
		everyDir(root, func(d *Entry) { d.Each(func(e *Entry) { e.UID++ }) })
		everyDir(root, func(d *Entry) { d.Each(func(e *Entry) { e.UID-- }) })
		if have := built(root); !bytes.Equal(have, want) {
			t.Errorf("seed %d, changed there and back: %s", seed, fstest.DiffAt(have, want))
		}
		everyDir(root, func(d *Entry) { d.Unpack() })
		if have := built(root); !bytes.Equal(have, want) {
			t.Errorf("seed %d, unpacked: %s", seed, fstest.DiffAt(have, want))
		}
	}
}

// TestPackOwners: files of more owners than a packed directory keeps are there as well, each with
// its own.
func TestPackOwners(t *testing.T) {
	root := &Entry{Mode: format.S_IFDIR | 0o755}
	for i := range 1000 {
		root.Add(&Entry{Name: fmt.Sprintf("f%04d", i), Mode: format.S_IFREG | 0o644, UID: uint32(i), Atime: time.Unix(1, 0), Mtime: time.Unix(2, 0)})
	}
	root.Pack(nil)
	if n := len(root.Entries); n == 0 || n == 1000 || root.Names() != 1000 {
		t.Errorf("%d of %d are not packed", n, root.Names())
	}
	i := 0
	for _, e := range root.Children() {
		if want := fmt.Sprintf("f%04d", i); e.Name != want || e.UID != uint32(i) {
			t.Errorf("have %s of %d, want %s of %d", e.Name, e.UID, want, i)
		}
		i++
	}
}

// TestPackBad: a packed name that cannot be is told by its entry, and Child finds one.
func TestPackBad(t *testing.T) {
	dir := func(names ...string) *Entry {
		root := &Entry{Mode: format.S_IFDIR | 0o755}
		for _, n := range names {
			root.Add(&Entry{Name: n, Mode: format.S_IFREG | 0o644})
		}
		root.Pack(nil)
		return root
	}
	for _, name := range []string{"a/b", "", "..", "two", strings.Repeat("n", 256)} {
		root := dir("one", "two", name)
		_, err := Build(sched.NewTask("bad"), blockdev.NewMemory(80<<20), Options{}, root)
		bad, ok := err.(*SourceError)
		if !ok || bad.Entry.Name != name || bad.Entry.Parent() != root {
			t.Errorf("%.10q: %v", name, err)
		}
	}
	root := dir("b", "a", "c")
	if e := root.Child("b"); e == nil || e.Name != "b" || e.Parent() != root || !slices.Contains(root.Entries, e) {
		t.Errorf("child: %+v", e)
	}
	if e := root.Child("d"); e != nil {
		t.Errorf("child: %+v", e)
	}
}
