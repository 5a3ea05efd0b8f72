package fstree

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

// foreign is an image of another writer, opened as mount reads it (labs/reference 10.2).
type foreign struct {
	t  *sched.Task
	v  *volumes.Volumes
	s  *Store
	fs *ctree.Root
}

func openForeign(t *testing.T, path string) *foreign {
	t.Helper()
	tk := sched.NewTask("test")
	dev, err := blockdev.Open(path, 0)
	ok := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	ok(err)
	t.Cleanup(func() { dev.Close() })
	b := make([]byte, format.SuperSize)
	ok(blockdev.Read(tk, dev, b, format.SuperOffset))
	var sb format.Super
	sb.Decode(b)
	v, err := volumes.Open([]volumes.Member{{Dev: dev, Super: &sb}}, false)
	ok(err)
	f := ctree.NewForest(ctree.Config{NodeSize: int(sb.NodeSize), FSID: sb.FSID, Reader: v})
	s := New(f, &fakeRefs{extents: map[format.Logical]*dataExtent{}}, nil, uint64(sb.SectorSize))
	chunks, err := f.OpenRoot(tk, format.CHUNK_TREE_OBJECTID, sb.ChunkRoot, int(sb.ChunkRootLevel), sb.ChunkRootGeneration, 0)
	ok(err)
	ok(s.each(tk, chunks, format.Key{}, func(p *ctree.Path, k format.Key) (bool, error) {
		if k.Type != format.CHUNK_ITEM_KEY {
			return true, nil
		}
		var c format.Chunk
		c.Decode(p.Item())
		return true, v.Add(k.Offset, c)
	}))
	roots, err := f.OpenRoot(tk, format.ROOT_TREE_OBJECTID, sb.Root, int(sb.RootLevel), sb.Generation, 0)
	ok(err)
	root := func(id uint64) (r *ctree.Root) {
		ok(s.each(tk, roots, format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}, func(p *ctree.Path, k format.Key) (bool, error) {
			var it format.RootItem
			it.Decode(p.Item())
			p.Release(tk)
			r, err = f.OpenRoot(tk, id, it.Bytenr, int(it.Level), it.Generation, it.LastSnapshot)
			return false, err
		}))
		return r
	}
	s.Csums = s.CsumsIn(root(format.CSUM_TREE_OBJECTID))
	return &foreign{tk, v, s, root(format.FS_TREE_OBJECTID)}
}

// content reads a file by its items, and checks every checksum on the way.
func (f *foreign) content(ino format.Ino) ([]byte, error) {
	inode, err := f.s.ReadInode(f.t, f.fs, ino)
	if err != nil {
		return nil, err
	}
	data := make([]byte, format.AlignUp(inode.Size, sector))
	for off := uint64(0); off < inode.Size; {
		start, fe, ok, err := f.s.LookupFileExtent(f.t, f.fs, ino, off)
		if err != nil {
			return nil, err
		}
		if !ok {
			off = start
			continue
		}
		off = format.AlignUp(extentEnd(start, &fe), sector)
		switch {
		case fe.Type == format.FileExtentTypeInline:
			copy(data[start:], fe.Inline)
		case fe.DiskBytenr != 0:
			disk := fe.DiskBytenr + fe.Offset
			if err := f.v.Read(f.t, data[start:start+fe.NumBytes], disk, 0); err != nil {
				return nil, err
			}
			n := fe.NumBytes / sector
			sums, have := make([]uint32, n), make([]bool, n)
			if err := lookupCRCs(f.t, f.s.Csums, disk, fe.NumBytes, sums, have); err != nil {
				return nil, err
			}
			for i := range n {
				at := start + i*sector
				if c := format.CRC32C(data[at : at+sector]); !have[i] || sums[i] != c {
					return nil, fmt.Errorf("inode %d at %d: checksum %v %#x, data %#x", ino, at, have[i], sums[i], c)
				}
			}
		}
	}
	return data[:inode.Size], nil
}

// TestReadMkfsRootdir reads, through volumes, ctree and fstree, a tree that mkfs.btrfs wrote.
func TestReadMkfsRootdir(t *testing.T) {
	need.All(t, "mkfs.btrfs")
	dir := t.TempDir()
	want := map[string][]byte{}
	put := func(name string, data []byte) {
		p := filepath.Join(dir, "tree", name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o640); err != nil {
			t.Fatal(err)
		}
		want[name] = data
	}
	for i := range 1200 {
		put(fmt.Sprintf("many/file-%d", i), bytes.Repeat([]byte{byte(i)}, i*7))
	}
	for i, n := range collisions(12) {
		put("same-hash/"+n, []byte{byte(i)})
	}
	big := make([]byte, 5<<20+123)
	for i := range big {
		big[i] = byte(i * 7 / 11)
	}
	put("a/b/c/"+strings.Repeat("n", 255), big)
	put("empty", nil)
	img := filepath.Join(dir, "image")
	if out, err := exec.Command("mkfs.btrfs", "-q", "-b", "256M", "--rootdir", filepath.Join(dir, "tree"), img).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.btrfs: %v\n%s", err, out)
	}
	f := openForeign(t, img)
	found := 0
	var walk func(ino format.Ino, path string)
	walk = func(ino format.Ino, path string) {
		names := uint64(0)
		if err := f.s.ReadDir(f.t, f.fs, ino, 0, func(index uint64, d format.DirItem) bool {
			names += 2 * uint64(len(d.Name))
			if got, err := f.s.Lookup(f.t, f.fs, ino, d.Name); err != nil || got.Location != d.Location || got.Type != d.Type {
				t.Errorf("lookup of %s%q: %+v, %v want %+v", path, d.Name, got, err, d)
			}
			refs, err := f.s.Names(f.t, f.fs, format.Ino(d.Location.Objectid))
			if want := (NameRef{ino, index, d.Name}); err != nil || len(refs) != 1 || refs[0] != want {
				t.Errorf("names of inode %d: %v, %v want %v", d.Location.Objectid, refs, err, want)
			}
			if d.Type == format.FtDir {
				walk(format.Ino(d.Location.Objectid), path+d.Name+"/")
				return true
			}
			found++
			data, err := f.content(format.Ino(d.Location.Objectid))
			if w, ok := want[path+d.Name]; err != nil || !ok || !bytes.Equal(data, w) {
				t.Errorf("%s%q: have %d bytes, %v want %d", path, d.Name, len(data), err, len(w))
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if inode, err := f.s.ReadInode(f.t, f.fs, ino); err != nil || inode.Size != names {
			t.Errorf("directory %q: have size %d, %v want %d", path, inode.Size, err, names)
		}
	}
	walk(format.FIRST_FREE_OBJECTID, "")
	if found != len(want) {
		t.Errorf("have %d files want %d", found, len(want))
	}
}
