package check_test

import (
	"strings"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/testing/damaged"
)

// TestMeans: a finding names the file that it is about, by its path, and what is the matter with
// it.
func TestMeans(t *testing.T) {
	base := damaged.NewImage(t)
	for _, c := range []struct {
		name  string
		means string // of the first finding
		do    func(m *damaged.Image)
	}{
		{"rotten data", "file /file: 4096 bytes at 4096 cannot be read", func(m *damaged.Image) { m.Write(m.Copies(m.Data0())[0]+damaged.Sector+17, []byte("rot")) }},
		{"rotten data of one copy", "file /file: 4096 bytes at 8192 are bad on one copy; another is whole", func(m *damaged.Image) {
			m.Write(m.DupData()+2*damaged.Sector, []byte("rot"))
		}},
		{"rotten data of both copies", "file /file: 4096 bytes at 8192 cannot be read", func(m *damaged.Image) {
			m.Write(m.DupData()+2*damaged.Sector, []byte("rot"))
			m.Write(m.Copies(m.Data0())[0]+2*damaged.Sector, []byte("rot"))
		}},
		{"nbytes of a file in a directory", "file /dir/nocow: du is wrong", func(m *damaged.Image) {
			m.EditInode(damaged.SubIno, func(i *format.InodeItem) { i.Nbytes++ })
		}},
		{"the size of a directory", "directory /dir/deep: nothing but a wrong size in ls; rmdir may refuse it", func(m *damaged.Image) {
			m.EditInode(damaged.DeepIno, func(i *format.InodeItem) { i.Size++ })
		}},
		{"an entry without its item", "entry /dir/sym: opening it by name fails, while ls may show it", func(m *damaged.Image) {
			m.Del(damaged.FsTree, damaged.Key(damaged.DirIno, format.DIR_ITEM_KEY, format.NameHash("sym")))
			m.EditInode(damaged.DirIno, func(i *format.InodeItem) { i.Size -= 3 })
		}},
		{"an inode without a name", "file <inode 263 of subvolume 5>: it has no name, and its space is never freed", func(m *damaged.Image) {
			m.Del(damaged.FsTree, damaged.Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, damaged.Orphan))
		}},
		{"a file in a subvolume", "directory /sub: nothing but a wrong size in ls; rmdir may refuse it", func(m *damaged.Image) {
			m.Subvol(300, 70)
			m.LinkSubvol(300, "sub")
			n := m.Block(m.Root(300))
			var i format.InodeItem
			i.Decode(n.Item(0))
			i.Size++
			i.Encode(n.Item(0))
			m.Put(n)
		}},
		{"a directory below itself", "directory /dir/deep/loop", func(m *damaged.Image) {
			// deep is moved below a directory that is below it.
			m.Inode(300, format.InodeItem{Nlink: 1, Mode: format.S_IFDIR | 0o755})
			m.Link(damaged.DeepIno, 300, "loop", 2, format.FtDir)
			m.EditInode(300, func(i *format.InodeItem) { i.Size = 9 })
		}},
		{"used of a block group", "df is wrong", func(m *damaged.Image) {
			m.Edit(damaged.ExtentTree, damaged.Key(m.Chunks[2].Start, format.BLOCK_GROUP_ITEM_KEY, m.Chunks[2].Length), damaged.Set64(0, 5*damaged.Sector))
		}},
	} {
		m := base.Clone(t)
		c.do(m)
		r := m.Check()
		if r.Clean || !strings.HasPrefix(r.Findings[0].Means, c.means) {
			t.Errorf("%s: want %q\n%s", c.name, c.means, damaged.Text(r))
			for _, f := range r.Findings {
				t.Logf("%s", f.Means)
			}
		}
	}
}

// TestRulesMean: every rule says what it means, in a few words.
func TestRulesMean(t *testing.T) {
	for _, r := range check.Rules {
		if data := r.Name == "data.csum" || r.Name == "data.read"; data != (r.Means == "") || len(r.Means) > 75 {
			t.Errorf("%s: %q", r.Name, r.Means)
		}
	}
}
