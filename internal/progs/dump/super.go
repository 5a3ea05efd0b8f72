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
	line := func(name, text string, args ...any) {
		tabs := "\t"
		if len(name) < 8 {
			tabs = "\t\t\t"
		} else if len(name) < 16 {
			tabs = "\t\t"
		}
		fmt.Fprintf(w, "%s%s%s\n", name, tabs, fmt.Sprintf(text, args...))
	}
	match := func(ok bool) string {
		if ok {
			return " [match]"
		}
		return " [DON'T MATCH]"
	}
	names := func(l []string) {
		if len(l) > 0 {
			fmt.Fprintf(w, "\t\t\t( %s )\n", strings.Join(l, " |\n\t\t\t  "))
		}
	}
	fmt.Fprintf(w, "superblock: bytenr=%d, device=%s\n%s\n", format.SuperOffset, dev.Name(), strings.Repeat("-", 57))
	line("csum_type", "%d (%s)", uint16(s.CsumType), s.CsumType)
	line("csum_size", "%d", s.CsumType.Size())
	line("csum", "%s%s", s.CsumType.Text(b), match(format.SuperCsumOK(b)))
	line("bytenr", "%d", s.Bytenr)
	line("flags", "0x%x", s.Flags)
	if s.Flags&format.HeaderFlagWritten != 0 {
		names([]string{"WRITTEN"})
	}
	magic := b[0x40:0x48]
	for i, c := range magic {
		if c < ' ' || c > '~' {
			magic[i] = '.'
		}
	}
	line("magic", "%s%s", magic, match(format.SuperMagic(b) == format.Magic))
	line("fsid", "%v", s.FSID)
	line("metadata_uuid", "%v", s.TreeFSID())
	line("label", "%s", s.Label)
	line("generation", "%d", s.Generation)
	line("root", "%d", s.Root)
	line("sys_array_size", "%d", len(s.SysChunkArray))
	line("chunk_root_generation", "%d", s.ChunkRootGeneration)
	line("root_level", "%d", s.RootLevel)
	line("chunk_root", "%d", s.ChunkRoot)
	line("chunk_root_level", "%d", s.ChunkRootLevel)
	line("log_root", "%d", s.LogRoot)
	line("log_root_level", "%d", s.LogRootLevel)
	line("total_bytes", "%d", s.TotalBytes)
	line("bytes_used", "%d", s.BytesUsed)
	line("sectorsize", "%d", s.SectorSize)
	line("nodesize", "%d", s.NodeSize)
	line("stripesize", "%d", s.StripeSize)
	line("root_dir", "%d", s.RootDirObjectid)
	line("num_devices", "%d", s.NumDevices)
	line("compat_flags", "0x%x", s.CompatFlags)
	line("compat_ro_flags", "0x%x", s.CompatROFlags)
	names(upper(format.CompatRONames(s.CompatROFlags)))
	line("incompat_flags", "0x%x", s.IncompatFlags)
	names(upper(format.IncompatNames(s.IncompatFlags)))
	line("cache_generation", "%d", s.CacheGeneration)
	line("uuid_tree_generation", "%d", s.UUIDTreeGeneration)
	d := &s.DevItem
	line("dev_item.uuid", "%v", d.UUID)
	line("dev_item.fsid", "%v%s", d.FSID, match(d.FSID == s.TreeFSID()))
	line("dev_item.type", "%d", d.Type)
	line("dev_item.total_bytes", "%d", d.TotalBytes)
	line("dev_item.bytes_used", "%d", d.BytesUsed)
	line("dev_item.io_align", "%d", d.IOAlign)
	line("dev_item.io_width", "%d", d.IOWidth)
	line("dev_item.sector_size", "%d", d.SectorSize)
	line("dev_item.devid", "%d", d.Devid)
	line("dev_item.dev_group", "%d", d.DevGroup)
	line("dev_item.seek_speed", "%d", d.SeekSpeed)
	line("dev_item.bandwidth", "%d", d.Bandwidth)
	line("dev_item.generation", "%d", d.Generation)
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
	fmt.Fprintf(w, "backup_roots[4]:\n")
	for i := range s.Backups {
		k := &s.Backups[i]
		fmt.Fprintf(w, "\tbackup %d:\n", i)
		for _, e := range []struct {
			name        string
			bytenr, gen uint64
			level       uint8
		}{
			{"backup_tree_root:", k.TreeRoot, k.TreeRootGen, k.TreeRootLevel}, {"backup_chunk_root:", k.ChunkRoot, k.ChunkRootGen, k.ChunkRootLevel},
			{"backup_extent_root:", k.ExtentRoot, k.ExtentRootGen, k.ExtentRootLevel}, {"backup_fs_root:\t", k.FSRoot, k.FSRootGen, k.FSRootLevel},
			{"backup_dev_root:", k.DevRoot, k.DevRootGen, k.DevRootLevel}, {"csum_root:\t", k.CsumRoot, k.CsumRootGen, k.CsumRootLevel},
		} {
			fmt.Fprintf(w, "\t\t%s\t%d\tgen: %d\tlevel: %d\n", e.name, e.bytenr, e.gen, e.level)
		}
		fmt.Fprintf(w, "\t\tbackup_total_bytes:\t%d\n\t\tbackup_bytes_used:\t%d\n\t\tbackup_num_devices:\t%d\n\n", k.TotalBytes, k.BytesUsed, k.NumDevices)
	}
	if err := format.CheckSuper(b, dev.Size()); err != nil {
		fmt.Fprintf(w, "check: %v\n", err)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func upper(l []string) []string {
	for i := range l {
		l[i] = strings.ToUpper(strings.ReplaceAll(l[i], "-", "_"))
	}
	return l
}
