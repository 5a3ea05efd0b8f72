package dump

import (
	"fmt"
	"io"
	"strings"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// Super prints the primary superblock, whatever is wrong with it; what the checker says of it is
// the last line.
func Super(t *sched.Task, w io.Writer, dev blockdev.Device) error {
	primary := image.ReadSuper(t, dev, 0)
	if primary.Raw == nil {
		return primary.Unread()
	}
	s, b := &primary.Super, primary.Raw
	s.Decode(b)
	d := superDump{w}
	fmt.Fprintf(w, "superblock: bytenr=%d, device=%s\n%s\n", format.SuperOffset, dev.Name(), strings.Repeat("-", 57))
	d.fields(s, b)
	d.device(s)
	fmt.Fprintf(w, "sys_chunk_array[%d]:\n", format.SysChunkArrayMax)
	i := 0
	for k, item := range s.SysChunks() {
		if item == nil {
			fmt.Fprintf(w, "\titem %d is cut short\n", i)
			break
		}
		fmt.Fprintf(w, "\titem %d key %s\n", i, keyText(k))
		chunkText(w, item)
		i++
	}
	d.backups(s)
	if err := format.CheckSuper(b, dev.Size()); err != nil {
		fmt.Fprintf(w, "check: %v\n", err)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// superDump prints a superblock in the form of btrfs inspect-internal dump-super.
type superDump struct{ w io.Writer }

func (d superDump) line(name, text string, args ...any) {
	tabs := "\t"
	if len(name) < 8 {
		tabs = "\t\t\t"
	} else if len(name) < 16 {
		tabs = "\t\t"
	}
	fmt.Fprintf(d.w, "%s%s%s\n", name, tabs, fmt.Sprintf(text, args...))
}

func (d superDump) names(l []string) {
	if len(l) > 0 {
		fmt.Fprintf(d.w, "\t\t\t( %s )\n", strings.Join(l, " |\n\t\t\t  "))
	}
}

func match(ok bool) string {
	if ok {
		return " [match]"
	}
	return " [DON'T MATCH]"
}

// fields prints the fields of s, whose bytes are b.
func (d superDump) fields(s *format.Super, b []byte) {
	d.line("csum_type", "%d (%s)", uint16(s.CsumType), s.CsumType)
	d.line("csum_size", "%d", s.CsumType.Size())
	d.line("csum", "%s%s", s.CsumType.Text(b), match(format.SuperCsumOK(b)))
	d.line("bytenr", "%d", s.Bytenr)
	d.line("flags", "0x%x", s.Flags)
	if s.Flags&format.HeaderFlagWritten != 0 {
		d.names([]string{"WRITTEN"})
	}
	magic := b[0x40:0x48]
	for i, c := range magic {
		if c < ' ' || c > '~' {
			magic[i] = '.'
		}
	}
	d.line("magic", "%s%s", magic, match(format.SuperMagic(b) == format.Magic))
	d.line("fsid", "%v", s.FSID)
	d.line("metadata_uuid", "%v", s.TreeFSID())
	d.line("label", "%s", s.Label)
	d.line("generation", "%d", s.Generation)
	d.line("root", "%d", s.Root)
	d.line("sys_array_size", "%d", len(s.SysChunkArray))
	d.line("chunk_root_generation", "%d", s.ChunkRootGeneration)
	d.line("root_level", "%d", s.RootLevel)
	d.line("chunk_root", "%d", s.ChunkRoot)
	d.line("chunk_root_level", "%d", s.ChunkRootLevel)
	d.line("log_root", "%d", s.LogRoot)
	d.line("log_root_level", "%d", s.LogRootLevel)
	d.line("total_bytes", "%d", s.TotalBytes)
	d.line("bytes_used", "%d", s.BytesUsed)
	d.line("sectorsize", "%d", s.SectorSize)
	d.line("nodesize", "%d", s.NodeSize)
	d.line("stripesize", "%d", s.StripeSize)
	d.line("root_dir", "%d", s.RootDirObjectid)
	d.line("num_devices", "%d", s.NumDevices)
	d.line("compat_flags", "0x%x", s.CompatFlags)
	d.line("compat_ro_flags", "0x%x", s.CompatROFlags)
	d.names(upper(format.CompatRONames(s.CompatROFlags)))
	d.line("incompat_flags", "0x%x", s.IncompatFlags)
	d.names(upper(format.IncompatNames(s.IncompatFlags)))
	d.line("cache_generation", "%d", s.CacheGeneration)
	d.line("uuid_tree_generation", "%d", s.UUIDTreeGeneration)
}

// device prints the superblock's copy of the item of its device.
func (d superDump) device(s *format.Super) {
	i := &s.DevItem
	d.line("dev_item.uuid", "%v", i.UUID)
	d.line("dev_item.fsid", "%v%s", i.FSID, match(i.FSID == s.TreeFSID()))
	d.line("dev_item.type", "%d", i.Type)
	d.line("dev_item.total_bytes", "%d", i.TotalBytes)
	d.line("dev_item.bytes_used", "%d", i.BytesUsed)
	d.line("dev_item.io_align", "%d", i.IOAlign)
	d.line("dev_item.io_width", "%d", i.IOWidth)
	d.line("dev_item.sector_size", "%d", i.SectorSize)
	d.line("dev_item.devid", "%d", i.Devid)
	d.line("dev_item.dev_group", "%d", i.DevGroup)
	d.line("dev_item.seek_speed", "%d", i.SeekSpeed)
	d.line("dev_item.bandwidth", "%d", i.Bandwidth)
	d.line("dev_item.generation", "%d", i.Generation)
}

// backups prints the roots of the last four commits.
func (d superDump) backups(s *format.Super) {
	fmt.Fprintf(d.w, "backup_roots[4]:\n")
	for i := range s.Backups {
		k := &s.Backups[i]
		fmt.Fprintf(d.w, "\tbackup %d:\n", i)
		for _, e := range []struct {
			name        string
			bytenr, gen uint64
			level       uint8
		}{
			{"backup_tree_root:", k.TreeRoot, k.TreeRootGen, k.TreeRootLevel}, {"backup_chunk_root:", k.ChunkRoot, k.ChunkRootGen, k.ChunkRootLevel},
			{"backup_extent_root:", k.ExtentRoot, k.ExtentRootGen, k.ExtentRootLevel}, {"backup_fs_root:\t", k.FSRoot, k.FSRootGen, k.FSRootLevel},
			{"backup_dev_root:", k.DevRoot, k.DevRootGen, k.DevRootLevel}, {"csum_root:\t", k.CsumRoot, k.CsumRootGen, k.CsumRootLevel},
		} {
			fmt.Fprintf(d.w, "\t\t%s\t%d\tgen: %d\tlevel: %d\n", e.name, e.bytenr, e.gen, e.level)
		}
		fmt.Fprintf(d.w, "\t\tbackup_total_bytes:\t%d\n\t\tbackup_bytes_used:\t%d\n\t\tbackup_num_devices:\t%d\n\n", k.TotalBytes, k.BytesUsed, k.NumDevices)
	}
}

func upper(l []string) []string {
	for i := range l {
		l[i] = strings.ToUpper(strings.ReplaceAll(l[i], "-", "_"))
	}
	return l
}
