package check_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/testing/damaged"
	"btrlab/internal/testing/need"
)

// TestEachRuleFires damages the sample in one place, with checksums made right again, and expects
// the rule, and no rule that only follows from it.
func TestEachRuleFires(t *testing.T) {
	need.Long(t)
	base := damaged.NewImage(t)
	fired := map[string]bool{}
	for _, c := range damaged.EachRule(base) {
		t.Run(strings.ReplaceAll(c.Name, " ", "-"), func(t *testing.T) {
			m := base.Clone(t)
			c.Do(m)
			r := m.Check()
			want := fmt.Sprint(strings.Fields(c.Rules))
			if damaged.Rules(r) != want {
				t.Errorf("have %s want %s\n%s", damaged.Rules(r), want, damaged.Text(r))
			}
			for _, f := range r.Findings {
				fired[f.Rule] = true
				if f.Where() == "" || f.Have == nil {
					t.Errorf("a finding without place or value: %+v", f)
				}
			}
		})
	}
	// Rules that other tests of this package show.
	for _, name := range []string{"device.read", "data.read", "super.device", "data.parity", "quota.count", "log.root", "log.space", "log.item", "log.csum"} {
		fired[name] = true
	}
	for _, r := range check.Rules {
		if !fired[r.Name] {
			t.Errorf("no test makes %s fire: %s", r.Name, r.Doc)
		}
	}
	if r := base.Check(); !r.Clean {
		t.Errorf("the sample itself was damaged:\n%s", damaged.Text(r))
	}
}

// TestRightAsItIs: what looks odd and that the kernel makes, or goes on with, is no damage.
func TestRightAsItIs(t *testing.T) {
	base := damaged.NewImage(t)
	for _, c := range []struct {
		name string
		do   func(m *damaged.Image)
	}{
		// btrfs-convert makes the tree for relocated data as a subvolume is made, with the
		// transaction in the key.
		{"converted from ext4", func(m *damaged.Image) {
			m.Rekey(damaged.RootTree, damaged.Key(damaged.RelocTree, format.ROOT_ITEM_KEY, 0), damaged.Key(damaged.RelocTree, format.ROOT_ITEM_KEY, 2))
		}},
		// Deleting an orphan takes transactions, and its inode item stays as it was until the last.
		{"an orphan whose last extents are gone", func(m *damaged.Image) { m.HalfOrphan(2*damaged.Sector, 8*damaged.Sector) }},
		{"an orphan whose extents are all gone", func(m *damaged.Image) {
			m.EditInode(damaged.Orphan, func(i *format.InodeItem) { i.Size, i.Nbytes = 8*damaged.Sector, 8*damaged.Sector })
		}},
		{"an orphan directory whose entries are half gone", func(m *damaged.Image) { m.OrphanDir(true) }},
		// The array is as long as it says; Linux leaves old bytes after its end.
		{"a superblock copy with bytes beyond the system chunk array", func(m *damaged.Image) {
			p := m.Read(format.SuperMirror(1), format.SuperSize)
			p[format.SysChunkArrayOffset+format.SysChunkArrayMax-1] = 1
			le.PutUint32(p, format.CRC32C(p[format.CsumField:]))
			m.Write(format.SuperMirror(1), p)
		}},
		{"a superblock copy without the log's root", func(m *damaged.Image) {
			p := m.Read(format.SuperMirror(1), format.SuperSize)
			p[0x60], p[0x62], p[0x68], p[0xc8] = 0, 1, 1, 1
			le.PutUint32(p, format.CRC32C(p[format.CsumField:]))
			m.Write(format.SuperMirror(1), p)
		}},
		{"an orphan item of an inode with a name", func(m *damaged.Image) {
			m.Add(damaged.FsTree, damaged.Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, damaged.FileIno), nil)
		}},
		{"an orphan item of an inode that is gone", func(m *damaged.Image) {
			m.Add(damaged.FsTree, damaged.Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, 999), nil)
		}},
		{"an orphan item of a subvolume that is gone", func(m *damaged.Image) { m.OrphanRoot(999) }},
		{"a subvolume that a mount will delete", func(m *damaged.Image) {
			m.Subvol(300, 70)
			m.RootItem(300, func(r *format.RootItem) { r.Refs = 0 })
			m.OrphanRoot(300)
		}},
		{"one name in two directories", func(m *damaged.Image) {
			m.Link(damaged.DeepIno, damaged.FileIno, "sym", 2, format.FtRegFile)
			m.EditInode(damaged.FileIno, func(i *format.InodeItem) { i.Nlink++ })
		}},
		{"the head of an old free space cache", func(m *damaged.Image) {
			m.Add(damaged.RootTree, damaged.Key(^uint64(0)-10, 0, 1<<20), make([]byte, 41))
		}},
	} {
		m := base.Clone(t)
		c.do(m)
		if r := m.Check(); !r.Clean {
			t.Errorf("%s:\n%s", c.name, damaged.Text(r))
		}
	}
}

// TestSecondCopies: a damage that only the second copy has is a damage. Of data whose first copy is
// whole every reader is content with that one, until the day on which it rots, too. The third
// superblock, at 256 GiB, is on large devices only.
func TestSecondCopies(t *testing.T) {
	m := damaged.NewImage(t)
	second := m.DupData()
	if r := m.Check(); !r.Clean {
		t.Fatalf("the sample with two copies of its data:\n%s", damaged.Text(r))
	}
	for i, at := range []uint64{m.Chunks[2].Stripes[0], second} {
		n := m.Clone(t)
		n.Write(at+2*damaged.Sector+9, []byte("rot"))
		r := n.Check()
		if want := fmt.Sprintf("mirror=%d device_offset=%d", i, at+2*damaged.Sector); damaged.Rules(r) != "[data.csum]" || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Where(), want) {
			t.Errorf("copy %d is rotten: have %s want one data.csum at %s\n%s", i, damaged.Rules(r), want, damaged.Text(r))
		}
		r, err := check.Check(m.Task, &damaged.Faulty{Device: m.Dev, Start: int64(at), End: int64(at) + 1}, check.Options{})
		if err != nil || damaged.Rules(r) != "[data.read]" {
			t.Errorf("copy %d cannot be read: have %v %s want data.read\n%s", i, err, damaged.Rules(r), damaged.Text(r))
		}
	}

	big := &damaged.Image{T: t, Task: m.Task, Dev: blockdev.NewMemory(257 << 30)}
	if err := mkfs.Make(big.Task, big.Dev, mkfs.Options{FSID: damaged.UUID(1), DevUUID: damaged.UUID(2), ChunkTreeUUID: damaged.UUID(3), SubvolUUID: damaged.UUID(4)}); err != nil {
		t.Fatal(err)
	}
	if r := big.Check(); !r.Clean {
		t.Fatalf("a device with three superblocks:\n%s", damaged.Text(r))
	}
	for i := 1; i < format.SuperMirrorMax; i++ {
		n := &damaged.Image{T: t, Task: big.Task, Dev: big.Dev.Snapshot()}
		n.Write(format.SuperMirror(i)+0x12b, []byte("label"))
		r := n.Check()
		if want := fmt.Sprintf("bytenr=%d", format.SuperMirror(i)); damaged.Rules(r) != "[super.copy]" || !strings.Contains(r.Findings[0].Where(), want) {
			t.Errorf("copy %d of the superblock: have %s want super.copy at %s\n%s", i, damaged.Rules(r), want, damaged.Text(r))
		}
	}
}

// TestExtentsAcrossLeaves: two file extents that overlap are found in one leaf by the tree checker,
// and in two leaves, where no block is wrong by itself, by the checker of files.
func TestExtentsAcrossLeaves(t *testing.T) {
	for _, c := range []struct {
		off   uint64
		rules string
	}{
		{4 * damaged.Sector, "[]"}, // next to the one before
		{5 * damaged.Sector, "[]"}, // after a hole
		{3 * damaged.Sector, "[file.extent]"},
		{2*damaged.Sector + 1<<12, "[file.extent]"},
	} {
		m := damaged.NewImage(t)
		at := m.Data0() + 20*damaged.Sector
		m.FileExtent(damaged.SubIno, c.off, format.FileExtent{Type: format.FileExtentTypeReg, RAMBytes: damaged.Sector, DiskBytenr: at, DiskNumBytes: damaged.Sector, NumBytes: damaged.Sector})
		m.DataExtent(at, damaged.Sector, damaged.SubIno, c.off)
		m.EditInode(damaged.SubIno, func(i *format.InodeItem) { i.Size, i.Nbytes = 8*damaged.Sector, 3*damaged.Sector })
		// The leaves are cut between the two extents.
		root := m.Block(m.Root(damaged.FsTree))
		left, right := m.Block(root.Blockptr(0)), m.Block(root.Blockptr(1))
		l := append(damaged.Items(left), damaged.Items(right)...)
		cut := slices.IndexFunc(l, func(x damaged.Item) bool { return x.K == damaged.Key(damaged.SubIno, format.EXTENT_DATA_KEY, c.off) })
		damaged.Fill(left, l[:cut])
		damaged.Fill(right, l[cut:])
		m.Put(left)
		m.Put(right)
		m.Node(root.Bytenr(), func(n format.Node) { n.SetKey(1, l[cut].K) })
		m.Settle()
		r := m.Check()
		if damaged.Rules(r) != c.rules {
			t.Errorf("an extent from %d on after one that ends at %d: have %s want %s\n%s", c.off, 4*damaged.Sector, damaged.Rules(r), c.rules, damaged.Text(r))
		}
	}
}

func TestUnreadablePlaces(t *testing.T) {
	m := damaged.NewImage(t)
	for _, c := range []struct {
		at   uint64
		want string
	}{
		{m.Copies(m.Root(damaged.FsTree))[1], "[device.read]"},
		{m.Copies(m.Data0())[0], "[data.read]"},
		{format.SuperMirror(1), "[device.read]"},
	} {
		r, err := check.Check(m.Task, &damaged.Faulty{Device: m.Dev, Start: int64(c.at), End: int64(c.at) + 1}, check.Options{})
		if err != nil || damaged.Rules(r) != c.want {
			t.Errorf("unreadable at %d: have %v %s want %s\n%s", c.at, err, damaged.Rules(r), c.want, damaged.Text(r))
		}
	}
	if _, err := check.Check(m.Task, &damaged.Faulty{Device: m.Dev, Start: format.SuperOffset, End: format.SuperOffset + 1}, check.Options{}); err == nil {
		t.Error("unreadable superblock: no error")
	}
}

// TestTruncatedImage: an image cut short is said to be so, not taken apart into hundreds of
// findings.
func TestTruncatedImage(t *testing.T) {
	m := damaged.NewImage(t)
	for _, size := range []int64{0, 4096, format.SuperOffset + 100, m.Dev.Size() / 2, m.Dev.Size() - 4096} {
		short := blockdev.NewMemory(size)
		for off := int64(0); off < size; off += 1 << 20 {
			p := m.Read(uint64(off), int(min(1<<20, size-off)))
			if err := blockdev.Write(m.Task, short, p, off); err != nil {
				t.Fatal(err)
			}
		}
		r, err := check.Check(m.Task, short, check.Options{})
		if err != nil || damaged.Rules(r) != "[super.bad]" {
			t.Errorf("%d bytes: have %v %s", size, err, damaged.Text(r))
		}
	}
}

func TestProgress(t *testing.T) {
	m := damaged.NewImage(t)
	var phases []string
	var blocks, data uint64
	r, err := check.Check(m.Task, m.Dev, check.Options{Progress: func(phase string, done, total uint64) {
		if len(phases) == 0 || phases[len(phases)-1] != phase {
			phases = append(phases, phase)
		}
		if phase == "data" {
			data = done
		} else {
			blocks = done
		}
		if total != 0 && done > total {
			t.Errorf("%s: %d of %d", phase, done, total)
		}
	}})
	if err != nil || !r.Clean {
		t.Fatal(err, damaged.Text(r))
	}
	const want = "[superblock chunks roots extents free space checksums files references"
	if got := fmt.Sprint(phases); !strings.HasPrefix(got, want) {
		t.Errorf("phases: have %s want %s...", got, want)
	}
	if blocks != r.Stats.TreeBlocks || data != 0 && data != r.Stats.DataBytes {
		t.Errorf("last calls: %d blocks, %d bytes; want %+v", blocks, data, r.Stats)
	}
	if r, err := check.Check(m.Task, m.Dev, check.Options{NoData: true}); err != nil || !r.Clean || r.Stats.DataBytes != 0 {
		t.Errorf("without data: %v %+v", err, r)
	}
}

func TestUnsupportedIsAnError(t *testing.T) {
	m := damaged.NewImage(t)
	m.Super.IncompatFlags |= format.IncompatZoned
	m.PutSuper()
	_, err := check.Check(m.Task, m.Dev, check.Options{})
	var u *format.UnsupportedError
	if !errors.As(err, &u) || !strings.Contains(err.Error(), "zoned") {
		t.Errorf("have %v want unsupported zoned", err)
	}
}

// TestFreeSpaceBitmaps: the same free space told by bitmaps is as good.
func TestFreeSpaceBitmaps(t *testing.T) {
	m := damaged.NewImage(t)
	ch := m.Chunks[2]
	var l []damaged.Item
	old := damaged.Items(m.Block(m.Root(damaged.FreeTree)))
	bitmap := make([]byte, ch.Length/damaged.Sector/8)
	count := uint32(0)
	for _, it := range old {
		if it.K.Objectid < ch.Start {
			l = append(l, it)
			continue
		}
		if it.K.Type == format.FREE_SPACE_EXTENT_KEY {
			count++
			for a := it.K.Objectid; a < it.K.Objectid+it.K.Offset; a += damaged.Sector {
				i := (a - ch.Start) / damaged.Sector
				bitmap[i/8] |= 1 << (i % 8)
			}
		}
	}
	info := format.FreeSpaceInfo{ExtentCount: count, Flags: format.FreeSpaceUsingBitmaps}
	l = append(l, damaged.Item{K: damaged.Key(ch.Start, format.FREE_SPACE_INFO_KEY, ch.Length), B: damaged.Enc(8, &info)})
	l = append(l, damaged.Item{K: damaged.Key(ch.Start, format.FREE_SPACE_BITMAP_KEY, ch.Length), B: bitmap})
	if len(bitmap) != format.FreeSpaceBitmapSize {
		t.Fatalf("the data chunk needs %d bytes of bitmap", len(bitmap))
	}
	n := m.Block(m.Root(damaged.FreeTree))
	damaged.Fill(n, l)
	m.Put(n)
	if r := m.Check(); !r.Clean {
		t.Fatalf("bitmaps:\n%s", damaged.Text(r))
	}
	m.Edit(damaged.FreeTree, damaged.Key(ch.Start, format.FREE_SPACE_BITMAP_KEY, ch.Length), func(b []byte) { b[0] ^= 1 })
	if r := m.Check(); damaged.Rules(r) != "[free_space.range]" {
		t.Fatalf("a bit flipped:\n%s", damaged.Text(r))
	}
}

// TestSampleAgainstBtrfsCheck: btrfs check agrees that the sample is clean, so the rules are tried
// on a real file system.
func TestSampleAgainstBtrfsCheck(t *testing.T) {
	need.All(t, "btrfs")
	m := damaged.NewImage(t)
	path := filepath.Join(t.TempDir(), "image")
	d, err := blockdev.Create(path, m.Dev.Size())
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(0); off < m.Dev.Size(); off += 1 << 20 {
		p := m.Read(uint64(off), 1<<20)
		if bytes.IndexFunc(p, func(r rune) bool { return r != 0 }) < 0 {
			continue
		}
		if err := blockdev.Write(m.Task, d, p, off); err != nil {
			t.Fatal(err)
		}
	}
	d.Close()
	out, err := exec.Command("btrfs", "check", "--check-data-csum", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "no error found") {
		t.Errorf("btrfs check: %v\n%s", err, out)
	}
}

// TestReadonly: a read-only subvolume whose flags count breaks no rule, nor does a writable one
// whose flags do not.
func TestReadonly(t *testing.T) {
	for _, c := range []struct{ flags, inode uint64 }{{format.RootSubvolReadonly, format.InodeRootItemInit}, {0, 0}, {0, format.InodeRootItemInit}} {
		m := damaged.NewImage(t)
		m.RootItem(damaged.FsTree, func(r *format.RootItem) { r.Flags, r.Inode.Flags = c.flags, c.inode })
		if r := m.Check(); !r.Clean {
			t.Errorf("flags %#x, inode flags %#x:\n%s", c.flags, c.inode, damaged.Text(r))
		}
	}
}

// TestLinkNul: the NUL that mkfs.btrfs --rootdir stores after a target is beyond i_size and worth a
// note. Linux and btrfs check take it.
func TestLinkNul(t *testing.T) {
	m := damaged.NewImage(t)
	m.LinkTarget("file\x00")
	r := m.Check()
	if !r.Clean || !strings.Contains(damaged.Text(r), "has 1 symbolic links with a NUL") {
		t.Errorf("have\n%swant a note", damaged.Text(r))
	}
}
