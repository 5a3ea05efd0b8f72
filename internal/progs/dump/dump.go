// Package dump prints what is on a btrfs image, in the shape of btrfs inspect-internal, so that the
// two can be compared line by line. It reads through the format and blockdev packages only, writes
// nothing, and goes on past a bad block: a dump is for damaged images too.
package dump

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sort"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

var le = binary.LittleEndian

// Chunks prints the chunk map, one chunk a line.
func Chunks(t *sched.Task, w io.Writer, dev blockdev.Device, more ...blockdev.Device) error {
	im, err := image.Open(t, dev, more...)
	if err != nil {
		return err
	}
	for _, c := range im.Chunks {
		fmt.Fprintf(w, "logical %d length %d type %s", c.Start, c.Length, groupFlags(c.Type))
		for i, s := range c.Stripes {
			fmt.Fprintf(w, " stripe %d devid %d offset %d", i, s.Devid, s.Off)
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
	flags   uint64
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
	// Slack is what the device has beyond its size in the file system, in bytes.
	Slack uint64 `json:"slack,omitempty"`
	// Parts are the bytes of the device that are in chunks, for each row of Info.Usage.
	Parts []uint64 `json:"parts,omitempty"`
}

// ReadInfo reads the superblock, the chunk tree and the block groups of an image, whose other
// devices are more.
func ReadInfo(t *sched.Task, dev blockdev.Device, more ...blockdev.Device) (Info, error) {
	im, err := image.Open(t, dev, more...)
	if err != nil {
		return Info{}, err
	}
	s := &im.SB
	i := Info{Label: s.Label, FSID: s.FSID.String(), Generation: s.Generation, TotalBytes: s.TotalBytes, BytesUsed: s.BytesUsed,
		SectorSize: s.SectorSize, NodeSize: s.NodeSize, Csum: s.CsumType.String(),
		Features: append(format.IncompatNames(s.IncompatFlags), format.CompatRONames(s.CompatROFlags)...)}
	for _, c := range im.Chunks {
		i.Allocated += c.StripeBytes() * uint64(len(c.Stripes))
	}
	for _, it := range im.Items {
		d := DeviceInfo{Devid: it.Devid, UUID: it.UUID.String(), Size: it.TotalBytes, Allocated: it.BytesUsed}
		if at := im.Device(it.Devid); at != nil {
			d.Name = at.Name()
			d.Slack = max(uint64(at.Size()), it.TotalBytes) - it.TotalBytes
		}
		i.Devices = append(i.Devices, d)
	}
	byFlags, err := groups(im)
	if err != nil {
		return i, blockdev.Errorf(dev, "%w", err)
	}
	for _, c := range im.Chunks {
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
		return i.Usage[a].flags < i.Usage[b].flags // single, raid0, raid1, as Linux lists them
	})
	i.setParts(im)
	return i, nil
}

// setParts says of each device how much of it each usage has.
func (i *Info) setParts(im *image.Image) {
	for n := range i.Devices {
		d := &i.Devices[n]
		d.Parts = make([]uint64, len(i.Usage))
		for _, c := range im.Chunks {
			row := slices.IndexFunc(i.Usage, func(u Usage) bool { return u.flags == c.Type })
			for _, s := range c.Stripes {
				if s.Devid == d.Devid && row >= 0 {
					d.Parts[row] += c.StripeBytes()
				}
			}
		}
	}
}

// groups adds up the block groups by their flags. They are in the extent tree, or in a tree of
// their own.
func groups(im *image.Image) (map[uint64]*Usage, error) {
	roots, err := im.Roots()
	if err != nil {
		return nil, fmt.Errorf("root tree: %w", err)
	}
	tree := uint64(format.EXTENT_TREE_OBJECTID)
	if im.SB.CompatROFlags&format.CompatROBlockGroupTree != 0 {
		tree = format.BLOCK_GROUP_TREE_OBJECTID
	}
	byFlags := map[uint64]*Usage{}
	for _, root := range roots {
		if root.Key.Objectid != tree {
			continue
		}
		err = im.Each(root.Ref(), func(k format.Key, b []byte) {
			if k.Type != format.BLOCK_GROUP_ITEM_KEY {
				return
			}
			var g format.BlockGroupItem
			g.Decode(b)
			u := byFlags[g.Flags]
			if u == nil {
				u = &Usage{Type: typeName(g.Flags), Profile: profileName(g.Flags), flags: g.Flags}
				byFlags[g.Flags] = u
			}
			u.Total += k.Offset
			u.Used += g.Used
		})
		if err != nil {
			return nil, fmt.Errorf("block groups: %w", err)
		}
	}
	return byFlags, nil
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
