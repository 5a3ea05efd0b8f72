package cli

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/dump"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/transfer"
)

const defaultImageSize = 1 << 30

func (a *app) mkfs() *cobra.Command {
	var o mkfs.Options
	var size, nodeSize byteSize
	var asJSON, quiet bool
	var features []string
	var uuid, csum string
	var reproducible bool
	var tree treeFlags
	profiles := strings.Join(mkfs.Profiles(), ", ")
	csums := format.CsumTypes()
	cmd := &cobra.Command{
		Use:   "mkfs IMAGE",
		Short: "make a btrfs, empty or with a tree of files",
		Long: `Mkfs makes a btrfs on a file, which is created sparse, or on a block device.
With --rootdir it is filled with what is in a directory, as put -r fills one, in one pass and several times as fast. A new file gets the
size that the tree needs, and 1G at least; with --shrink no more than the tree needs. What cannot be read is left out with a message,
and the exit code is 1. With --from-tar it is filled with what is in a tar archive, as put --from-tar does it. A file is read
in place; what comes by standard input or a pipe is kept in a file of TMPDIR meanwhile.
A hard link does not lead into another subvolume: there it is a file of its own.
With --features block-group-tree it has what mkfs.btrfs gives every image since 6.19, for Linux 6.1 and later.
With --reproducible, or with --uuid and the environment's SOURCE_DATE_EPOCH, seconds since 1970, the image is the same bytes each time.
It refuses what already holds a file system unless --force is given, and a mounted device always.`,
		Example: `  btrlab mkfs --size 1G --label data disk.img
  btrlab mkfs --rootdir rootfs --root-owner --compress zstd --shrink disk.img
  btrlab mkfs --rootdir rootfs --plan owners.mtree disk.img
  btrlab mkfs --from-tar release.tar --subvol default:@ disk.img
  btrlab mkfs --rootdir src --exclude '*.o' --exclude build/cache disk.img`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.Var(&size, "size", "bytes to use (default 1G for a new file, else all of it)")
	f.StringVarP(&o.Label, "label", "L", "", "label of at most 255 bytes")
	f.StringVarP(&o.MetadataProfile, "metadata", "m", "", "metadata profile (default dup, of several devices raid1): "+profiles)
	f.StringVarP(&o.DataProfile, "data", "d", "single", "data profile: "+profiles)
	f.StringArrayVar(&a.devices, "device", nil, "another device of the file system; once for each")
	f.StringVarP(&uuid, "uuid", "U", "", "identifier of the file system (default a random one); all others are made of it")
	f.VarP(&nodeSize, "nodesize", "n", "bytes of a tree block: 4k, 8k, 16k (default), 32k or 64k")
	f.StringVar(&csum, "csum", "crc32c", "checksums: "+strings.Join(csums, ", "))
	f.StringSliceVarP(&features, "features", "O", nil, "features: "+strings.Join(mkfs.Features(), ", ")+"; ^NAME is without")
	f.BoolVarP(&o.Mixed, "mixed", "M", false, "block groups that hold data and metadata, for small devices: of one profile, single by default")
	f.BoolVar(&reproducible, "reproducible", false, "the same bytes each time: the date is SOURCE_DATE_EPOCH, or that of the newest file, and "+
		"the identifier is made of label and size, unless --uuid is given")
	f.BoolVarP(&o.Force, "force", "f", false, "overwrite a file system that is there")
	f.BoolVarP(&quiet, "quiet", "q", false, "print nothing when all is well")
	tree.add(f)
	jsonFlag(cmd, &asJSON)
	for _, flag := range []string{"metadata", "data"} {
		cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(mkfs.Profiles(), cobra.ShellCompDirectiveNoFileComp))
	}
	cmd.RegisterFlagCompletionFunc("csum", cobra.FixedCompletions(csums, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.Csum, err = format.ParseCsumType(csum); err != nil {
			return usagef(cmd, "%v", err)
		}
		for _, p := range []struct{ what, name string }{{"metadata", o.MetadataProfile}, {"data", o.DataProfile}} {
			if p.name == "" {
				continue
			}
			if err := mkfs.CheckProfile(p.name, len(a.devices)+1); err != nil {
				return usagef(cmd, "%s profile, %v", p.what, err)
			}
		}
		if uuid != "" {
			var ok bool
			if o.FSID, ok = format.ParseUUID(uuid); !ok {
				return usagef(cmd, "uuid %q, want eight, four, four, four and twelve hexadecimal digits with - between", uuid)
			}
		}
		now, err := sourceDate()
		if err != nil {
			return err
		}
		if now != nil {
			o.Now = now()
		}
		if err := o.SetFeatures(features); err != nil {
			return usagef(cmd, "%v", err)
		}
		if o.Quota && o.SimpleQuota {
			return usagef(cmd, "features quota and squota, want one of them")
		}
		if nodeSize.set {
			if err := mkfs.CheckNodeSize(nodeSize.n); err != nil {
				return usagef(cmd, "%v", err)
			}
			o.NodeSize = int(nodeSize.n)
		}
		if size.set && size.n == 0 {
			return usagef(cmd, "size 0, want more")
		}
		image := args[0]
		if err := tree.parse(cmd, &o); err != nil {
			return err
		}
		defer func() {
			if cerr := tree.close(); err == nil {
				err = cerr
			}
		}()
		if err := tree.scan(a, image, o.Now); err != nil {
			return err
		}
		if reproducible && now == nil {
			o.Now = tree.newest()
			tree.undated()
		}
		n := int64(defaultImageSize)
		if tree.root != nil {
			n = max(n, transfer.Need(tree.root))
		}
		if size.set {
			n = size.n
		}
		o.Size = size.n
		if reproducible && uuid == "" {
			o.FSID = format.MadeUUID(fmt.Sprintf("%q %d", o.Label, n))
		}
		info, err := a.makeOn(append([]string{image}, a.devices...), n, size.set, &tree, o)
		if errors.Is(err, errInterrupted) {
			return errUnmade
		}
		if err != nil {
			return err
		}
		switch {
		case asJSON:
			return a.printJSON(info)
		case !quiet:
			dump.PrintInfo(a.out, info)
		}
		return tree.w.allThere()
	}
	return cmd
}

// makeOn makes a file system on the images, of n bytes each. Those that it has created are removed
// after an error.
func (a *app) makeOn(images []string, n int64, want bool, tree *treeFlags, o mkfs.Options) (info dump.Info, err error) {
	var devs []blockdev.Device
	var made []string
	var shrunk int64
	defer func() {
		for _, dev := range devs {
			if cerr := dev.Close(); err == nil {
				err = cerr
			}
		}
		if err == nil && o.Shrink {
			err = shrinkFile(images[0], shrunk)
		}
		if err != nil {
			for _, image := range made {
				os.Remove(image)
			}
		}
		if !a.ofOther(err) {
			err = named(images[0], err)
		}
	}()
	for _, image := range images {
		dev, isNew, err := openForMkfs(image, n, want, o.Force)
		if err != nil {
			return info, named(image, err)
		}
		devs = append(devs, a.faults.on(dev))
		if isNew {
			made = append(made, image)
		}
	}
	o.Devices = devs[1:]
	if shrunk, err = tree.build(a, devs[0], o); err != nil {
		return info, err
	}
	if o.Quota || o.SimpleQuota {
		if err := a.inOrder(func() error { return a.enableQuota(devs, &o) }); err != nil {
			return info, err
		}
	}
	return dump.ReadInfo(a.t, devs[0], devs[1:]...)
}

// enableQuota turns on the quotas that o asks for in a new file system.
func (a *app) enableQuota(devs []blockdev.Device, o *mkfs.Options) error {
	open := fs.Options{Memory: reproducibleMemory}
	if !o.Now.IsZero() {
		open.Now = func() time.Time { return o.Now }
	}
	x, err := fs.Open(a.t, devs, open)
	if err != nil {
		return err
	}
	if o.SimpleQuota {
		err = x.EnableSimpleQuota(a.t)
	}
	if err == nil && o.Quota {
		err = x.EnableQuota(a.t)
	}
	return withCommit(err, x.Close(a.t))
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
func openForMkfs(image string, n int64, want, force bool) (dev blockdev.Device, made bool, err error) {
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
	dev, err = blockdev.Open(image, 0)
	return dev, false, err
}
