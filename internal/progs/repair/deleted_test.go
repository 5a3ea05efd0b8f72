package repair

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/testing/damaged"
	"btrlab/internal/testing/need"
)

// Damage by deletion: one item of each key type in each tree is gone, with checksums made right
// again. For each kind the table says what check finds, what a repair leaves, and how many files
// that could be read are lost by it.

var deletedEach = flag.Int("deleted.each", 2, "items of each kind that TestDeletedItems deletes")

// treeClass is the row of a tree in the table.
func treeClass(id uint64, shared bool) string {
	switch {
	case format.IsFSTree(id) && shared:
		return "files, shared"
	case format.IsFSTree(id):
		return "files"
	}
	return map[uint64]string{1: "roots", 2: "extents", 3: "chunks", 4: "devices", 7: "checksums", 8: "quotas", 9: "UUIDs", 10: "free space", 11: "block groups",
		damaged.RelocTree: "relocated data"}[id]
}

var keyNames = map[uint8]string{0: "header of a cache", 1: "INODE_ITEM", 12: "INODE_REF", 13: "INODE_EXTREF", 24: "XATTR_ITEM", 48: "ORPHAN_ITEM", 84: "DIR_ITEM", 96: "DIR_INDEX",
	108: "EXTENT_DATA", 128: "EXTENT_CSUM", 132: "ROOT_ITEM", 144: "ROOT_BACKREF", 156: "ROOT_REF", 168: "EXTENT_ITEM", 169: "METADATA_ITEM", 176: "TREE_BLOCK_REF",
	178: "EXTENT_DATA_REF", 182: "SHARED_BLOCK_REF", 184: "SHARED_DATA_REF", 192: "BLOCK_GROUP_ITEM", 198: "FREE_SPACE_INFO", 199: "FREE_SPACE_EXTENT",
	200: "FREE_SPACE_BITMAP", 204: "DEV_EXTENT", 216: "DEV_ITEM", 228: "CHUNK_ITEM", 240: "QGROUP_STATUS", 242: "QGROUP_INFO", 244: "QGROUP_LIMIT",
	246: "QGROUP_RELATION", 248: "TEMPORARY_ITEM", 249: "PERSISTENT_ITEM", 251: "UUID_KEY_SUBVOL", 252: "UUID_KEY_RECEIVED_SUBVOL", 253: "STRING_ITEM"}

// victim is an item to delete.
type victim struct {
	bytenr uint64
	slot   int
	k      format.Key
}

// kinds lists the items of an image by tree and key type. The first of a leaf is spared, if it has
// another: its key is in the parent as well.
func kinds(seen *check.Seen) map[string][]victim {
	c := &changes{Seen: seen}
	list := map[string][]victim{}
	met := map[uint64]bool{}
	ids := append([]uint64{format.ROOT_TREE_OBJECTID, format.CHUNK_TREE_OBJECTID}, c.RootIDs...)
	for _, id := range ids {
		r, err := c.RootOf(id)
		if err != nil {
			continue
		}
		c.Walker().Tree(id, r, format.Key{}, func(n format.Node, _ bool) {
			if met[n.Bytenr()] {
				return
			}
			met[n.Bytenr()] = true
			class := treeClass(id, len(slices.Compact(slices.Sorted(slices.Values(c.reachedBy(n.Bytenr()))))) > 1)
			for i := range n.Nritems() {
				if i == 0 && r.Level > 0 {
					continue
				}
				k := n.Key(i)
				if k == damaged.InodeKey(damaged.Orphan) {
					continue // what is left of a deleted file
				}
				name := keyNames[k.Type]
				if k.Type == format.ROOT_ITEM_KEY {
					name += " " + map[bool]string{true: "of files", false: "of " + treeClass(k.Objectid, false)}[format.IsFSTree(k.Objectid)]
				}
				list[class+" | "+name] = append(list[class+" | "+name], victim{n.Bytenr(), i, k})
			}
		}, nil)
	}
	return list
}

// outcome is a row of the table.
type outcome struct {
	n, found, clean, lost int
	theirs, theirsAfter   int // btrfs check: clean before and after
	left                  map[string]bool
}

// deletes deletes items of each kind. Theirs, if any, is another judge of an image; used, if any,
// uses a repaired image of each kind.
func deletes(t *testing.T, m *damaged.Image, each int, theirs func(m *damaged.Image) bool, used func(m *damaged.Image) error) map[string]*outcome {
	_, c, err := check.Examine(m.Task, m.Dev, check.Options{NoData: true})
	if err != nil || len(c.Findings) > 0 {
		t.Fatal(err, c.Findings)
	}
	table := map[string]*outcome{}
	all := kinds(c)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		o := &outcome{left: map[string]bool{}}
		table[kind] = o
		list := all[kind]
		for i := range min(each, len(list)) {
			v := list[(2*i+1)*len(list)/(2*min(each, len(list)))]
			d := m.Clone(t)
			n := d.Block(v.bytenr)
			l := damaged.Items(n)
			damaged.Fill(n, slices.Delete(l, v.slot, v.slot+1))
			d.Put(n)
			o.n++
			before := readable(t, d.Task, d.Dev)
			r, err := Propose(d.Task, d.Dev, check.Options{})
			if err != nil {
				t.Errorf("%s %v: %v", kind, v.k, err)
				continue
			}
			if !r.Before.Clean {
				o.found++
			}
			if theirs != nil && theirs(d) {
				o.theirs++
			}
			if r.Better() {
				if err := commit(d, r); err != nil {
					t.Fatal(err)
				}
			} else if !r.Before.Clean {
				r.After = r.Before
			}
			if theirs != nil && theirs(d) {
				o.theirsAfter++
			} else if theirs != nil && r.After.Clean {
				t.Logf("%s %v: clean here only\n%q", kind, v.k, r.Done)
			}
			if used != nil && i == 0 && r.Better() && r.After.Clean {
				if err := used(d); err != nil {
					t.Errorf("%s %v: %v\n%q", kind, v.k, err, r.Done)
				}
			}
			if r.After.Clean {
				o.clean++
			} else {
				for _, f := range r.After.Findings {
					o.left[f.Rule] = true
				}
				t.Logf("%s %v: left %q\n%s", kind, v.k, r.Left, damaged.Text(r.After))
			}
			after := readable(t, d.Task, d.Dev)
			for id, want := range before {
				if have, ok := after[id]; !ok || have != want {
					o.lost++
					t.Errorf("%s %v: file %s: have %q want %q\n%q", kind, v.k, id, have, want, r.Done)
				}
			}
		}
	}
	return table
}

// show prints a table as the guide has it.
func show(t *testing.T, table map[string]*outcome, theirs bool) {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(table)) {
		o := table[kind]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |", kind, o.n, o.found, o.clean, o.lost)
		if theirs {
			fmt.Fprintf(&b, " %d | %d |", o.n-o.theirs, o.theirsAfter)
		}
		b.WriteString("\n")
	}
	t.Log("\n" + b.String())
}

// silent are the kinds that check cannot miss anything of: nothing else says that the item was
// there.
var silent = map[string]string{
	"files | XATTR_ITEM":           "no other item says that it was there",
	"files, shared | XATTR_ITEM":   "no other item says that it was there",
	"devices | PERSISTENT_ITEM":    "counts of errors, which begin anew",
	"roots | DIR_ITEM":             "the name of the default subvolume: without it that is the top level",
	"roots | INODE_ITEM":           "the directory of that name: Linux does not read it",
	"roots | INODE_REF":            "of that directory: Linux does not read it",
	"free space | FREE_SPACE_INFO": "mkfs.btrfs leaves some of block groups that are gone; they are a note",
}

// stubborn are the kinds that a repair leaves, with the reason.
var stubborn = map[string]string{
	"chunks | CHUNK_ITEM": "of the chunk that has the trees: nothing is read without it",
}

// fullSample is the sample with an attribute, a snapshot and qgroups.
func fullSample(t *testing.T) *damaged.Image {
	m := damaged.NewImage(t)
	x := format.DirItem{Type: format.FtXattr, Name: "user.color", Data: []byte("blue")}
	m.Add(damaged.FsTree, damaged.Key(damaged.FileIno, format.XATTR_ITEM_KEY, format.NameHash(x.Name)), damaged.Enc(x.Size(), &x))
	snapshot(m, 300, 70)
	m.AddQuota(1, m.Super.Generation)
	r, err := Propose(m.Task, m.Dev, check.Options{}) // the counts
	if err != nil || !r.After.Clean {
		t.Fatalf("%v %q\n%s", err, r.Left, damaged.Text(r.After))
	}
	if err := commit(m, r); err != nil {
		t.Fatal(err)
	}
	m.Load()
	return m
}

// TestDeletedItems deletes items of the sample.
func TestDeletedItems(t *testing.T) {
	m := fullSample(t)
	table := deletes(t, m, *deletedEach, nil, nil)
	show(t, table, false)
	if len(table) < 35 || table["files, shared | INODE_REF"] == nil {
		t.Errorf("the sample has items of %d kinds", len(table))
	}
	judge(t, table)
}

// judge holds a table against what is known.
func judge(t *testing.T, table map[string]*outcome) {
	for kind, o := range table {
		if _, ok := silent[kind]; !ok && o.found < o.n {
			t.Errorf("%s: found %d of %d", kind, o.found, o.n)
		}
		if _, ok := stubborn[kind]; !ok && o.clean < o.n {
			t.Errorf("%s: clean %d of %d, left %v", kind, o.clean, o.n, slices.Sorted(maps.Keys(o.left)))
		}
	}
}

// deletedScript makes an image with one of everything in $1, mounted at $2.
const deletedScript = `
set -eu
img=$1; m=$2
truncate -s 160M $img; mkfs.btrfs -q -n 4096 $img >/dev/null
mount -o loop,compress=zstd $img $m
trap 'umount $m 2>/dev/null || true' EXIT
btrfs quota enable $m; btrfs qgroup create 1/100 $m
btrfs -q subvolume create $m/sub; btrfs -q subvolume create $m/sub/nested
mkdir -p $m/sub/dir/deep
for i in $(seq 1 150); do echo "file $i of a subvolume, with a text that is long enough" > $m/sub/dir/file-$i; done
for i in $(seq 1 100); do ln $m/sub/dir/file-1 $m/sub/dir/deep/a-name-that-is-rather-long-so-that-the-item-is-full-soon-$i; done
dd if=/dev/urandom of=$m/sub/big bs=1M count=4 status=none
dd if=/dev/zero of=$m/sub/zeros bs=1M count=2 status=none
ln -s dir/file-7 $m/sub/link; mkfifo $m/sub/pipe; mknod $m/sub/device c 1 3
setfattr -n user.color -v blue $m/sub/big; setfattr -n user.text -v long $m/sub/dir
touch $m/sub/nocow; chattr +C $m/sub/nocow; dd if=/dev/urandom of=$m/sub/nocow bs=64k count=2 conv=notrunc status=none
fallocate -l 1M $m/sub/reserved; truncate -s 3M $m/sub/sparse; echo tail >> $m/sub/sparse
sync -f $m
cp --reflink=always $m/sub/big $m/clone
btrfs -q subvolume snapshot $m/sub $m/snap
btrfs -q subvolume snapshot -r $m/sub $m/ro
dd if=/dev/urandom of=$m/snap/big bs=64k count=5 seek=7 conv=notrunc status=none
rm $m/snap/dir/file-1*; sync -f $m
btrfs qgroup assign --no-rescan 0/257 1/100 $m || true
btrfs qgroup limit 1G $m/snap
btrfs quota rescan -w $m >/dev/null; sync -f $m
umount $m
`

// usedScript mounts an image, reads all, writes and deletes, and checks it.
const usedScript = `
set -eu
mount -o loop $1 $2
trap 'umount $2 2>/dev/null || true' EXIT
find $2 -type f -exec cat {} + >/dev/null
dd if=/dev/urandom of=$2/new bs=1M count=6 status=none; rm -rf $2/clone $2/snap/dir; mkdir $2/made
btrfs -q subvolume snapshot $2 $2/again; sync -f $2
umount $2
btrfs check $1
`

// TestDeletedItemsLinux does the same to an image of Linux, with btrfs check as the second judge. A
// repaired image of each kind is mounted and written to.
func TestDeletedItemsLinux(t *testing.T) {
	need.Long(t)
	need.All(t, need.Root, "bash", "mkfs.btrfs", "btrfs", "setfattr")
	m, img, mnt := damaged.LinuxImage(t, deletedScript)
	each := 1
	used := func(d *damaged.Image) error {
		damaged.ToFile(t, d, img)
		out, err := exec.Command("bash", "-c", usedScript, "script", img, mnt).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	if need.Forced() {
		each = max(*deletedEach, 4)
	} else {
		used = nil
	}
	table := deletes(t, m, each, func(d *damaged.Image) bool {
		damaged.ToFile(t, d, img)
		out, err := exec.Command("btrfs", "check", img).CombinedOutput()
		return err == nil && !bytes.Contains(out, []byte("ERROR:"))
	}, used)
	show(t, table, true)
	judge(t, table)
}

// commit writes a repair, without an undo.
func commit(m *damaged.Image, r *Repair) error {
	return r.Commit(m.Task, func(int, int64, []byte) error { return nil }, func() error { return nil })
}
