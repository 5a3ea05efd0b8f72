package check

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
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
const roundsMax = 16

// Propose repairs a copy of the image in memory, which holds what is changed: superblocks and
// copies of blocks that are bad from whole ones, leaves that Linux refuses, names and counts, links
// of subvolumes, device extents, the extent tree with block groups and free space, checksums, sums
// of the superblock. What is lost stays lost, and what has two explanations is left.
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
		same := round > 0 && slices.Equal(res.Findings, r.After.Findings)
		r.After = res
		if res.Clean || same || !r.fix(c) {
			return r, nil
		}
	}
	res, err := Check(t, r.covers[0], over)
	r.After = res
	return r, err
}

// fix repairs what it can of one check's findings, and reports whether it has changed anything.
// What is wrong further down is judged anew once what it hangs on is right.
func (r *Repair) fix(c *checker) bool {
	done := len(r.Done)
	r.Left = nil
	c.keep()
	// try notes a change that was made, or takes it back.
	try := func(what string, err error) {
		if err == nil {
			c.keep()
			r.Done = append(r.Done, what)
			return
		}
		line := what + ": " + strings.Join(strings.Split(err.Error(), "\n"), "; ")
		if err := c.rollback(); err != nil {
			line += "; " + err.Error()
		}
		if !slices.Contains(r.Left, line) {
			r.Left = append(r.Left, line)
		}
	}
	rules := map[string]bool{}
	for _, f := range c.findings {
		rules[f.Rule] = true
	}
	rebuild := func() {
		what := "extent tree, block groups and free space made anew from what the other trees use"
		if slices.Contains(c.madeTrees(), format.CSUM_TREE_OBJECTID) {
			what += ", and checksums from the data"
		}
		try(what, c.rebuild())
	}
	for _, step := range []func(){
		func() {
			if rules["super.bad"] || rules["super.copy"] {
				try(c.fixSupers())
			}
		},
		func() { c.mendSupers(rules, try) },
		func() { c.fixCopies(try) },
		func() {
			c.mendHeaders(try)
			c.mendRefused(try)
			c.mendMeant(try)
			c.mendPointers(try)
		},
		func() {
			if rules["group.chunk"] && rules["dev.extent"] {
				c.mendChunks(try)
			}
			if rules["chunk.item"] || rules["chunk.dev_extent"] {
				c.mendStripes(try)
			}
		},
		func() {
			if rules["dev.extent"] || rules["chunk.dev_extent"] {
				c.mendDevExtents(try)
			}
			if c.mendRoots(try) {
				rebuild()
			}
		},
		func() { // the other steps want to know what is in use
			for _, f := range c.findings {
				if strings.HasPrefix(f.Rule, "tree.") && f.Rule != "tree.key_type" && c.ofExtents(&f) {
					rebuild()
					return
				}
			}
		},
		func() { c.mendKeys(try) },
		func() {
			if rules["quota.item"] {
				c.mendQuotaItems(try)
			}
			if rules["uuid.item"] {
				c.mendUUIDs(try)
			}
		},
		func() {
			for _, f := range c.faulty {
				m := &mender{c: c, f: f, try: try}
				if f.found("inode.missing") {
					m.mendInodes()
				}
			}
		},
		func() {
			for _, f := range c.faulty {
				m := &mender{c: c, f: f, try: try}
				if f.found("dir.item", "dir.index", "dir.ref", "dir.name", "dir.type", "dir.cycle") || m.twoNames() {
					m.mendNames()
				}
			}
		},
		func() {
			for _, f := range c.faulty {
				m := &mender{c: c, f: f, try: try}
				m.lost()
				m.holes()
				m.orphans()
				m.kinds()
				m.extents()
			}
			for i := range c.findings {
				switch f := &c.findings[i]; f.Rule {
				case "inode.nlink", "inode.nbytes", "dir.size", "inode.flags":
					if f.Rule != "inode.nlink" || f.Want != Number(0) {
						try(c.fixInode(f))
					}
				case "file.extent":
					if f.Flaw == NoChecksums {
						try(c.fixInode(f))
					}
				case "quota.count":
					try(c.fixQuota(f))
				}
			}
		},
		func() {
			if rules["extent.type"] {
				for _, id := range c.rootIDs {
					if format.IsFSTree(id) {
						m := &mender{c: c, f: &fileCheck{c: c, root: id}, try: try}
						m.strangers()
					}
				}
			}
		},
		func() {
			for _, f := range c.findings {
				if c.ofExtents(&f) {
					rebuild()
					return
				}
			}
		},
		func() {
			if rules["dev.bytes_used"] || rules["super.dev_item"] {
				try("sizes of the devices", c.fixDevices())
			}
		},
	} {
		if step(); len(r.Done) > done {
			return true
		}
	}
	return false
}

// nearlyWhole is a superblock of which only bytes_used is wrong, which the extents tell anew; nil
// if there is none.
func (c *checker) nearlyWhole(d *device) []byte {
	for i := range format.SuperMirrorMax {
		off := format.SuperMirror(i)
		p := make([]byte, format.SuperSize)
		if int64(off)+format.SuperSize > d.Size() || blockdev.Read(c.t, d, p, int64(off)) != nil || format.SuperMagic(p) == 0 {
			continue
		}
		s := copyOf(p)
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

// fixCopies writes whole copies of blocks and of data over bad ones.
func (c *checker) fixCopies(try func(what string, err error)) {
	copied := map[Place]bool{}
	for i := range c.findings {
		f := &c.findings[i]
		switch f.Rule {
		case "tree.csum", "tree.mirror":
			if !copied[f.Place] {
				copied[f.Place] = true
				try(c.fixCopy(f))
			}
		case "data.csum":
			if c.spared[f.Place] {
				try(c.fixData(f))
			}
		}
	}
}

// ofExtents reports whether a finding is about what a rebuild makes.
func (c *checker) ofExtents(f *Finding) bool {
	switch name, _, _ := strings.Cut(f.Rule, "."); name {
	case "extent", "free_space", "csum":
		return true
	case "group":
		return true
	case "tree":
		return slices.Contains(c.madeTrees(), f.Place.Num(AtTree))
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
			if best = c.nearlyWhole(d); best == nil {
				return "superblocks", blockdev.Errorf(d, "none is whole")
			}
			newest = copyOf(best)
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

// fixCopy writes the good copy of a tree block over the bad one that f is about.
func (c *checker) fixCopy(f *Finding) (string, error) {
	bytenr, mirror := f.Place.Num(AtBlock), f.Place.Num(AtMirror)
	what := fmt.Sprintf("copy %d of tree block %d", mirror, bytenr)
	ch := c.chunkAt(bytenr)
	if ch == nil {
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
		return what + fmt.Sprintf(" written from copy %d", i), c.write(places[mirror].dev, n, int64(places[mirror].off))
	}
	return what, errors.New("no other copy is whole")
}

// fixData writes data whose checksum is right on another copy over the bad one. Each sector is
// compared: the next check says whether it is right.
func (c *checker) fixData(f *Finding) (string, error) {
	logical, length, mirror := f.Place.Num(AtLogical), f.Place.Num(AtLength), f.Place.Num(AtMirror)
	what := fmt.Sprintf("copy %d of %d bytes of data at %d", mirror, length, logical)
	ch := c.chunkAt(logical)
	if ch == nil || ch.parity() > 0 {
		return what, errors.New("its parity cannot be written")
	}
	places, _ := ch.places(logical)
	for i, p := range places {
		if uint64(i) == mirror || p.dev == nil || slices.ContainsFunc(c.findings, func(g Finding) bool {
			at, n, m := g.Place.Num(AtLogical), g.Place.Num(AtLength), g.Place.Num(AtMirror)
			return g.Rule == "data.csum" && m == uint64(i) && at < logical+length && logical < at+n
		}) {
			continue
		}
		b := make([]byte, length)
		if blockdev.Read(c.t, p.dev, b, int64(p.off)) != nil {
			continue
		}
		return what + fmt.Sprintf(" written from copy %d", i), c.write(places[mirror].dev, b, int64(places[mirror].off))
	}
	return what, errors.New("no other copy is whole")
}

// fixInode gives a count of an inode the value that the finding wants. If all trees that share its
// leaf want the same, they go on sharing it.
func (c *checker) fixInode(f *Finding) (string, error) {
	root, ino := f.Place.Num(AtTree), f.Place.Num(AtIno)
	want, _ := f.Want.(Number)
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
		if !slices.ContainsFunc(c.findings, func(g Finding) bool {
			return g.Rule == f.Rule && g.Want == f.Want && g.Place == PlaceOf(id, ino)
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
func (c *checker) reachedBy(bytenr uint64) (trees []uint64) {
	if c.parents == nil {
		c.parents = map[uint64][]pointer{}
		for _, p := range c.ptrs {
			c.parents[p.child] = append(c.parents[p.child], p)
		}
	}
	seen := map[uint64]bool{}
	for list := []uint64{bytenr}; len(list) > 0; list = list[1:] {
		for _, p := range c.parents[list[0]] {
			if p.parent == 0 {
				trees = append(trees, p.owner)
			} else if !seen[p.parent] {
				seen[p.parent] = true
				list = append(list, p.parent)
			}
		}
	}
	return trees
}

// fixQuota gives a qgroup the counts that the finding wants.
func (c *checker) fixQuota(f *Finding) (string, error) {
	what := fmt.Sprintf("%v: %v, was %v", f.Place, f.Want, f.Have)
	want, ok := f.Want.(Counts)
	if !ok {
		return what, errors.New("its counts are not known")
	}
	return what, c.editItem(format.QUOTA_TREE_OBJECTID, format.Key{Type: format.QGROUP_INFO_KEY, Offset: f.Place.Num(AtQgroup)}, func(b []byte) error {
		if len(b) < 40 {
			return errors.New("an item of the wrong size")
		}
		for i, v := range []uint64{want.Rfer, want.Rfer, want.Excl, want.Excl} { // the second of each is as compressed
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
