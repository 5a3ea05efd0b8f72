// Package dump prints what is on a btrfs image, in the shape of btrfs inspect-internal, so that the
// two can be compared line by line. It reads through the format and blockdev packages only, writes
// nothing, and goes on past a bad block: a dump is for damaged images too.
package dump

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

var le = binary.LittleEndian

// reader finds blocks by logical address.
type reader struct {
	t      *sched.Task
	dev    blockdev.Device            // whose superblock counts
	devs   map[uint64]blockdev.Device // by number, dev too
	raw    []byte                     // the superblock
	sb     format.Super
	chunks []mapped // ascending
	items  []format.DevItem
}

type mapped struct {
	logical uint64
	format.Chunk
}

// open reads the superblock and the chunk tree. A device of the file system that more does not have
// is done without.
func open(t *sched.Task, dev blockdev.Device, more []blockdev.Device) (*reader, error) {
	r := &reader{t: t, dev: dev, devs: map[uint64]blockdev.Device{}}
	if err := r.super(); err != nil {
		return nil, err
	}
	r.devs[r.sb.DevItem.Devid] = dev
	for _, d := range more {
		o := &reader{t: t, dev: d}
		if err := o.super(); err != nil {
			return nil, err
		}
		if o.sb.FSID != r.sb.FSID {
			return nil, blockdev.Errorf(d, "device of another file system, have fsid %v want %v, that of %s", o.sb.FSID, r.sb.FSID, dev.Name())
		}
		if old := r.devs[o.sb.DevItem.Devid]; old != nil {
			return nil, blockdev.Errorf(d, "is device %d of the file system, as %s is", o.sb.DevItem.Devid, old.Name())
		}
		r.devs[o.sb.DevItem.Devid] = d
	}
	// An unsupported feature need not keep anybody from looking.
	var unsupported *format.UnsupportedError
	if err := format.CheckSuper(r.raw, dev.Size()); err != nil && !errors.As(err, &unsupported) {
		return nil, blockdev.Errorf(dev, "%w", err)
	}
	if n := r.sb.NodeSize; n < format.SectorSize || n > 64<<10 || n&(n-1) != 0 {
		return nil, blockdev.Errorf(dev, "bad nodesize, have %d", n)
	}
	for a := r.sb.SysChunkArray; len(a) >= format.KeySize+format.ChunkSize(1); {
		k := format.DecodeKey(a)
		a = a[format.KeySize:]
		n := format.ChunkSize(format.ChunkStripes(a))
		if n > len(a) || format.ChunkStripes(a) == 0 {
			return nil, blockdev.Errorf(dev, "sys_chunk_array is cut short")
		}
		r.add(k.Offset, a[:n])
		a = a[n:]
	}
	err := r.leaves(format.CHUNK_TREE_OBJECTID, r.sb.ChunkRoot, int(r.sb.ChunkRootLevel), func(n format.Node) {
		for i := range n.Nritems() {
			switch k := n.Key(i); k.Type {
			case format.CHUNK_ITEM_KEY:
				r.add(k.Offset, n.Item(i))
			case format.DEV_ITEM_KEY:
				var d format.DevItem
				d.Decode(n.Item(i))
				r.items = append(r.items, d)
			}
		}
	})
	if err != nil {
		return nil, blockdev.Errorf(dev, "chunk tree: %w", err)
	}
	return r, nil
}

func (r *reader) super() error {
	size := r.dev.Size()
	if size < format.SuperOffset+format.SuperSize {
		return blockdev.Errorf(r.dev, "no superblock, the device has %d bytes", size)
	}
	r.raw = make([]byte, format.SuperSize)
	if err := blockdev.Read(r.t, r.dev, r.raw, format.SuperOffset); err != nil {
		return blockdev.Errorf(r.dev, "read of the superblock at %d: %w", format.SuperOffset, err)
	}
	r.sb.Decode(r.raw)
	return nil
}

func (r *reader) add(logical uint64, b []byte) {
	m := mapped{logical: logical}
	m.Decode(b)
	i := sort.Search(len(r.chunks), func(i int) bool { return r.chunks[i].logical >= logical })
	if i < len(r.chunks) && r.chunks[i].logical == logical {
		r.chunks[i] = m
		return
	}
	r.chunks = append(r.chunks, mapped{})
	copy(r.chunks[i+1:], r.chunks[i:])
	r.chunks[i] = m
}

// block reads a tree block from the first mirror that is good, and checks it.
func (r *reader) block(root, bytenr uint64, level int) (format.Node, error) {
	size := uint64(r.sb.NodeSize)
	i := sort.Search(len(r.chunks), func(i int) bool { return r.chunks[i].logical > bytenr }) - 1
	if i < 0 || bytenr+size < size || bytenr+size > r.chunks[i].logical+r.chunks[i].Length {
		return nil, fmt.Errorf("root=%d block=%d is in no chunk", int64(root), bytenr)
	}
	c := r.chunks[i]
	p := format.ProfileOf(c.Type)
	if p == nil || p.StripesWanted(len(c.Stripes)) != "" {
		return nil, fmt.Errorf("root=%d block=%d is in a chunk of type 0x%x with %d stripes", int64(root), bytenr, c.Type, len(c.Stripes))
	}
	at := p.Locate(len(c.Stripes), c.Length, bytenr-c.logical)
	var last error
	for m, s := range c.Stripes[at.First : at.First+at.Copies] {
		dev := r.devs[s.Devid]
		if dev == nil {
			continue
		}
		n := make(format.Node, size)
		if err := blockdev.Read(r.t, dev, n, int64(s.Offset+at.Off)); err != nil {
			last = fmt.Errorf("root=%d block=%d mirror=%d: %w", int64(root), bytenr, m, err)
			continue
		}
		if csum := r.sb.CsumType; !csum.BlockMatch(n) {
			have, want := csum.BlockText(n)
			last = fmt.Errorf("root=%d block=%d mirror=%d, bad csum, have %s want %s", int64(root), bytenr, m, have, want)
			continue
		}
		if n.Bytenr() != bytenr {
			last = fmt.Errorf("root=%d block=%d mirror=%d, bad bytenr, have %d", int64(root), bytenr, m, n.Bytenr())
			continue
		}
		ctx := format.CheckContext{Root: root, SectorSize: r.sb.SectorSize, NodeSize: r.sb.NodeSize, Level: level, Csum: r.sb.CsumType}
		check := format.CheckNode
		if level == 0 {
			check = format.CheckLeaf
		}
		if last = check(n, ctx); last == nil {
			return n, nil
		}
	}
	if last == nil {
		last = fmt.Errorf("root=%d block=%d has no copy on the devices at hand", int64(root), bytenr)
	}
	return nil, last
}

// nodes visits the blocks of a tree, parents first; bad gets what cannot be read. Levels fall by
// one and keys ascend, so a damaged tree ends too.
func (r *reader) nodes(root, bytenr uint64, level int, visit func(n format.Node), bad func(error)) {
	seen := map[uint64]bool{}
	var walk func(bytenr uint64, level int)
	walk = func(bytenr uint64, level int) {
		if seen[bytenr] {
			bad(fmt.Errorf("root=%d block=%d is reached a second time", int64(root), bytenr))
			return
		}
		seen[bytenr] = true
		n, err := r.block(root, bytenr, level)
		if err != nil {
			bad(err)
			return
		}
		visit(n)
		for i := 0; level > 0 && i < n.Nritems(); i++ {
			walk(n.Blockptr(i), level-1)
		}
	}
	if level >= format.MaxLevel {
		bad(fmt.Errorf("root=%d has level %d", int64(root), level))
		return
	}
	walk(bytenr, level)
}

// leaves visits the leaves of a tree; the error is the first that was met.
func (r *reader) leaves(root, bytenr uint64, level int, visit func(n format.Node)) error {
	var first error
	r.nodes(root, bytenr, level, func(n format.Node) {
		if n.Level() == 0 {
			visit(n)
		}
	}, func(err error) {
		if first == nil {
			first = err
		}
	})
	return first
}

// roots reads the root tree's items of trees, in key order.
func (r *reader) roots() ([]treeRoot, error) {
	var l []treeRoot
	err := r.leaves(format.ROOT_TREE_OBJECTID, r.sb.Root, int(r.sb.RootLevel), func(n format.Node) {
		for i := range n.Nritems() {
			if k := n.Key(i); k.Type == format.ROOT_ITEM_KEY {
				t := treeRoot{key: k}
				t.item.Decode(n.Item(i))
				l = append(l, t)
			}
		}
	})
	return l, err
}

type treeRoot struct {
	key  format.Key
	item format.RootItem
}

// Chunks prints the chunk map, one chunk a line.
func Chunks(t *sched.Task, w io.Writer, dev blockdev.Device, more ...blockdev.Device) error {
	r, err := open(t, dev, more)
	if err != nil {
		return err
	}
	for _, c := range r.chunks {
		fmt.Fprintf(w, "logical %d length %d type %s", c.logical, c.Length, groupFlags(c.Type))
		for i, s := range c.Stripes {
			fmt.Fprintf(w, " stripe %d devid %d offset %d", i, s.Devid, s.Offset)
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	return nil
}

// Usage is the space of one block group type.
type Usage struct {
	Type    string `json:"type"`    // "data", "metadata", "system"
	Profile string `json:"profile"` // "single", "dup", "raid1"
	Total   uint64 `json:"total"`   // logical bytes
	Used    uint64 `json:"used"`
	Raw     uint64 `json:"raw"` // device bytes of Total
}

// Info is the summary of an image that `btrlab info` and `df` show.
type Info struct {
	Label      string   `json:"label"`
	FSID       string   `json:"uuid"`
	Generation uint64   `json:"generation"`
	TotalBytes uint64   `json:"total_bytes"`
	BytesUsed  uint64   `json:"bytes_used"`
	Allocated  uint64   `json:"allocated"` // device bytes in chunks
	SectorSize uint32   `json:"sectorsize"`
	NodeSize   uint32   `json:"nodesize"`
	Csum       string   `json:"csum_type"`
	Features   []string `json:"features"`
	Usage      []Usage  `json:"usage"`

	Devices []DeviceInfo `json:"devices"` // by number
}

// DeviceInfo is a device of an image.
type DeviceInfo struct {
	Devid     uint64 `json:"devid"`
	UUID      string `json:"uuid"`
	Name      string `json:"name,omitempty"` // none: it is missing
	Size      uint64 `json:"size"`
	Allocated uint64 `json:"allocated"` // bytes in chunks
}

// ReadInfo reads the superblock, the chunk tree and the block groups of an image, whose other
// devices are more.
func ReadInfo(t *sched.Task, dev blockdev.Device, more ...blockdev.Device) (Info, error) {
	r, err := open(t, dev, more)
	if err != nil {
		return Info{}, err
	}
	s := &r.sb
	i := Info{Label: s.Label, FSID: s.FSID.String(), Generation: s.Generation, TotalBytes: s.TotalBytes, BytesUsed: s.BytesUsed,
		SectorSize: s.SectorSize, NodeSize: s.NodeSize, Csum: s.CsumType.String(),
		Features: append(format.IncompatNames(s.IncompatFlags), format.CompatRONames(s.CompatROFlags)...)}
	for _, c := range r.chunks {
		i.Allocated += c.StripeBytes() * uint64(len(c.Stripes))
	}
	for _, it := range r.items {
		d := DeviceInfo{Devid: it.Devid, UUID: it.UUID.String(), Size: it.TotalBytes, Allocated: it.BytesUsed}
		if at := r.devs[it.Devid]; at != nil {
			d.Name = at.Name()
		}
		i.Devices = append(i.Devices, d)
	}
	roots, err := r.roots()
	if err != nil {
		return i, blockdev.Errorf(dev, "root tree: %w", err)
	}
	// Block groups are in the extent tree, or in a tree of their own.
	tree := uint64(format.EXTENT_TREE_OBJECTID)
	if s.CompatROFlags&format.CompatROBlockGroupTree != 0 {
		tree = format.BLOCK_GROUP_TREE_OBJECTID
	}
	byFlags := map[uint64]*Usage{}
	for _, root := range roots {
		if root.key.Objectid != tree {
			continue
		}
		err = r.leaves(tree, root.item.Bytenr, int(root.item.Level), func(n format.Node) {
			for j := range n.Nritems() {
				k := n.Key(j)
				if k.Type != format.BLOCK_GROUP_ITEM_KEY {
					continue
				}
				var g format.BlockGroupItem
				g.Decode(n.Item(j))
				u := byFlags[g.Flags]
				if u == nil {
					u = &Usage{Type: typeName(g.Flags), Profile: profileName(g.Flags)}
					byFlags[g.Flags] = u
				}
				u.Total += k.Offset
				u.Used += g.Used
			}
		})
		if err != nil {
			return i, blockdev.Errorf(dev, "block groups: %w", err)
		}
	}
	for _, c := range r.chunks {
		if u := byFlags[c.Type]; u != nil {
			u.Raw += c.StripeBytes() * uint64(len(c.Stripes))
		}
	}
	for _, u := range byFlags {
		i.Usage = append(i.Usage, *u)
	}
	sort.Slice(i.Usage, func(a, b int) bool {
		if i.Usage[a].Type != i.Usage[b].Type {
			return i.Usage[a].Type < i.Usage[b].Type // data, metadata, system
		}
		return i.Usage[a].Profile < i.Usage[b].Profile
	})
	return i, nil
}

func typeName(flags uint64) string {
	switch flags & format.BlockGroupTypeMask {
	case format.BlockGroupData:
		return "data"
	case format.BlockGroupMetadata:
		return "metadata"
	case format.BlockGroupSystem:
		return "system"
	case format.BlockGroupData | format.BlockGroupMetadata:
		return "mixed"
	}
	return fmt.Sprintf("0x%x", flags&format.BlockGroupTypeMask)
}

func profileName(flags uint64) string {
	if p := format.ProfileOf(flags); p != nil {
		return p.Name
	}
	return fmt.Sprintf("0x%x", flags&format.BlockGroupProfileMask)
}

// PrintInfo writes i as text.
func PrintInfo(w io.Writer, i Info) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-13s %s\n", name, fmt.Sprintf(format, args...))
	}
	label := i.Label
	if label == "" {
		label = "(none)"
	}
	line("label", "%s", label)
	line("uuid", "%s", i.FSID)
	line("generation", "%d", i.Generation)
	line("size", "%s", human(i.TotalBytes))
	line("used", "%s", human(i.BytesUsed))
	line("allocated", "%s of the device%s", human(i.Allocated), plural(len(i.Devices)))
	for _, d := range i.Devices {
		if len(i.Devices) > 1 {
			line(fmt.Sprintf("device %d", d.Devid), "%s, %s", human(d.Size), cmp.Or(d.Name, "missing"))
		}
	}
	line("sector size", "%d", i.SectorSize)
	line("node size", "%d", i.NodeSize)
	line("checksum", "%s", i.Csum)
	for n, f := range i.Features {
		if n == 0 {
			line("features", "%s", f)
		} else {
			line("", "%s", f)
		}
	}
	for _, u := range i.Usage {
		line(u.Type, "%-6s used %s of %s", u.Profile, human(u.Used), human(u.Total))
	}
}

func plural(n int) string {
	if n > 1 {
		return "s"
	}
	return ""
}

func human(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v /= 1024
		u++
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.2f %s (%d bytes)", v, units[u], n)
}
