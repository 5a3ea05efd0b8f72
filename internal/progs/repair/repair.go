// Package repair mends what a check has found in an image: what follows from the rest of it.
// Propose works on an overlay in memory, round after round. A round carries out the first stage of
// the table (stages) that changes something, and a new check judges the result. Commit writes the
// changes after an undo; its caller does so only if the image is better then (Better).
//
// A step goes by what the check has seen (check.Seen) and by the fields of its findings, never by
// their text. It changes trees item by item (edit.go), or makes those anew that follow from all the
// others (rebuild.go, remake.go).
//
// Invariants:
//   - nothing is written to a device before Commit;
//   - a change that fails half way is taken back whole (changes.try);
//   - a new block lies where nothing that any tree reaches does.
//
// Model: btrfs-progs check --repair.
package repair

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
)

// Repair is a proposal: what would be changed on the devices, and what Check says of the result.
// The devices themselves are not written.
type Repair struct {
	Before, After check.Result
	// Done says in one line each what was repaired, Left why something could not be.
	Done, Left []string
	covers     []*dm.Overlay
	devs       []blockdev.Device
}

// Better reports whether the result is clean, or has fewer findings and none of a rule that was not
// broken before.
func (r *Repair) Better() bool {
	if r.After.Clean {
		return !r.Before.Clean
	}
	before := map[string]bool{}
	for _, f := range r.Before.Findings {
		before[f.Rule] = true
	}
	for _, f := range r.After.Findings {
		if !before[f.Rule] {
			return false
		}
	}
	return len(r.After.Findings) < len(r.Before.Findings)
}

var le = binary.LittleEndian

// roundsMax bounds the rounds of a repair: what is repaired shows what else is wrong.
const roundsMax = 16

// Propose repairs a copy of the image in memory, which holds what is changed: superblocks and
// copies of blocks that are bad from whole ones, leaves that Linux refuses, names and counts, links
// of subvolumes, device extents, the extent tree with block groups and free space, checksums, sums
// of the superblock. What is lost stays lost, and what has two explanations is left.
//
// Model: btrfs-progs check --repair. Differences: the image is not written until Commit, and a
// repair that does not make it better never is.
func Propose(t *sched.Task, dev blockdev.Device, o check.Options) (*Repair, error) {
	r := &Repair{devs: append([]blockdev.Device{dev}, o.Devices...)}
	for _, d := range r.devs {
		r.covers = append(r.covers, dm.NewOverlay(d, nil))
	}
	over := o
	over.Devices = nil
	for _, c := range r.covers[1:] {
		over.Devices = append(over.Devices, c)
	}
	for round := range roundsMax {
		res, seen, err := check.Examine(t, r.covers[0], over)
		if err != nil {
			return nil, err
		}
		if round == 0 {
			r.Before = res
		}
		same := round > 0 && slices.Equal(res.Findings, r.After.Findings)
		r.After = res
		if res.Clean || same {
			return r, nil
		}
		c := &changes{Seen: seen}
		changed := c.mend()
		r.Done, r.Left = append(r.Done, c.done...), c.left
		if !changed {
			return r, nil
		}
	}
	res, err := check.Check(t, r.covers[0], over)
	r.After = res
	return r, err
}

// changes are those of one round of a repair: what a check has seen, and what was made of it since.
type changes struct {
	*check.Seen
	done, left []string

	parents map[uint64][]check.Pointer // the pointers to a block
	nrefs   map[uint64]int             // their number, which changes
	inUse   []check.Span               // what is not free
	saved   saved                      // takes a change back that fails half way
}

// mend carries out the first stage that changes something, and reports whether there is one.
func (c *changes) mend() bool {
	c.keep()
	for _, st := range stages {
		if c.carryOut(st); len(c.done) > 0 {
			return true
		}
	}
	return false
}

// carryOut does the steps of a stage, of which a rule is broken: those for the files of a subvolume
// together, subvolume by subvolume.
func (c *changes) carryOut(st []step) {
	for _, f := range c.Faulty {
		for _, s := range st {
			if s.files != nil && c.wants(s) {
				s.files(&mender{c: c, f: f})
			}
		}
	}
	for _, s := range st {
		if s.mend != nil && c.wants(s) {
			s.mend(c)
		}
	}
}

// wants reports whether a step has something to do.
func (c *changes) wants(s step) bool {
	return slices.ContainsFunc(s.rules, func(rule string) bool { return c.Broken[rule] }) && (s.needs == nil || s.needs(c))
}

// found reports whether a rule of these is broken.
func (c *changes) found(rules ...string) bool {
	return slices.ContainsFunc(rules, func(rule string) bool { return c.Broken[rule] })
}

// try notes a change that was made, or takes it back.
func (c *changes) try(what string, err error) {
	if err == nil {
		c.keep()
		c.done = append(c.done, what)
		return
	}
	line := what + ": " + strings.Join(strings.Split(err.Error(), "\n"), "; ")
	if err := c.rollback(); err != nil {
		line += "; " + err.Error()
	}
	if !slices.Contains(c.left, line) {
		c.left = append(c.left, line)
	}
}

// remake makes the trees anew that a rebuild makes.
func (c *changes) remake() {
	what := "extent tree, block groups and free space made anew from what the other trees use"
	if slices.Contains(c.madeTrees(), format.CSUM_TREE_OBJECTID) {
		what += ", and checksums from the data"
	}
	c.try(what, c.rebuild())
}

// badTrees reports whether a block is bad of a tree that a rebuild makes.
func (c *changes) badTrees() bool {
	return slices.ContainsFunc(c.Findings, func(f check.Finding) bool {
		return inRoom(f.Rule, "tree") && f.Rule != "tree.key_type" && c.ofExtents(&f)
	})
}

// inRoom reports whether a rule is one of those with the prefix.
func inRoom(rule, room string) bool {
	name, _, _ := strings.Cut(rule, ".")
	return name == room
}

// fixCounts gives inodes the counts and flags that the findings want.
func (c *changes) fixCounts() {
	for i := range c.Findings {
		switch f := &c.Findings[i]; f.Rule {
		case "inode.nlink", "inode.nbytes", "dir.size", "inode.flags":
			if f.Rule != "inode.nlink" || f.Want != check.Number(0) {
				c.try(c.fixInode(f))
			}
		case "file.extent":
			if f.Flaw == check.NoChecksums {
				c.try(c.fixInode(f))
			}
		}
	}
}

// fixQuotas gives qgroups the counts that the findings want.
func (c *changes) fixQuotas() {
	for i := range c.Findings {
		if f := &c.Findings[i]; f.Rule == "quota.count" {
			c.try(c.fixQuota(f))
		}
	}
}

// strangers drops the file extents that point at tree blocks, of every subvolume.
func (c *changes) strangers() {
	for _, id := range c.RootIDs {
		if format.IsFSTree(id) {
			m := &mender{c: c, f: &check.Files{Root: id}}
			m.strangers()
		}
	}
}

// nearlyWhole is a superblock of which only bytes_used is wrong, which the extents tell anew; nil
// if there is none.
func (c *changes) nearlyWhole(d *check.Device) []byte {
	for i := range format.SuperMirrorMax {
		off := format.SuperMirror(i)
		p := make([]byte, format.SuperSize)
		if int64(off)+format.SuperSize > d.Size() || blockdev.Read(c.Task, d, p, int64(off)) != nil || format.SuperMagic(p) == 0 {
			continue
		}
		s := format.DecodeSuper(p)
		if !s.CsumType.Known() || !s.CsumType.BlockMatch(p) {
			continue
		}
		if least := 6 * uint64(s.NodeSize); s.BytesUsed < least || s.BytesUsed > s.TotalBytes {
			s.BytesUsed = least
		}
		s.Encode(p)
		if format.CheckSuperAt(p, d.Size(), off) == nil {
			return p
		}
	}
	return nil
}

// ofExtents reports whether a finding is about what a rebuild makes.
func (c *changes) ofExtents(f *check.Finding) bool {
	if inRoom(f.Rule, "tree") {
		return slices.Contains(c.madeTrees(), f.Place.Num(check.AtTree))
	}
	return slices.ContainsFunc([]string{"extent", "free_space", "csum", "group"}, func(room string) bool { return inRoom(f.Rule, room) }) || f.Rule == "super.bytes_used"
}

// badExtents reports whether something is broken that a rebuild makes.
func (c *changes) badExtents() bool {
	return slices.ContainsFunc(c.Findings, func(f check.Finding) bool { return c.ofExtents(&f) })
}

// fixSupers writes the newest whole superblock of each device over those that are not whole or
// differ.
func (c *changes) fixSupers() (string, error) {
	written := 0
	for _, d := range c.Devs {
		var best []byte
		var newest format.Super
		for i := range format.SuperMirrorMax {
			off := format.SuperMirror(i)
			p := make([]byte, format.SuperSize)
			if int64(off)+format.SuperSize > d.Size() || blockdev.Read(c.Task, d, p, int64(off)) != nil || format.CheckSuperAt(p, d.Size(), off) != nil {
				continue
			}
			if s := format.DecodeSuper(p); best == nil || s.Generation > newest.Generation {
				best, newest = p, s
			}
		}
		if best == nil {
			if best = c.nearlyWhole(d); best == nil {
				return "superblocks", blockdev.Errorf(d, "none is whole")
			}
			newest = format.DecodeSuper(best)
		}
		limit := min(d.Size(), int64(newest.DevItem.TotalBytes))
		for i := range format.SuperMirrorMax {
			off := format.SuperMirror(i)
			if int64(off)+format.SuperSize > limit {
				break
			}
			p := superAt(best, newest.CsumType, off)
			have := make([]byte, format.SuperSize)
			if blockdev.Read(c.Task, d, have, int64(off)) == nil && format.CheckSuperAt(have, d.Size(), off) == nil && (format.DecodeSuper(have).Generation != newest.Generation || check.SameSuper(have, p)) {
				continue
			}
			if err := c.write(d, p, int64(off)); err != nil {
				return "superblocks", err
			}
			written++
		}
	}
	if written == 0 {
		return "superblocks", errors.New("none is to be written")
	}
	return fmt.Sprintf("superblocks written from whole ones: %d", written), nil
}

// superAt is a superblock as its copy at off has it.
func superAt(super []byte, csum format.CsumType, off uint64) []byte {
	p := bytes.Clone(super)
	le.PutUint64(p[0x30:], off)
	sum := csum.Sum(p[format.CsumField:])
	copy(p, sum[:])
	return p
}

// fixInode gives a count of an inode the value that the finding wants. If all trees that share its
// leaf want the same, they go on sharing it.
func (c *changes) fixInode(f *check.Finding) (string, error) {
	root, ino := f.Place.Num(check.AtTree), f.Place.Num(check.AtIno)
	want, _ := f.Want.(check.Number)
	_, field, _ := strings.Cut(f.Rule, ".")
	what := fmt.Sprintf("%s of inode %d of subvolume %d: %s, was %s", field, ino, root, f.Want, f.Have)
	if f.Rule == "file.extent" {
		what = fmt.Sprintf("inode %d of subvolume %d: with checksums, for it has compressed data", ino, root)
	}
	change := func(i *format.InodeItem) {
		switch f.Rule {
		case "inode.nlink":
			i.Nlink = uint32(want)
		case "inode.nbytes":
			i.Nbytes = uint64(want)
		case "dir.size":
			i.Size = uint64(want)
		case "inode.flags":
			i.Flags &^= format.InodeImmutable | format.InodeAppend
		case "file.extent":
			i.Flags &^= format.InodeNoDataSum | format.InodeNoDataCow
		}
	}
	k := format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}
	n, err := c.leafFor(root, k)
	if err != nil {
		return what, err
	}
	for _, id := range c.reachedBy(n.Bytenr()) {
		if !slices.ContainsFunc(c.Findings, func(g check.Finding) bool {
			return g.Rule == f.Rule && g.Want == f.Want && g.Place == check.PlaceOf(id, ino)
		}) {
			return what, c.changeInode(root, ino, change)
		}
	}
	return what, c.editItem(root, k, func(b []byte) error {
		var i format.InodeItem
		i.Decode(b)
		change(&i)
		i.Encode(b)
		return nil
	})
}

// reachedBy lists the trees that come to a block, by the pointers of the last walk.
func (c *changes) reachedBy(bytenr uint64) (trees []uint64) {
	if c.parents == nil {
		c.parents = map[uint64][]check.Pointer{}
		for _, p := range c.Pointers {
			c.parents[p.Child] = append(c.parents[p.Child], p)
		}
	}
	seen := map[uint64]bool{}
	for list := []uint64{bytenr}; len(list) > 0; list = list[1:] {
		for _, p := range c.parents[list[0]] {
			if p.Parent == 0 {
				trees = append(trees, p.Owner)
			} else if !seen[p.Parent] {
				seen[p.Parent] = true
				list = append(list, p.Parent)
			}
		}
	}
	return trees
}

// fixQuota gives a qgroup the counts that the finding wants.
func (c *changes) fixQuota(f *check.Finding) (string, error) {
	what := fmt.Sprintf("%v: %v, was %v", f.Place, f.Want, f.Have)
	want, ok := f.Want.(check.Counts)
	if !ok {
		return what, errors.New("its counts are not known")
	}
	return what, c.editItem(format.QUOTA_TREE_OBJECTID, format.Key{Type: format.QGROUP_INFO_KEY, Offset: f.Place.Num(check.AtQgroup)}, func(b []byte) error {
		if len(b) < 40 {
			return errors.New("an item of the wrong size")
		}
		// The second of each is as compressed.
		for i, v := range []uint64{want.Rfer, want.Rfer, want.Excl, want.Excl} {
			le.PutUint64(b[8+8*i:], v)
		}
		return nil
	})
}

// fixDevices makes the device items and the superblocks say what the device extents add up to.
func (c *changes) fixDevices() error {
	for _, d := range c.Devs {
		var item format.DevItem
		err := c.editItem(format.CHUNK_TREE_OBJECTID, format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: d.ID()}, func(b []byte) error {
			item.Decode(b)
			item.BytesUsed = 0
			for _, x := range d.Extents {
				item.BytesUsed += x.Length
			}
			item.Encode(b)
			return nil
		})
		if err != nil {
			return err
		}
		if err := c.editSupers([]*check.Device{d}, func(s *format.Super) { s.DevItem = item }); err != nil {
			return err
		}
	}
	return nil
}

// Commit writes the changes to the devices. Undo is called before with what they have now, for each
// block of a device that is changed, and must keep that durably before it returns from done.
// Superblocks are written last.
func (r *Repair) Commit(t *sched.Task, undo func(dev int, off int64, old []byte) error, done func() error) error {
	const block = 4096
	covers := make([]blockdev.Device, len(r.covers))
	var blocks, supers []blockdev.Range
	for i, c := range r.covers {
		covers[i] = c
		for _, off := range c.Written(t) {
			x := blockdev.Range{Dev: i, Off: off, Len: int(min(block, c.Size()-off))}
			if slices.Contains([]int64{format.SuperOffset, int64(format.SuperMirror(1)), int64(format.SuperMirror(2))}, off) {
				supers = append(supers, x)
			} else {
				blocks = append(blocks, x)
			}
		}
	}
	return blockdev.Replace(t, covers, r.devs, [][]blockdev.Range{blocks, supers}, undo, done)
}
