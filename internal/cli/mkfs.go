package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/dump"
	"btrlab/internal/progs/mkfs"
)

const defaultImageSize = 1 << 30

func (a *app) mkfs() *cobra.Command {
	var o mkfs.Options
	var size byteSize
	var asJSON, quiet bool
	var features []string
	var uuid string
	cmd := &cobra.Command{
		Use:   "mkfs IMAGE",
		Short: "make an empty btrfs",
		Long: `Mkfs makes an empty btrfs on a file, which is created sparse, or on a block device.
With --features block-group-tree it has what mkfs.btrfs gives every image since 6.19, for Linux 6.1 and later.
With --uuid and the environment's SOURCE_DATE_EPOCH, seconds since 1970, the image is the same bytes each time.
It refuses what already holds a file system unless --force is given, and a mounted device always.`,
		Example: "  btrlab mkfs --size 1G --label data disk.img",
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.Var(&size, "size", "bytes to use (default 1G for a new file, else all of it)")
	f.StringVarP(&o.Label, "label", "L", "", "label of at most 255 bytes")
	f.StringVarP(&o.MetadataProfile, "metadata", "m", "dup", "metadata profile: dup or single")
	f.StringVarP(&uuid, "uuid", "U", "", "identifier of the file system (default a random one); all others are made of it")
	f.StringSliceVarP(&features, "features", "O", nil, "features: "+strings.Join(mkfs.Features(), ", ")+"; ^NAME is without")
	f.BoolVarP(&o.Force, "force", "f", false, "overwrite a file system that is there")
	f.BoolVarP(&quiet, "quiet", "q", false, "print nothing when all is well")
	jsonFlag(cmd, &asJSON)
	cmd.RegisterFlagCompletionFunc("metadata", cobra.FixedCompletions([]string{"dup", "single"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if p := o.MetadataProfile; p != "dup" && p != "single" {
			return usagef(cmd, "metadata profile %q, want dup or single", p)
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
		if size.set && size.n == 0 {
			return usagef(cmd, "size 0, want more")
		}
		image := args[0]
		dev, made, err := openForMkfs(image, size, o.Force)
		if err != nil {
			return named(image, err)
		}
		o.Size = size.n
		err = mkfs.Make(a.t, dev, o)
		var info dump.Info
		if err == nil {
			info, err = dump.ReadInfo(a.t, dev)
		}
		if cerr := dev.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			if made {
				os.Remove(image)
			}
			return named(image, err)
		}
		switch {
		case asJSON:
			return a.printJSON(info)
		case !quiet:
			dump.PrintInfo(a.out, info)
		}
		return nil
	}
	return cmd
}

// openForMkfs opens image, or creates it. A regular file whose size must change is changed only
// when it holds nothing, or when force is set.
func openForMkfs(image string, size byteSize, force bool) (dev blockdev.Device, made bool, err error) {
	st, err := os.Stat(image)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		n := int64(defaultImageSize)
		if size.set {
			n = size.n
		}
		dev, err = blockdev.Create(image, n)
		return dev, err == nil, err
	case err != nil:
		return nil, false, err
	case st.IsDir():
		return nil, false, errors.New("is a directory, want a file or a block device")
	case st.Mode().IsRegular() && st.Size() == 0:
		n := int64(defaultImageSize)
		if size.set {
			n = size.n
		}
		dev, err = blockdev.Create(image, n)
		return dev, false, err
	case st.Mode().IsRegular() && size.set && size.n > st.Size():
		if !force {
			return nil, false, fmt.Errorf("the file has %d bytes, want %d; --force makes it anew", st.Size(), size.n)
		}
		dev, err = blockdev.Create(image, size.n)
		return dev, false, err
	}
	dev, err = blockdev.Open(image, 0)
	return dev, false, err
}
