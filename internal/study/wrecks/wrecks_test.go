package wrecks

import (
	"bytes"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// TestImages: for many students each image is sound before the damage, check finds the damage, and
// the item that is said to be hit is gone or other than it was.
func TestImages(t *testing.T) {
	tk := sched.NewTask("test")
	differ, byteCounts := map[string]bool{}, map[bool]bool{}
	for i := range 6 {
		for _, c := range Classes {
			im, err := Make(fmt.Sprintf("s%d", i), c)
			if err != nil {
				t.Fatalf("%s %d: %v", c.Name, i, err)
			}
			for name, d := range map[string]*blockdev.Memory{"sound": im.sound, "damaged": im.Dev, "worse": im.Worse} {
				r, err := check.Check(tk, d, check.Options{})
				if err != nil || r.Clean != (name == "sound") {
					t.Errorf("%s %d %s: %v clean %v %v", c.Name, i, name, err, r.Clean, r.Findings)
				}
			}
			f, err := im.Repaired()
			if err != nil {
				t.Fatal(err)
			}
			w, err := im.RepairedWorse()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %d: tree %d %v %v size %d: %+v, worse %+v", c.Name, i, im.Tree, im.Key, im.Names, len(im.data), *f, *w)
			lost := fmt.Sprintf("/lost+found/%d", im.ino)
			for what, ok := range map[string]bool{
				"after a repair the file has its names":                               fmt.Sprint(f.Paths) == fmt.Sprint(im.Names) && int(f.Links) == len(im.Names),
				"only what checksums are of stays broken":                             (f.Findings > 0) == (c.Name == "sum") && w.Findings == 0,
				"a file without a name goes to lost+found":                            (w.Paths[0] == lost) == (c.Name == "name" || c.Name == "inode"),
				"bytes are lost with their place, or when they or their sums are bad": (f.Bytes < uint64(len(im.data))) == (c.Name == "sum"),
				"of a block that is read the bytes count that nobody has changed":     c.Name != "sum" || (uint64(len(im.data))-w.Bytes)%overwritten == 0 && uint64(len(im.data))-w.Bytes < blockBytes,
				"worse has one name":                                                  len(w.Paths) == 1 && w.Links == 1,
			} {
				if !ok {
					t.Errorf("%s %d: not so: %s", c.Name, i, what)
				}
			}
			if c.Name == "sum" { // data and checksums are hit
				byteCounts[w.Bytes == uint64(len(im.data))] = true
			}
			differ[fmt.Sprint(c.Name, im.Key)] = true
		}
	}
	if len(differ) < 6*len(Classes)-3 || len(byteCounts) != 2 {
		t.Errorf("%d items of %d images differ; bytes that are what they were: %v", len(differ), 6*len(Classes), byteCounts)
	}
}

// TestSameBytes: an id gives the same image each time, however it is written.
func TestSameBytes(t *testing.T) {
	a, err := Make("ada", Classes[0])
	if err != nil {
		t.Fatal(err)
	}
	b, err := Make(" Ada ", Classes[0])
	if err != nil {
		t.Fatal(err)
	}
	tk := sched.NewTask("test")
	p, q := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < a.Dev.Size(); off += 1 << 20 {
		if blockdev.Read(tk, a.Dev, p, off) != nil || blockdev.Read(tk, b.Dev, q, off) != nil || !bytes.Equal(p, q) {
			t.Fatalf("the images differ at %d", off)
		}
	}
}

// TestRemoveFirst: when the first item of a leaf is taken, the key above is that of the next, so
// that nothing but the item is wrong.
func TestRemoveFirst(t *testing.T) {
	im, err := Make("ada", Classes[0])
	if err != nil {
		t.Fatal(err)
	}
	e, err := openTrees(sched.NewTask("test"), im.sound)
	if err != nil {
		t.Fatal(err)
	}
	top, err := e.RootOf(fsTree)
	if err != nil || top.Level != 1 {
		t.Fatalf("the tree of files has level %d, want 1: %v", top.Level, err)
	}
	root, err := e.Node(top)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.remove(fsTree, root.Key(1)); err != nil {
		t.Fatal(err)
	}
	if root, err = e.Node(top); err != nil {
		t.Fatal(err)
	}
	leaf, err := e.Node(image.Child(top, root, 1))
	if err != nil || root.Key(1) != leaf.Key(0) {
		t.Errorf("the key above is %v, want %v: %v", root.Key(1), leaf.Key(0), err)
	}
}
