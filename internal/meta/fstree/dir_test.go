package fstree

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
)

const rootDir = 256

// collisions returns n names with one hash: a CRC is linear, so names that differ by a multiple of
// its polynomial have the same. Found by search over 4-byte suffixes of a fixed length.
func collisions(n int) []string {
	// The register after a prefix decides; append the 4 bytes that bring it to one target.
	const target = 0x12345678
	var names []string
	for i := 0; len(names) < n; i++ {
		prefix := fmt.Sprintf("name-%06d-", i)
		tail := forceHash(prefix, target)
		if tail != "" {
			names = append(names, prefix+tail)
		}
	}
	return names
}

// forceHash finds 4 bytes, none of them NUL or '/', that give prefix+bytes the hash target.
// The hash of 4 appended bytes is affine over GF(2): solve the 32 equations.
func forceHash(prefix string, target uint32) string {
	hash := func(v uint32) uint32 {
		return uint32(format.NameHash(prefix + string([]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)})))
	}
	zero := hash(0)
	var rows [32]uint64 // column values in the low half, which input bits in the high half
	for i := range rows {
		rows[i] = uint64(hash(1<<i)^zero) | 1<<(32+i)
	}
	want := uint64(zero ^ target)
	for bit, used := 0, 0; bit < 32; bit++ {
		pivot := -1
		for i := used; i < 32; i++ {
			if rows[i]>>bit&1 == 1 {
				pivot = i
				break
			}
		}
		if pivot < 0 {
			return ""
		}
		rows[used], rows[pivot] = rows[pivot], rows[used]
		for i := range rows {
			if i != used && rows[i]>>bit&1 == 1 {
				rows[i] ^= rows[used]
			}
		}
		used++
	}
	v := uint32(0)
	for bit := range 32 {
		if want>>bit&1 == 1 {
			v ^= uint32(rows[bit] >> 32)
		}
	}
	s := string([]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)})
	if strings.ContainsAny(s, "\x00/") {
		return ""
	}
	return s
}

type dirModel map[string]NameRef // name -> (ino as Dir, index)

func (e *env) verifyDir(dir format.Ino, m dirModel) {
	e.Helper()
	var indexes []uint64
	n := 0
	e.ok(e.s.ReadDir(e.t, e.fs, dir, 0, func(index uint64, d format.DirItem) bool {
		w, ok := m[d.Name]
		if !ok || w.Index != index || w.Dir != format.Ino(d.Location.Objectid) || d.Type != format.FtRegFile {
			e.Fatalf("directory entry %q at %d: have %v want %v", d.Name, index, d, w)
		}
		indexes = append(indexes, index)
		n++
		return true
	}))
	if n != len(m) || !slices.IsSorted(indexes) {
		e.Fatalf("have %d entries want %d, in order %v", n, len(m), slices.IsSorted(indexes))
	}
	for name, w := range m {
		d, err := e.s.Lookup(e.t, e.fs, dir, name)
		e.ok(err)
		if d.Location != inodeKey(w.Dir) || d.Name != name {
			e.Fatalf("lookup of %q: have %+v want inode %d", name, d, w.Dir)
		}
	}
}

// TestLinksModel adds and removes names, among them many with one hash and many of one inode.
func TestLinksModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	e := newEnv(t, 4096)
	e.inode(rootDir, format.S_IFDIR|0o755)
	for ino := format.Ino(257); ino < 262; ino++ {
		e.inode(ino, format.S_IFREG|0o644)
	}
	pool := collisions(20)
	for i := range 300 {
		pool = append(pool, fmt.Sprintf("file-%d-%s", i, strings.Repeat("x", 100+rnd.IntN(120))))
	}
	m := dirModel{}
	for op := range 1500 {
		name := pool[rnd.IntN(len(pool))]
		ino := 257 + format.Ino(rnd.IntN(5))
		if w, ok := m[name]; ok {
			if err := e.s.AddLink(e.t, e.tr, e.fs, rootDir, ino, name, format.FtRegFile, 1<<40); err != errno.EEXIST {
				t.Fatalf("second %q: %v", name, err)
			}
			if _, err := e.s.DelLink(e.t, e.tr, e.fs, rootDir, w.Dir+1, name); err != errno.ENOENT {
				t.Fatalf("unlink of %q with the wrong inode: %v", name, err)
			}
			index, err := e.s.DelLink(e.t, e.tr, e.fs, rootDir, w.Dir, name)
			e.ok(err)
			if index != w.Index {
				t.Fatalf("unlink of %q: have index %d want %d", name, index, w.Index)
			}
			delete(m, name)
		} else {
			if _, err := e.s.DelLink(e.t, e.tr, e.fs, rootDir, ino, name); err != errno.ENOENT {
				t.Fatalf("unlink of a missing %q: %v", name, err)
			}
			if _, err := e.s.Lookup(e.t, e.fs, rootDir, name); err != errno.ENOENT {
				t.Fatalf("lookup of a missing %q: %v", name, err)
			}
			index, err := e.s.NextDirIndex(e.t, e.fs, rootDir)
			e.ok(err)
			e.ok(e.s.AddLink(e.t, e.tr, e.fs, rootDir, ino, name, format.FtRegFile, index))
			m[name] = NameRef{Dir: ino, Index: index}
		}
		if op%100 == 0 {
			e.verifyDir(rootDir, m)
			e.commit()
		}
	}
	e.verifyDir(rootDir, m)
	byIno := map[uint64]int{}
	for _, w := range m {
		byIno[uint64(w.Dir)]++
	}
	for ino := format.Ino(257); ino < 262; ino++ {
		names, err := e.s.Names(e.t, e.fs, ino)
		e.ok(err)
		for _, n := range names {
			if w := m[n.Name]; w.Dir != ino || w.Index != n.Index || n.Dir != rootDir {
				t.Errorf("inode %d: name %+v want %+v", ino, n, w)
			}
		}
		if len(names) != byIno[uint64(ino)] {
			t.Errorf("inode %d: have %d names want %d", ino, len(names), byIno[uint64(ino)])
		}
	}
	extrefs := 0
	for _, k := range e.keys(e.fs) {
		if k.Type == format.INODE_EXTREF_KEY {
			extrefs++
		}
	}
	if extrefs == 0 {
		t.Error("no name went to an INODE_EXTREF item: the test is too small")
	}
	for name, w := range m {
		_, err := e.s.DelLink(e.t, e.tr, e.fs, rootDir, w.Dir, name)
		e.ok(err)
	}
	if keys := e.keys(e.fs); len(keys) != 6 {
		t.Errorf("left over: %v", keys)
	}
}

// TestRoomReadsErrors: a directory or an inode whose item cannot be read has not room for a name:
// nobody knows. A caller that took the error for room would begin a transaction for the name, and
// abort it where the same block cannot be read.
func TestRoomReadsErrors(t *testing.T) {
	e := newEnv(t, 4096)
	e.inode(rootDir, format.S_IFDIR|0o755)
	for i := range 100 {
		ino := format.Ino(257 + i)
		e.inode(ino, format.S_IFREG|0o644)
		e.ok(e.s.AddLink(e.t, e.tr, e.fs, rootDir, ino, fmt.Sprintf("name%d", i), format.FtRegFile, uint64(i+2)))
	}
	e.commit()
	bytenr, level, gen := e.fs.Pointer()
	for _, bad := range []bool{false, true} {
		e.f = ctree.NewForest(ctree.Config{NodeSize: 4096, FSID: format.UUID{1}, ChunkTreeUUID: format.UUID{2}, Reader: e.disk, CacheBlocks: 64})
		e.f.SetAllocator(e.disk)
		fs, err := e.f.OpenRoot(e.t, format.FS_TREE_OBJECTID, bytenr, level, gen, 0)
		e.ok(err)
		e.s = New(e.f, e.refs, fs, sector)
		var want, exists error = nil, errno.EEXIST
		if bad {
			want, exists = errno.EIO, errno.EIO
			for at := range e.disk.blocks {
				if at != bytenr {
					delete(e.disk.blocks, at)
				}
			}
		}
		e.want(e.s.RoomForName(e.t, fs, rootDir, "name7"), exists)
		e.want(e.s.RoomForName(e.t, fs, rootDir, "other"), want)
		e.want(e.s.RoomForRef(e.t, fs, rootDir, 260, "other"), want)
	}
}

// TestLinkLimits: an item is at most a leaf. What does not fit leaves the tree as it was.
func TestLinkLimits(t *testing.T) {
	e := newEnv(t, 4096)
	e.inode(rootDir, format.S_IFDIR|0o755)
	added := 0
	var err error
	for i, name := range collisions(200) {
		e.inode(format.Ino(257+i), format.S_IFREG|0o644)
		if err = e.s.AddLink(e.t, e.tr, e.fs, rootDir, format.Ino(257+i), name, format.FtRegFile, uint64(i+2)); err != nil {
			break
		}
		added++
	}
	if err != errno.EOVERFLOW || added < 50 {
		t.Errorf("names with one hash: %d added, then %v", added, err)
	}
	list := collisions(added + 1)
	for name, want := range map[string]error{list[added]: errno.EOVERFLOW, list[0]: errno.EEXIST, "other": nil} {
		if err := e.s.RoomForName(e.t, e.fs, rootDir, name); err != want {
			t.Errorf("room for name %q: have %v want %v", name, err, want)
		}
	}
	if n, err := e.s.NextDirIndex(e.t, e.fs, rootDir); n != uint64(added+2) || err != nil {
		t.Errorf("have next index %d, %v want %d", n, err, added+2)
	}
	if names, err := e.s.Names(e.t, e.fs, format.Ino(257+added)); len(names) != 0 || err != nil {
		t.Errorf("the name that did not fit left a reference: %v, %v", names, err)
	}
	e.s.Extref = false
	e.inode(999, format.S_IFREG|0o644)
	for i := range 100 {
		if err = e.s.AddLink(e.t, e.tr, e.fs, rootDir, 999, fmt.Sprintf("%s%d", strings.Repeat("y", 100), i), format.FtRegFile, uint64(1000+i)); err != nil {
			added = i
			break
		}
	}
	if err != errno.EMLINK {
		t.Errorf("names of one inode without extended references: %v", err)
	}
	for _, extref := range []bool{false, true} {
		e.s.Extref = extref
		want := error(errno.EMLINK)
		if extref {
			want = nil
		}
		if err := e.s.RoomForRef(e.t, e.fs, rootDir, 999, strings.Repeat("y", 102)); err != want {
			t.Errorf("room for a reference, extended ones %v: have %v want %v", extref, err, want)
		}
	}
	e.s.Extref = false
	if err := e.s.RoomForRef(e.t, e.fs, rootDir, 257, "other"); err != nil {
		t.Errorf("room for the second reference of an inode: %v", err)
	}
	if _, err := e.s.Lookup(e.t, e.fs, rootDir, fmt.Sprintf("%s%d", strings.Repeat("y", 100), added)); err != errno.ENOENT {
		t.Errorf("the name that did not fit is in the directory: %v", err)
	}
	if err := e.s.AddLink(e.t, e.tr, e.fs, rootDir, 257, strings.Repeat("z", 256), format.FtRegFile, 5000); err != errno.ENAMETOOLONG {
		t.Errorf("long name: %v", err)
	}
	e.commit()
}

func TestReadDirResumesAndStops(t *testing.T) {
	e := newEnv(t, 4096)
	e.inode(rootDir, format.S_IFDIR|0o755)
	for i := range uint64(500) {
		e.ok(e.s.AddLink(e.t, e.tr, e.fs, rootDir, format.Ino(257+i), fmt.Sprintf("f%d", i), format.FtRegFile, 2+i))
	}
	var got []uint64
	e.ok(e.s.ReadDir(e.t, e.fs, rootDir, 100, func(index uint64, d format.DirItem) bool {
		// The tree is not locked: a callback may change it.
		if index == 300 {
			_, err := e.s.DelLink(e.t, e.tr, e.fs, rootDir, format.Ino(d.Location.Objectid), d.Name)
			e.ok(err)
		}
		got = append(got, index)
		return index < 450
	}))
	if len(got) != 351 || got[0] != 100 || got[350] != 450 {
		t.Errorf("have %d entries, %d to %d", len(got), got[0], got[len(got)-1])
	}
}

func TestInodesAndOrphans(t *testing.T) {
	e := newEnv(t, 4096)
	if n, err := e.s.NextObjectid(e.t, e.fs); n != 257 || err != nil {
		t.Errorf("empty tree: next objectid %d, %v", n, err)
	}
	for i := range uint64(200) {
		e.inode(rootDir+format.Ino(i), format.S_IFREG|0o600)
	}
	if err := e.s.InsertInode(e.t, e.tr, e.fs, rootDir, &format.InodeItem{}); err != errno.EEXIST {
		t.Errorf("second inode: %v", err)
	}
	for _, ino := range []format.Ino{300, 260, 455} {
		e.ok(e.s.InsertOrphan(e.t, e.tr, e.fs, ino))
	}
	if n, err := e.s.NextObjectid(e.t, e.fs); n != rootDir+200 || err != nil {
		t.Errorf("next objectid %d, %v", n, err)
	}
	list, err := e.s.Orphans(e.t, e.fs)
	e.ok(err)
	if !slices.Equal(list, []format.Ino{260, 300, 455}) {
		t.Errorf("orphans %v", list)
	}
	e.ok(e.s.DelOrphan(e.t, e.tr, e.fs, 300))
	e.want(e.s.DelOrphan(e.t, e.tr, e.fs, 300), errno.ENOENT)
	want := format.InodeItem{Generation: 3, Transid: 7, Size: 99, Nbytes: 4096, Nlink: 2, UID: 5, Mode: format.S_IFREG | 0o4711, Flags: format.InodeNoDataCow}
	e.ok(e.s.UpdateInode(e.t, e.tr, e.fs, 301, &want))
	got, err := e.s.ReadInode(e.t, e.fs, 301)
	e.ok(err)
	if got != want {
		t.Errorf("have %+v want %+v", got, want)
	}
	e.want(e.s.UpdateInode(e.t, e.tr, e.fs, 9999, &want), errno.ENOENT)
	e.commit()
}

func TestXattrs(t *testing.T) {
	e := newEnv(t, 4096)
	e.inode(256, format.S_IFREG|0o600)
	e.inode(257, format.S_IFREG|0o600)
	names := collisions(3)
	for i, n := range names {
		e.ok(e.s.Setxattr(e.t, e.tr, e.fs, 257, n, []byte(strings.Repeat("v", i*10))))
	}
	e.ok(e.s.Setxattr(e.t, e.tr, e.fs, 257, names[1], []byte("longer than it was")))
	// what lies beside it in the item is as it was
	for i, want := range []string{"", "longer than it was", strings.Repeat("v", 20)} {
		if v, err := e.s.Getxattr(e.t, e.fs, 257, names[i]); err != nil || string(v) != want {
			t.Errorf("%s: have %q, %v want %q", names[i], v, err, want)
		}
	}
	e.ok(e.s.Setxattr(e.t, e.tr, e.fs, 257, names[1], []byte("changed")))
	if v, err := e.s.Getxattr(e.t, e.fs, 257, names[2]); err != nil || string(v) != strings.Repeat("v", 20) {
		t.Errorf("have %q, %v", v, err)
	}
	e.ok(e.s.Setxattr(e.t, e.tr, e.fs, 257, "user.empty", nil))
	e.ok(e.s.Removexattr(e.t, e.tr, e.fs, 257, names[0]))
	// What does not fit leaves what was there: a value too large for an item, and one too large
	// beside another of the same hash.
	e.want(e.s.Setxattr(e.t, e.tr, e.fs, 257, "user.big", make([]byte, 5000)), errno.ENOSPC)
	e.want(e.s.Setxattr(e.t, e.tr, e.fs, 257, names[1], make([]byte, 5000)), errno.ENOSPC)
	e.want(e.s.Setxattr(e.t, e.tr, e.fs, 257, names[1], make([]byte, 3900)), errno.ENOSPC)
	e.ok(e.s.Setxattr(e.t, e.tr, e.fs, 257, "user.wide", make([]byte, 3500)))
	e.ok(e.s.Setxattr(e.t, e.tr, e.fs, 257, "user.wide", make([]byte, 3600)))
	e.ok(e.s.Removexattr(e.t, e.tr, e.fs, 257, "user.wide"))
	e.commit()
	list, err := e.s.Listxattr(e.t, e.fs, 257)
	e.ok(err)
	want := []string{names[1], names[2], "user.empty"}
	slices.Sort(list)
	slices.Sort(want)
	if !slices.Equal(list, want) {
		t.Errorf("have %q want %q", list, want)
	}
	v, err := e.s.Getxattr(e.t, e.fs, 257, names[1])
	e.ok(err)
	if string(v) != "changed" {
		t.Errorf("have %q", v)
	}
	_, err = e.s.Getxattr(e.t, e.fs, 257, names[0])
	e.want(err, errno.ENOENT)
	// Deleting the inode takes the attributes along, in a tree where its items cross leaves.
	for i := range 50 {
		e.ok(e.s.Setxattr(e.t, e.tr, e.fs, 257, fmt.Sprintf("user.%d", i), make([]byte, 200)))
	}
	e.inode(258, format.S_IFREG|0o600)
	for i := range 20 { // the inode before fills the start of the leaf
		e.ok(e.s.Setxattr(e.t, e.tr, e.fs, 256, fmt.Sprintf("user.%d", i), make([]byte, 200)))
	}
	e.ok(e.s.DeleteInode(e.t, e.tr, e.fs, 257))
	if keys := e.keys(e.fs); len(keys) != 22 || keys[0] != inodeKey(256) || keys[21] != inodeKey(258) {
		t.Errorf("left over: %v", keys)
	}
}
