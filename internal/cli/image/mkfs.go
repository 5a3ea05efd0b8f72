package image

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/dump"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/transfer"
)

const defaultImageSize = 1 << 30

// making is the verb mkfs, with its flags.
type making struct {
	verbs
	cmd                         *cobra.Command
	o                           mkfs.Options
	size, nodeSize              app.ByteSize
	asJSON, quiet, reproducible bool
	features                    []string
	uuid, csum                  string
	tree                        treeFlags
	// how an image that is there is opened: mkfs.btrfs takes no lock of a block device
	opened blockdev.Flags
}

func (a verbs) mkfs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mkfs IMAGE",
		Short: "make a btrfs, empty or with a tree of files",
		Long: `Mkfs makes a btrfs on a file, which is created sparse, or on a block device.
With --rootdir it is filled with what is in a directory, as put -r fills one, in one pass and several times as fast. A new file gets the
size that the tree needs, and 1G at least; with --shrink no more than the tree needs. What cannot be read is left out with a message,
and the exit code is 1. With --owner-from owners, modes and devices are those that fakeroot has, which this program does not see: make the
tree under fakeroot -s FILE, and the image after it. With --from-tar it is filled with what is in a tar archive, as put --from-tar does it. A file is read
in place; what comes by standard input or a pipe is kept in a file of TMPDIR meanwhile. With --from-cpio it is a cpio archive.
With --from it is filled with what is in another image of one device, or in a directory of it: with another size, features, profiles,
compression. Paths begin at the top level there. Subvolumes stay subvolumes; a snapshot of one that is there comes with --snapshots only.
Nothing is shared any more, and space that is allocated and not written is a hole.
A hard link does not lead into another subvolume: there it is a file of its own.
With --features block-group-tree it has what mkfs.btrfs gives every image since 6.19, for Linux 6.1 and later.
With --reproducible, or with --uuid and the environment's SOURCE_DATE_EPOCH, seconds since 1970, the image is the same bytes each time.
With --partition or --offset it is made in a range of an image that is there, the partition or the bytes from the offset on, and no other
byte is changed. Without --size the range ends with the partition, or where another one or the disk's table begins.
It refuses what already holds a file system unless --force is given, and a mounted device always.
With --progs, or called by a link with the name mkfs.btrfs, it takes the command line of that program (btrlab mkfs --progs --help).`,
		Example: `  btrlab mkfs --size 1G --label data disk.img
  btrlab mkfs --rootdir rootfs --root-owner --compress zstd --shrink disk.img
  btrlab mkfs --rootdir rootfs --plan owners.mtree disk.img
  btrlab mkfs --rootdir rootfs --owner-from fakeroot.save disk.img
  btrlab mkfs --rootdir rootfs --device-table devices.txt disk.img
  btrlab mkfs --from-tar release.tar --subvol default:@ disk.img
  btrlab mkfs --from-cpio initrd.cpio disk.img
  btrlab mkfs --from old.img --compress zstd --shrink small.img
  btrlab mkfs --rootdir src --exclude '*.o' --exclude build/cache disk.img
  btrlab mkfs --partition 2 disk.img`,
		Args: cobra.ExactArgs(1),
	}
	v := &making{verbs: a, cmd: cmd}
	v.flags()
	cmd.RunE = func(_ *cobra.Command, args []string) error { return v.run(args[0]) }
	app.ProfileFlags(a.Run, cmd, true)
	return cmd
}

func (v *making) flags() {
	profiles, csums := strings.Join(mkfs.Profiles(), ", "), format.CsumTypes()
	f := v.cmd.Flags()
	f.Var(&v.size, "size", "bytes to use (default 1G for a new file, else all of it)")
	f.IntVar(&v.Partition, "partition", 0, "the image is that of a disk: make it in this partition, as Linux counts")
	f.Var(&v.Offset, "offset", "make it at this byte of an image that is there, up to where something else begins")
	f.StringVarP(&v.o.Label, "label", "L", "", "label of at most 255 bytes")
	f.StringVarP(&v.o.MetadataProfile, "metadata", "m", "", "metadata profile (default dup, of several devices raid1): "+profiles)
	f.StringVarP(&v.o.DataProfile, "data", "d", "single", "data profile: "+profiles)
	f.StringArrayVar(&v.Devices, "device", nil, "another device of the file system; once for each")
	f.StringVarP(&v.uuid, "uuid", "U", "", "identifier of the file system (default a random one); all others are made of it")
	f.VarP(&v.nodeSize, "nodesize", "n", "bytes of a tree block: 4k, 8k, 16k (default), 32k or 64k")
	f.StringVar(&v.csum, "csum", "crc32c", "checksums: "+strings.Join(csums, ", "))
	f.StringSliceVarP(&v.features, "features", "O", nil, "features: "+strings.Join(mkfs.Features(), ", ")+"; ^NAME is without")
	f.BoolVarP(&v.o.Mixed, "mixed", "M", false, "block groups that hold data and metadata, for small devices: of one profile, single by default")
	f.BoolVar(&v.reproducible, "reproducible", false, "the same bytes each time: the date is SOURCE_DATE_EPOCH, or that of the newest file, and "+
		"the identifier is made of label and size, unless --uuid is given")
	f.BoolVarP(&v.o.Force, "force", "f", false, "overwrite a file system that is there")
	f.BoolVarP(&v.quiet, "quiet", "q", false, "print nothing when all is well")
	v.tree.add(f)
	app.JSONFlag(v.cmd, &v.asJSON)
	for _, flag := range []string{"metadata", "data"} {
		v.cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(mkfs.Profiles(), cobra.ShellCompDirectiveNoFileComp))
	}
	v.cmd.RegisterFlagCompletionFunc("csum", cobra.FixedCompletions(csums, cobra.ShellCompDirectiveNoFileComp))
}

// parse checks the flags; dated says that the environment has the date.
func (v *making) parse() (dated bool, err error) {
	if v.o.Csum, err = format.ParseCsumType(v.csum); err != nil {
		return false, app.Usagef(v.cmd, "%v", err)
	}
	if err := v.checkProfiles(); err != nil {
		return false, err
	}
	if v.uuid != "" {
		var ok bool
		if v.o.FSID, ok = format.ParseUUID(v.uuid); !ok {
			return false, app.Usagef(v.cmd, "uuid %q, want eight, four, four, four and twelve hexadecimal digits with - between", v.uuid)
		}
	}
	now, err := app.SourceDate()
	if err != nil {
		return false, err
	}
	if now != nil {
		v.o.Now = now()
	}
	if err := v.o.SetFeatures(v.features); err != nil {
		return false, app.Usagef(v.cmd, "%v", err)
	}
	if v.o.Quota && v.o.SimpleQuota {
		return false, app.Usagef(v.cmd, "features quota and squota, want one of them")
	}
	if v.nodeSize.Given {
		if err := mkfs.CheckNodeSize(v.nodeSize.N); err != nil {
			return false, app.Usagef(v.cmd, "%v", err)
		}
		v.o.NodeSize = int(v.nodeSize.N)
	}
	err = app.Check(v.cmd,
		app.Not(v.size.Given && v.size.N == 0, "size 0, want more"),
		app.Excludes("partition", "offset", "--partition with --offset, want one of them"),
		app.Excludes("partition offset", "device", "--%s with --device, want a file system of one device"),
		app.Not(v.cmd.Flags().Changed("partition") && v.Partition < 1, "partition %d, want 1 or more", v.Partition))
	if err != nil {
		return false, err
	}
	return now != nil, v.tree.parse(v.cmd, &v.o)
}

// checkProfiles checks the profiles for the count of devices.
func (v *making) checkProfiles() error {
	for _, p := range []struct{ what, name string }{{"metadata", v.o.MetadataProfile}, {"data", v.o.DataProfile}} {
		if p.name == "" {
			continue
		}
		if err := mkfs.CheckProfile(p.name, len(v.Devices)+1); err != nil {
			return app.Usagef(v.cmd, "%s profile, %v", p.what, err)
		}
	}
	return nil
}

func (v *making) run(image string) (err error) {
	if err := v.tree.check(v.cmd); err != nil {
		return err
	}
	dated, err := v.parse()
	if err != nil {
		return err
	}
	if v.tree.from == "" {
		return v.fill(image, dated)
	}
	from, path, ok := v.SplitSpec(v.tree.from)
	if !ok {
		from, path = v.tree.from, "/"
	}
	for _, to := range append([]string{image}, v.Devices...) {
		if blockdev.Same(from, to) {
			return app.Usagef(v.cmd, "--from %s, want another image than the one that is made", from)
		}
	}
	return v.ReadSource(from, func(x *fs.FS) error {
		v.tree.source, v.tree.path = x, path
		return v.fill(image, dated)
	})
}

// fill makes the file system, with what the flags name.
func (v *making) fill(image string, dated bool) (err error) {
	defer func() {
		if cerr := v.tree.close(); err == nil {
			err = cerr
		}
	}()
	if err := v.tree.scan(v.verbs, image, v.o.Now); err != nil {
		return err
	}
	if v.reproducible && !dated {
		v.o.Now = v.tree.newest()
		v.tree.undated()
	}
	n := v.bytes()
	v.o.Size = v.size.N
	if v.reproducible && v.uuid == "" {
		v.o.FSID = format.MadeUUID(fmt.Sprintf("%q %d%s", v.o.Label, n, v.place()))
	}
	info, err := v.makeOn(append([]string{image}, v.Devices...), n, v.size.Given)
	switch {
	case err != nil:
		return err
	case v.asJSON:
		err = v.PrintJSON(info)
	case !v.quiet:
		dump.PrintInfo(v.Out, info)
	}
	if name := v.parity(); name != "" {
		fmt.Fprintf(v.Err, "btrlab: warning: %s has the write hole: %s\n", name, writeHole)
	}
	if err != nil {
		return err
	}
	return v.tree.w.allThere()
}

// place tells ranges of one disk from each other; "" is the whole image.
func (v *making) place() string {
	switch {
	case v.Partition != 0:
		return fmt.Sprintf(" partition %d", v.Partition)
	case v.Offset.Given:
		return fmt.Sprintf(" offset %d", v.Offset.N)
	}
	return ""
}

// writeHole is what is to be known of RAID5 and RAID6.
const writeHole = "after a crash run check, whose --repair makes parity anew"

// parity is the name of a profile with parity that is made; "" if there is none.
func (v *making) parity() string {
	for _, p := range format.Profiles() {
		if p.Parity > 0 && (p.Name == v.o.DataProfile || p.Name == v.o.MetadataProfile) {
			return p.Name
		}
	}
	return ""
}

// bytes is the size of each image: the one that is wanted, or what the tree needs.
func (v *making) bytes() int64 {
	switch {
	case v.size.Given:
		return v.size.N
	case v.tree.root != nil:
		return max(defaultImageSize, transfer.Need(v.tree.root))
	}
	return defaultImageSize
}

// makeOn makes a file system on the images, of n bytes each, which a file gets if want is set.
// Those that it has created are removed after an error.
func (v *making) makeOn(images []string, n int64, want bool) (info dump.Info, err error) {
	o := v.o
	var devs []blockdev.Device
	var made []string
	var shrunk int64
	defer func() {
		for _, dev := range devs {
			if cerr := dev.Close(); err == nil {
				err = cerr
			}
		}
		if err == nil && o.Shrink && !v.Ranged() {
			err = shrinkFile(images[0], shrunk)
		}
		if err != nil {
			for _, image := range made {
				os.Remove(image)
			}
		}
		switch {
		case errors.Is(err, app.ErrInterrupted):
			err = app.ErrUnmade
		case !v.OfOther(err):
			err = app.Named(images[0], err)
		}
	}()
	for _, image := range images {
		dev, isNew, err := v.openImage(image, n, want)
		if err != nil {
			return info, app.Named(image, err)
		}
		devs = append(devs, v.Faults.On(dev))
		if isNew {
			made = append(made, image)
		}
	}
	o.Devices = devs[1:]
	if shrunk, err = v.tree.build(v.verbs, devs[0], o); err != nil {
		return info, err
	}
	if o.Quota || o.SimpleQuota {
		if err := v.InOrder(func() error { return v.enableQuota(devs, &o) }); err != nil {
			return info, err
		}
	}
	return dump.ReadInfo(v.Task, devs[0], devs[1:]...)
}

// openImage opens an image for n bytes, or the range of it that --partition or --offset names; made
// is set if the file was not there.
func (v *making) openImage(image string, n int64, want bool) (dev blockdev.Device, made bool, err error) {
	if !v.Ranged() {
		return openForMkfs(image, n, want, v.o.Force, v.opened)
	}
	if dev, err = blockdev.Open(image, v.opened); err != nil {
		return nil, false, err
	}
	in, err := v.RangeForNew(dev, v.size.N, v.o.Force)
	if err != nil {
		return nil, false, errors.Join(err, dev.Close())
	}
	return in, false, nil
}

// enableQuota turns on the quotas that o asks for in a new file system.
func (a verbs) enableQuota(devs []blockdev.Device, o *mkfs.Options) error {
	open := fs.Options{Memory: app.ReproducibleMemory}
	if !o.Now.IsZero() {
		open.Now = func() time.Time { return o.Now }
	}
	x, err := fs.Open(a.Task, devs, open)
	if err != nil {
		return err
	}
	if o.SimpleQuota {
		err = x.EnableSimpleQuota(a.Task)
	}
	if err == nil && o.Quota {
		err = x.EnableQuota(a.Task)
	}
	return app.WithCommit(err, x.Close(a.Task))
}

// shrinkFile gives a regular file the size of its file system.
func shrinkFile(image string, size int64) error {
	st, err := os.Stat(image)
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	return os.Truncate(image, size)
}

// openForMkfs opens image, or creates it with n bytes. A regular file whose size must change,
// because want is set, is changed only when it holds nothing, or when force is set.
func openForMkfs(image string, n int64, want, force bool, flags blockdev.Flags) (dev blockdev.Device, made bool, err error) {
	st, err := os.Stat(image)
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		dev, err = blockdev.Create(image, n)
		return dev, err == nil, err
	case err != nil:
		return nil, false, err
	case st.IsDir():
		return nil, false, errors.New("is a directory, want a file or a block device")
	case st.Mode().IsRegular() && st.Size() == 0:
		dev, err = blockdev.Create(image, n)
		return dev, false, err
	case st.Mode().IsRegular() && want && n > st.Size():
		if !force {
			return nil, false, fmt.Errorf("the file has %d bytes, want %d; --force makes it anew", st.Size(), n)
		}
		dev, err = blockdev.Create(image, n)
		return dev, false, err
	}
	dev, err = blockdev.Open(image, flags)
	return dev, false, err
}
