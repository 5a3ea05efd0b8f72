package check

import (
	"strings"
	"testing"

	"btrlab/internal/format"
)

// TestMeans: a finding names the file that it is about, by its path, and what is the matter with
// it.
func TestMeans(t *testing.T) {
	base := newImage(t)
	for _, c := range []struct {
		name  string
		means string // of the first finding
		do    func(m *image)
	}{
		{"rotten data", "file /file: 4096 bytes at 4096 cannot be read", func(m *image) { m.write(m.copies(m.data0())[0]+blk+17, []byte("rot")) }},
		{"rotten data of one copy", "file /file: 4096 bytes at 8192 are bad on one copy; another is whole", func(m *image) {
			m.write(m.dupData()+2*blk, []byte("rot"))
		}},
		{"rotten data of both copies", "file /file: 4096 bytes at 8192 cannot be read", func(m *image) {
			m.write(m.dupData()+2*blk, []byte("rot"))
			m.write(m.copies(m.data0())[0]+2*blk, []byte("rot"))
		}},
		{"nbytes of a file in a directory", "file /dir/nocow: du is wrong", func(m *image) {
			m.editInode(subIno, func(i *format.InodeItem) { i.Nbytes++ })
		}},
		{"the size of a directory", "directory /dir/deep: nothing but a wrong size in ls; rmdir may refuse it", func(m *image) {
			m.editInode(deepIno, func(i *format.InodeItem) { i.Size++ })
		}},
		{"an entry without its item", "entry /dir/sym: opening it by name fails, while ls may show it", func(m *image) {
			m.del(fsTree, key(dirIno, format.DIR_ITEM_KEY, format.NameHash("sym")))
			m.editInode(dirIno, func(i *format.InodeItem) { i.Size -= 3 })
		}},
		{"an inode without a name", "file <inode 263 of subvolume 5>: it has no name, and its space is never freed", func(m *image) {
			m.del(fsTree, key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, orphan))
		}},
		{"a file in a subvolume", "directory /sub: nothing but a wrong size in ls; rmdir may refuse it", func(m *image) {
			m.subvol(300, 70)
			m.linkSubvol(300, "sub")
			n := m.block(m.root(300))
			var i format.InodeItem
			i.Decode(n.Item(0))
			i.Size++
			i.Encode(n.Item(0))
			m.put(n)
		}},
		{"a directory below itself", "directory /dir/deep/loop", func(m *image) {
			// deep is moved below a directory that is below it.
			m.inode(300, format.InodeItem{Nlink: 1, Mode: format.S_IFDIR | 0o755})
			m.link(deepIno, 300, "loop", 2, format.FtDir)
			m.editInode(300, func(i *format.InodeItem) { i.Size = 9 })
		}},
		{"used of a block group", "df is wrong", func(m *image) {
			m.edit(extentTree, key(m.ch[2].start, format.BLOCK_GROUP_ITEM_KEY, m.ch[2].length), set64(0, 5*blk))
		}},
	} {
		m := base.clone(t)
		c.do(m)
		r := m.check()
		if r.Clean || !strings.HasPrefix(r.Findings[0].Means, c.means) {
			t.Errorf("%s: want %q\n%s", c.name, c.means, r.text())
			for _, f := range r.Findings {
				t.Logf("%s", f.Means)
			}
		}
	}
}

// TestRulesMean: every rule says what it means, in a few words.
func TestRulesMean(t *testing.T) {
	for _, r := range Rules {
		if data := r.Name == "data.csum" || r.Name == "data.read"; data != (r.Means == "") || len(r.Means) > 75 {
			t.Errorf("%s: %q", r.Name, r.Means)
		}
	}
}
