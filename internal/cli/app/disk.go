package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/guest"
	"btrlab/internal/blockdev/part"
	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
)

// PartitionFlags gives --partition and --offset to the verbs that open an existing image. A verb
// whose --offset is one in a file has --image-offset.
func (a *Run) PartitionFlags(root *cobra.Command) {
	const offset, long = "offset", "image-offset"
	for _, c := range root.Commands() {
		if c.GroupID != "files" && (c.GroupID != "image" || c.Name() == "mkfs") {
			continue
		}
		f := c.PersistentFlags()
		f.IntVar(&a.Partition, "partition", 0, "the image is that of a disk: open this partition, as Linux counts (default: the only btrfs there)")
		f.Var(&a.Offset, long, "the image is that of a disk: open the btrfs that begins at this byte")
		if c.Flags().Lookup(offset) == nil {
			f.Var(&a.Offset, offset, f.Lookup(long).Usage)
			f.Lookup(long).Hidden = true
		}
	}
}

// offsetUnit is what a loop device wants an offset to be a multiple of, in bytes.
const offsetUnit = 512

// Ranged reports whether --partition or --offset names a range of the image.
func (o *Opening) Ranged() bool { return o.Partition != 0 || o.Offset.Given }

// rangeOf is the range of dev that --partition or --offset names, for a file system of want bytes;
// of all bytes that are there for one if want is 0.
func (a *Run) rangeOf(dev blockdev.Device, table *part.Table, want int64) (blockdev.Device, error) {
	var p part.Partition
	var err error
	switch off := a.Offset.N; {
	case a.Partition != 0 && a.Offset.Given:
		return nil, errors.New("--partition and --offset, want one of them")
	case a.Offset.Given && off%offsetUnit != 0:
		return nil, fmt.Errorf("offset %d, want a multiple of %d", off, offsetUnit)
	case a.Offset.Given:
		p, err = table.Room(off, want, dev.Size())
	case table == nil:
		return nil, errors.New("has no partition table")
	default:
		var ok bool
		if p, ok = table.Find(a.Partition); !ok {
			return nil, fmt.Errorf("its %s has no partition %d, there are %s", table.Kind, a.Partition, numbers(table.Disk))
		}
		if want > p.Size {
			err = fmt.Errorf("partition %d has %d bytes, want %d", p.Number, p.Size, want)
		}
	}
	if err != nil {
		return nil, err
	}
	return part.Open(dev, p), nil
}

// RangeForNew is the range of the disk dev that --partition or --offset names, for a new file
// system of want bytes; of all bytes that are there for one if want is 0. Nothing else has a byte
// of it. Unless force is set, it is an error if the disk as a whole, or the partition in which the
// range begins later than at its start, holds a file system. Whoever closes the range closes dev.
func (a *Run) RangeForNew(dev blockdev.Device, want int64, force bool) (blockdev.Device, error) {
	if err := a.isContainer(dev); err != nil {
		return nil, err
	}
	if a.begins(dev, guest.Magic) {
		return nil, errGuest
	}
	table, err := part.Read(a.Task, dev)
	if err != nil && (!force || a.Partition != 0) {
		return nil, err
	}
	if table == nil && !force {
		if err := a.empty(dev); err != nil {
			return nil, err
		}
	}
	if a.Partition != 0 {
		in, err := a.rangeOf(dev, table, want)
		if err != nil {
			return nil, err
		}
		p, _ := table.Find(a.Partition)
		return in, table.Clear(p)
	}
	if p, ok := table.Holder(a.Offset.N); ok && p.Start != a.Offset.N && !force {
		if err := a.empty(part.Open(dev, p)); err != nil {
			return nil, err
		}
	}
	return a.rangeOf(dev, table, want)
}

// empty is an error if dev holds something that is no MBR.
func (a *Run) empty(dev blockdev.Device) error {
	what, err := mkfs.Probe(a.Task, dev)
	if err == nil && what != "" && what != mkfs.PartitionTable {
		err = &mkfs.ExistsError{Device: dev.Name(), Found: what}
	}
	return err
}

// containers are files that hold the bytes of a disk in another order, by how they begin, and what
// makes the disk of them.
var containers = []struct{ magic, name, how string }{
	{"KDMV", "a VMDK image", "qemu-img convert -O raw IN OUT"},
	{"vhdxfile", "a VHDX image", "qemu-img convert -O raw IN OUT"},
	{"conectix", "a VHD image", "qemu-img convert -O raw IN OUT"},
	{"<<< Oracle VM VirtualBox Disk Image >>>", "a VDI image", "qemu-img convert -O raw IN OUT"},
	{"\x1f\x8b", "compressed by gzip", "gzip -d"},
	{"\xfd7zXZ\x00", "compressed by xz", "xz -d"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -d"},
	{"BZh", "compressed by bzip2", "bzip2 -d"},
	{"btrfs-stream\x00", "a stream of btrfs send", "btrfs receive"},
	{"\x8b\x66\x95\x72\xe2\x25\x5c\xbd", "a dump of btrfs-image", "btrlab image restore IN OUT"},
}

// Container says what else than the bytes of a disk a file is that begins with head, and what makes
// them of it; "" if that is not known.
func Container(head string) (what, how string) {
	for _, c := range containers {
		if strings.HasPrefix(head, c.magic) {
			return c.name, c.how
		}
	}
	return "", ""
}

// onDisk is dev, or the partition of it that holds the btrfs, and closes dev with an error. Of a
// guest's disk in the format qcow2 it is what the guest sees.
func (a *Run) onDisk(dev blockdev.Device, flags blockdev.Flags) (blockdev.Device, error) {
	inner, err := a.guestDisk(dev, flags)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	dev = inner
	d, err := a.findPartition(dev)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return d, nil
}

var errGuest = errors.New("is a qcow2 image, which is only read here, want the bytes of the disk: qemu-img convert -O raw IN OUT")

func (a *Run) guestDisk(dev blockdev.Device, flags blockdev.Flags) (blockdev.Device, error) {
	switch {
	case !a.begins(dev, guest.Magic):
		return dev, nil
	case flags&blockdev.ReadOnly == 0:
		return nil, errGuest
	}
	d, err := guest.Open(a.Task, dev)
	if err != nil {
		return nil, err // no typed nil
	}
	return d, nil
}

// begins reports whether dev begins with magic.
func (a *Run) begins(dev blockdev.Device, magic string) bool {
	p := make([]byte, len(magic))
	return dev.Size() >= int64(len(p)) && blockdev.Read(a.Task, dev, p, 0) == nil && string(p) == magic
}

func (a *Run) findPartition(dev blockdev.Device) (blockdev.Device, error) {
	if !a.Ranged() && a.hasBtrfs(dev) {
		return dev, nil
	}
	if err := a.isContainer(dev); err != nil {
		return nil, err
	}
	table, err := part.Read(a.Task, dev)
	switch {
	case err != nil && !a.Ranged():
		return dev, nil // whoever wants a btrfs says why this is none
	case err != nil && a.Partition != 0:
		return nil, err
	case a.Ranged():
		return a.rangeOf(dev, table, 0)
	case table == nil:
		return dev, nil
	}
	var found []part.Partition
	for _, p := range table.Disk {
		if a.hasBtrfs(part.Open(dev, p)) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("is a disk with partitions and no btrfs: %s", a.contents(dev, table))
	case 1:
		return part.Open(dev, found[0]), nil
	}
	return nil, fmt.Errorf("has a btrfs in partitions %s, want --partition N", numbers(found))
}

// isContainer is an error that names what holds the bytes of a disk in another order.
func (a *Run) isContainer(dev blockdev.Device) error {
	for _, c := range containers {
		if a.begins(dev, c.magic) {
			return fmt.Errorf("is %s, want the bytes of the disk: %s", c.name, c.how)
		}
	}
	return nil
}

// hasBtrfs says whether dev holds a superblock's magic where the first one is.
func (a *Run) hasBtrfs(dev blockdev.Device) bool {
	p := make([]byte, format.SuperSize)
	return dev.Size() >= format.SuperOffset+format.SuperSize && blockdev.Read(a.Task, dev, p, format.SuperOffset) == nil && format.SuperMagic(p) == format.Magic
}

func numbers(list []part.Partition) string {
	var s []string
	for _, p := range list {
		s = append(s, fmt.Sprint(p.Number))
	}
	return strings.Join(s, ", ")
}

// contents says what is in the partitions.
func (a *Run) contents(dev blockdev.Device, table *part.Table) string {
	var s []string
	for _, p := range table.Disk {
		what, err := mkfs.Probe(a.Task, part.Open(dev, p))
		if err != nil || what == "" {
			what = "unknown"
		}
		s = append(s, fmt.Sprintf("%d %s", p.Number, what))
	}
	return strings.Join(s, ", ")
}
