package mkfs

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// PartitionTable is what Probe calls an MBR.
const PartitionTable = "a partition table"

// signatures of what a device may hold, besides btrfs.
var signatures = []struct {
	name  string
	off   int64
	magic string
}{
	{"xfs", 0, "XFSB"},
	{"LUKS", 0, "LUKS\xba\xbe"},
	{"squashfs", 0, "hsqs"},
	{"ntfs", 3, "NTFS    "},
	{"exfat", 3, "EXFAT   "},
	{"a FAT file system", 54, "FAT1"},
	{"a FAT file system", 82, "FAT32"},
	{PartitionTable, 510, "\x55\xaa"},
	{"a GPT partition table", 512, "EFI PART"},
	{"LVM", 536, "LVM2 001"},
	{"erofs", 1024, "\xe2\xe1\xf5\xe0"},
	{"f2fs", 1024, "\x10\x20\xf5\xf2"},
	{"ext2, ext3 or ext4", 1080, "\x53\xef"},
	{"a Linux RAID member", 4096, "\xfc\x4e\x2b\xa9"},
	{"swap", 4086, "SWAPSPACE2"},
	{"bcachefs or bcache", 4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca"},
	{"iso9660", 32769, "CD001"},
	{"reiserfs", 65588, "ReIsEr"},
	{"zfs", 135168, "\x0c\xb1\xba\x00"},
}

// Probe names the file system or other known content on the device; "" is none that is known.
func Probe(t *sched.Task, dev blockdev.Device) (string, error) {
	p := make([]byte, min(144<<10, dev.Size()))
	if err := blockdev.Read(t, dev, p, 0); err != nil {
		return "", blockdev.Errorf(dev, "read of %d bytes at 0: %w", len(p), err)
	}
	if len(p) >= format.SuperOffset+format.SuperSize && format.SuperMagic(p[format.SuperOffset:]) == format.Magic {
		return "a btrfs", nil
	}
	for _, s := range signatures {
		if int64(len(p)) >= s.off+int64(len(s.magic)) && string(p[s.off:s.off+int64(len(s.magic))]) == s.magic {
			return s.name, nil
		}
	}
	return "", nil
}
