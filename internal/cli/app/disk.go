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

// PartitionFlags gives --partition to the verbs that open an existing image.
func (a *Run) PartitionFlags(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.GroupID == "files" || c.GroupID == "image" && c.Name() != "mkfs" {
			c.PersistentFlags().IntVar(&a.Partition, "partition", 0, "the image is that of a disk: open this partition, as Linux counts (default: the only btrfs there)")
		}
	}
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

func (a *Run) guestDisk(dev blockdev.Device, flags blockdev.Flags) (blockdev.Device, error) {
	switch {
	case !a.begins(dev, guest.Magic):
		return dev, nil
	case flags&blockdev.ReadOnly == 0:
		return nil, errors.New("is a qcow2 image, which is only read here, want the bytes of the disk: qemu-img convert -O raw IN OUT")
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
	if a.Partition == 0 && a.hasBtrfs(dev) {
		return dev, nil
	}
	for _, c := range containers {
		if a.begins(dev, c.magic) {
			return nil, fmt.Errorf("is %s, want the bytes of the disk: %s", c.name, c.how)
		}
	}
	table, err := part.Read(a.Task, dev)
	switch {
	case err != nil && a.Partition == 0:
		return dev, nil // whoever wants a btrfs says why this is none
	case err != nil:
		return nil, err
	case table == nil && a.Partition == 0:
		return dev, nil
	case table == nil:
		return nil, errors.New("has no partition table")
	case a.Partition != 0:
		p, ok := table.Find(a.Partition)
		if !ok {
			return nil, fmt.Errorf("its %s has no partition %d, there are %s", table.Kind, a.Partition, numbers(table.Disk))
		}
		return part.Open(dev, p), nil
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
