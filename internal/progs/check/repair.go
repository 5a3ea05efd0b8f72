package check

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Repair is a proposal: what would be changed on the devices, and what Check says of the result.
// The devices themselves are not written.
type Repair struct {
	Before, After Result
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

// roundsMax bounds the rounds of a repair: what is repaired shows what else is wrong.
const roundsMax = 6

// Propose repairs a copy of the image in memory, which holds what is changed: superblocks and
// copies of blocks that are bad from whole ones, counts in inodes, the extent tree with block
// groups and free space, sums of the superblock. What needs a decision is left: files that are
// lost, names, checksums.
//
// Model: btrfs-progs check --repair. Differences: the image is not written until Commit, and a
// repair that does not make it better never is.
func Propose(t *sched.Task, dev blockdev.Device, o Options) (*Repair, error) {
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
		res, c, err := judged(t, r.covers[0], over)
		if err != nil {
			return nil, err
		}
		if round == 0 {
			r.Before = res
		}
		r.After = res
		if res.Clean || !r.fix(c) {
			return r, nil
		}
	}
	res, err := Check(t, r.covers[0], over)
	r.After = res
	return r, err
}

// fix repairs what it can of one check's findings, and reports whether it has changed anything.
func (r *Repair) fix(c *checker) bool {
	done := len(r.Done)
	try := func(what string, err error) {
		switch line := what; {
		case err == nil:
			r.Done = append(r.Done, line)
		default:
			if line = what + ": " + err.Error(); !slices.Contains(r.Left, line) {
				r.Left = append(r.Left, line)
			}
		}
	}
	rules := map[string]bool{}
	for _, f := range c.findings {
		rules[f.Rule] = true
	}
	if rules["super.bad"] || rules["super.copy"] {
		what, err := c.fixSupers()
		try(what, err)
		return len(r.Done) > done
	}
	copied := map[string]bool{}
	for i := range c.findings {
		f := &c.findings[i]
		switch f.Rule {
		case "tree.csum", "tree.mirror":
			if !copied[f.Where] {
				copied[f.Where] = true
				what, err := c.fixCopy(f)
				try(what, err)
			}
		case "data.csum":
			if c.spared[f.Where] {
				what, err := c.fixData(f)
				try(what, err)
			}
		}
	}
	if len(r.Done) > done {
		return true
	}
	odd := map[[2]uint64]bool{} // inodes and directories with entries that do not agree
	for i := range c.findings {
		f := &c.findings[i]
		root, _ := number(f.Where, "root")
		dir, ok := number(f.Where, "dir")
		if !ok && f.Rule != "root.orphan" && f.Rule != "dev.extent" {
			continue
		}
		ino, _ := number(f.Where, "ino")
		odd[[2]uint64{root, dir}], odd[[2]uint64{root, ino}] = true, true
		switch f.Rule {
		case "dir.item", "dir.index", "dir.ref":
			what, err := c.fixEntry(f)
			try(what, err)
		case "root.orphan":
			try(fmt.Sprintf("orphan item of subvolume %d, which a mount will delete", root),
				c.insertItem(format.ROOT_TREE_OBJECTID, format.Key{Objectid: format.ORPHAN_OBJECTID, Type: format.ORPHAN_ITEM_KEY, Offset: root}, nil))
		}
	}
	if len(r.Done) > done {
		return true
	}
	for i := range c.findings {
		f := &c.findings[i]
		root, _ := number(f.Where, "root")
		ino, _ := number(f.Where, "ino")
		if odd[[2]uint64{root, ino}] {
			continue
		}
		if f.Rule == "quota.count" {
			what, err := c.fixQuota(f)
			try(what, err)
		}
		switch f.Rule {
		case "inode.nlink", "inode.nbytes", "dir.size":
			what, err := c.fixInode(f)
			try(what, err)
		}
	}
	if len(r.Done) > done {
		return true
	}
	for _, f := range c.findings {
		if c.ofExtents(&f) {
			what := "extent tree, block groups and free space made anew from what the other trees use"
			if slices.Contains(c.madeTrees(), format.CSUM_TREE_OBJECTID) {
				what += ", and checksums from the data"
			}
			try(what, c.rebuild())
			break
		}
	}
	if len(r.Done) > done {
		return true
	}
	if rules["dev.bytes_used"] || rules["super.dev_item"] {
		try("sizes of the devices", c.fixDevices())
	}
	return len(r.Done) > done
}

// ofExtents reports whether a finding is about what a rebuild makes.
func (c *checker) ofExtents(f *Finding) bool {
	switch name, _, _ := strings.Cut(f.Rule, "."); name {
	case "extent", "free_space":
		return true
	case "group":
		return true
	case "tree":
		id, _ := number(f.Where, "root")
		return slices.Contains(c.madeTrees(), id)
	}
	return f.Rule == "super.bytes_used"
}

// fixSupers writes the newest whole superblock of each device over those that are not whole or
// differ.
func (c *checker) fixSupers() (string, error) {
	written := 0
	for _, d := range c.devs {
		var best []byte
		var newest format.Super
		for i := range format.SuperMirrorMax {
			off := format.SuperMirror(i)
			p := make([]byte, format.SuperSize)
			if int64(off)+format.SuperSize > d.Size() || blockdev.Read(c.t, d, p, int64(off)) != nil || format.CheckSuperAt(p, d.Size(), off) != nil {
				continue
			}
			if s := copyOf(p); best == nil || s.Generation > newest.Generation {
				best, newest = p, s
			}
		}
		if best == nil {
			return "superblocks", blockdev.Errorf(d, "none is whole")
		}
		limit := min(d.Size(), int64(newest.DevItem.TotalBytes))
		for i := range format.SuperMirrorMax {
			off := format.SuperMirror(i)
			if int64(off)+format.SuperSize > limit {
				break
			}
			p := bytes.Clone(best)
			le.PutUint64(p[0x30:], off)
			sum := newest.CsumType.Sum(p[format.CsumField:])
			copy(p, sum[:])
			have := make([]byte, format.SuperSize)
			if blockdev.Read(c.t, d, have, int64(off)) == nil && format.CheckSuperAt(have, d.Size(), off) == nil && (copyOf(have).Generation != newest.Generation || sameSuper(have, p)) {
				continue
			}
			if err := blockdev.Write(c.t, d, p, int64(off)); err != nil {
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

// fixCopy writes the good copy of a tree block over the bad one that f is about.
func (c *checker) fixCopy(f *Finding) (string, error) {
	bytenr, ok := number(f.Where, "block")
	mirror, ok2 := number(f.Where, "mirror")
	what := fmt.Sprintf("copy %d of tree block %d", mirror, bytenr)
	ch := c.chunkAt(bytenr)
	if !ok || !ok2 || ch == nil {
		return what, errors.New("its place is not known")
	}
	if ch.parity() > 0 {
		return what, errors.New("its parity cannot be written")
	}
	places, _ := ch.places(bytenr)
	for i, p := range places {
		n := format.Node(make([]byte, c.sb.NodeSize))
		if uint64(i) == mirror || p.dev == nil || blockdev.Read(c.t, p.dev, n, int64(p.off)) != nil || !c.sb.CsumType.BlockMatch(n) || n.Bytenr() != bytenr {
			continue
		}
		if mirror >= uint64(len(places)) || places[mirror].dev == nil {
			break
		}
		return what + fmt.Sprintf(" written from copy %d", i), blockdev.Write(c.t, places[mirror].dev, n, int64(places[mirror].off))
	}
	return what, errors.New("no other copy is whole")
}

// fixData writes data whose checksum is right on another copy over the bad one. Each sector is
// compared: the next check says whether it is right.
func (c *checker) fixData(f *Finding) (string, error) {
	logical, _ := number(f.Where, "logical")
	length, _ := number(f.Where, "length")
	mirror, _ := number(f.Where, "mirror")
	what := fmt.Sprintf("copy %d of %d bytes of data at %d", mirror, length, logical)
	ch := c.chunkAt(logical)
	if ch == nil || ch.parity() > 0 {
		return what, errors.New("its parity cannot be written")
	}
	places, _ := ch.places(logical)
	for i, p := range places {
		if uint64(i) == mirror || p.dev == nil || slices.ContainsFunc(c.findings, func(g Finding) bool {
			at, _ := number(g.Where, "logical")
			n, _ := number(g.Where, "length")
			m, _ := number(g.Where, "mirror")
			return g.Rule == "data.csum" && m == uint64(i) && at < logical+length && logical < at+n
		}) {
			continue
		}
		b := make([]byte, length)
		if blockdev.Read(c.t, p.dev, b, int64(p.off)) != nil {
			continue
		}
		return what + fmt.Sprintf(" written from copy %d", i), blockdev.Write(c.t, places[mirror].dev, b, int64(places[mirror].off))
	}
	return what, errors.New("no other copy is whole")
}

// fixInode gives a count of an inode the value that the finding wants.
func (c *checker) fixInode(f *Finding) (string, error) {
	root, _ := number(f.Where, "root")
	ino, ok := number(f.Where, "ino")
	want, err := strconv.ParseUint(f.Want, 10, 64)
	_, field, _ := strings.Cut(f.Rule, ".")
	what := fmt.Sprintf("%s of inode %d of subvolume %d: %s, was %s", field, ino, root, f.Want, f.Have)
	if !ok || err != nil {
		return what, errors.New("its place is not known")
	}
	if f.Rule == "inode.nlink" && want == 0 {
		return what, errors.New("no name is left of it: rescue copy has its data in lost+found")
	}
	return what, c.editItem(root, format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}, func(b []byte) error {
		var i format.InodeItem
		i.Decode(b)
		switch f.Rule {
		case "inode.nlink":
			i.Nlink = uint32(want)
		case "inode.nbytes":
			i.Nbytes = want
		case "dir.size":
			i.Size = want
		}
		i.Encode(b)
		return nil
	})
}

// fixEntry adds the one of the three records of a directory entry that is missing: DIR_ITEM,
// DIR_INDEX or the reference in the inode.
func (c *checker) fixEntry(f *Finding) (string, error) {
	root, _ := number(f.Where, "root")
	dir, _ := number(f.Where, "dir")
	ino, ok := number(f.Where, "ino")
	_, quoted, _ := strings.Cut(f.Where, "name=")
	quoted, err := strconv.QuotedPrefix(quoted)
	name, _ := strconv.Unquote(quoted)
	what := fmt.Sprintf("entry %s of directory %d of subvolume %d", quoted, dir, root)
	if !ok || err != nil {
		return what, errors.New("its place is not known")
	}
	e := format.DirItem{Location: format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}, Transid: c.sb.Generation, Name: name}
	var index uint64
	var hasRef, hasInode, hasIndex, hasItem bool
	c.search(root, format.Key{Objectid: ino}, func(k format.Key, b []byte) bool {
		switch k.Type {
		case format.INODE_ITEM_KEY:
			var i format.InodeItem
			i.Decode(b)
			e.Type, hasInode = format.FtOf(i.Mode), true
		case format.INODE_REF_KEY:
			refs, _ := format.InodeRefs(b)
			for _, r := range refs {
				if r.Name == name && k.Offset == dir {
					index, hasRef = r.Index, true
				}
			}
		}
		return k.Type <= format.INODE_REF_KEY
	})
	c.search(root, format.Key{Objectid: dir, Type: format.DIR_ITEM_KEY}, func(k format.Key, b []byte) bool {
		if k.Type != format.DIR_ITEM_KEY && k.Type != format.DIR_INDEX_KEY {
			return false
		}
		items, _ := format.DirItems(b)
		for _, d := range items {
			if d.Name == name && d.Location == e.Location {
				if k.Type == format.DIR_ITEM_KEY {
					hasItem = true
				} else if hasIndex = true; !hasRef {
					index = k.Offset
				}
			}
		}
		return true
	})
	switch {
	case !hasInode:
		return what, errors.New("its inode is not there")
	case index < 2:
		return what, errors.New("its index is not known")
	case f.Rule == "dir.item" && !hasItem && hasRef:
		return what + ": DIR_ITEM", c.insertItem(root, format.Key{Objectid: dir, Type: format.DIR_ITEM_KEY, Offset: format.NameHash(name)}, encoded(e.Size(), &e))
	case f.Rule == "dir.index" && !hasIndex && hasRef:
		return what + ": DIR_INDEX", c.insertItem(root, format.Key{Objectid: dir, Type: format.DIR_INDEX_KEY, Offset: index}, encoded(e.Size(), &e))
	case f.Rule == "dir.ref" && !hasRef && hasIndex && hasItem:
		ref := format.InodeRef{Index: index, Name: name}
		return what + ": reference in the inode", c.insertItem(root, format.Key{Objectid: ino, Type: format.INODE_REF_KEY, Offset: dir}, encoded(ref.Size(), ref))
	}
	return what, errors.New("more than one of its records is wrong")
}

// fixQuota gives a qgroup the counts that the finding wants.
func (c *checker) fixQuota(f *Finding) (string, error) {
	var level, id, rfer, excl uint64
	what := fmt.Sprintf("%s: %s, was %s", f.Where, f.Want, f.Have)
	if _, err := fmt.Sscanf(f.Where, "qgroup=%d/%d", &level, &id); err != nil {
		return what, err
	}
	if _, err := fmt.Sscanf(f.Want, "rfer %d excl %d", &rfer, &excl); err != nil {
		return what, err
	}
	return what, c.editItem(format.QUOTA_TREE_OBJECTID, format.Key{Type: format.QGROUP_INFO_KEY, Offset: level<<qgroupLevelShift | id}, func(b []byte) error {
		if len(b) < 40 {
			return errors.New("an item of the wrong size")
		}
		for i, v := range []uint64{rfer, rfer, excl, excl} { // the second of each is as compressed
			le.PutUint64(b[8+8*i:], v)
		}
		return nil
	})
}

// fixDevices makes the device items and the superblocks say what the device extents add up to.
func (c *checker) fixDevices() error {
	for _, d := range c.devs {
		var item format.DevItem
		err := c.editItem(format.CHUNK_TREE_OBJECTID, format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: d.id()}, func(b []byte) error {
			item.Decode(b)
			item.BytesUsed = 0
			for _, x := range d.exts {
				item.BytesUsed += x.length
			}
			item.Encode(b)
			return nil
		})
		if err != nil {
			return err
		}
		if err := c.editSupers([]*device{d}, func(s *format.Super) { s.DevItem = item }); err != nil {
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
	type change struct {
		dev int
		off int64
	}
	var list, supers []change
	for i, c := range r.covers {
		for _, off := range c.Written(t) {
			x := change{i, off}
			if slices.Contains([]int64{format.SuperOffset, int64(format.SuperMirror(1)), int64(format.SuperMirror(2))}, off) {
				supers = append(supers, x)
			} else {
				list = append(list, x)
			}
		}
	}
	old := make([]byte, block)
	for _, x := range append(slices.Clone(list), supers...) {
		p := old[:min(block, r.devs[x.dev].Size()-x.off)]
		if err := blockdev.Read(t, r.devs[x.dev], p, x.off); err != nil {
			return err
		}
		if err := undo(x.dev, x.off, p); err != nil {
			return err
		}
	}
	if err := done(); err != nil {
		return err
	}
	for _, part := range [][]change{list, supers} {
		for _, x := range part {
			p := old[:min(block, r.devs[x.dev].Size()-x.off)]
			if err := blockdev.Read(t, r.covers[x.dev], p, x.off); err != nil {
				return err
			}
			if err := blockdev.Write(t, r.devs[x.dev], p, x.off); err != nil {
				return err
			}
		}
		for _, d := range r.devs {
			if err := blockdev.Flush(t, d); err != nil {
				return err
			}
		}
	}
	return nil
}
