package image

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/meta/relocation"
	"btrlab/internal/progs/mkfs"
)

func (a verbs) device() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "device",
		Short: "add devices to a file system, remove or replace them",
		Long: `A file system grows onto more devices, and leaves some. What lies on a device that leaves is moved to the others first; of
one that is missing (--degraded) it is made from them. All other devices of the file system are named with --device.`,
		Example: `  btrlab device add a.img --device b.img c.img --size 1G
  btrlab device remove a.img --device b.img --device c.img 2
  btrlab device replace a.img --device b.img b.img new.img --size 1G`,
	}
	cmd.AddCommand(a.deviceAdd(), a.deviceRemove(), a.deviceReplace())
	return cmd
}

// newDevice is the flags of a device that comes in.
type newDevice struct {
	force bool
	size  app.ByteSize
}

func (n *newDevice) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&n.force, "force", "f", false, "overwrite what is on it")
	cmd.Flags().Var(&n.size, "size", "make a `file` of this size")
}

// openNew opens the device, or makes its file, which made tells.
func (a verbs) openNew(name string, n newDevice) (dev blockdev.Device, made bool, err error) {
	_, err = os.Stat(name)
	switch {
	case errors.Is(err, iofs.ErrNotExist) && n.size.N > 0:
		dev, err = blockdev.Create(name, n.size.N)
		return dev, err == nil, err
	case errors.Is(err, iofs.ErrNotExist):
		return nil, false, fmt.Errorf("%s: no such file, --size makes it", name)
	case err != nil:
		return nil, false, err
	case n.size.N > 0:
		return nil, false, fmt.Errorf("%s: is there already, --size makes a new file", name)
	}
	if dev, err = blockdev.Open(name, 0); err != nil {
		return nil, false, err
	}
	what, err := mkfs.Probe(a.Task, dev)
	if err == nil && what != "" && !n.force {
		err = fmt.Errorf("%s: holds %s, --force overwrites it", name, what)
	}
	if err != nil {
		dev.Close()
		return nil, false, err
	}
	return dev, false, nil
}

// withNew runs f on the open image and a device that comes in, which is closed after the file
// system, because that commits to it. After an error a file that was made goes, unless it is a
// device of the file system already: then it has a superblock.
func (a verbs) withNew(image, name string, n newDevice, f func(x *fs.FS, dev blockdev.Device) error) error {
	if a.Ranged() {
		return errors.New("a file system in a part of a disk stays on one device: --partition and --offset are not for this verb")
	}
	if slices.ContainsFunc(append([]string{image}, a.Devices...), func(d string) bool { return d == name || blockdev.Same(d, name) }) {
		return fmt.Errorf("%s: is a device of the file system", name)
	}
	var dev blockdev.Device
	var made bool
	err := a.WriteFS(image, func(x *fs.FS) (err error) {
		if dev, made, err = a.openNew(name, n); err != nil {
			return err
		}
		return f(x, dev)
	})
	if dev == nil {
		return err
	}
	what, perr := mkfs.Probe(a.Task, dev)
	unused := perr == nil && what == ""
	if cerr := dev.Close(); err == nil {
		err = cerr
	}
	if err != nil && made && unused {
		return errors.Join(err, os.Remove(name))
	}
	return err
}

func (a verbs) deviceAdd() *cobra.Command {
	var n newDevice
	cmd := &cobra.Command{
		Use:   "add IMAGE NEW",
		Short: "add a device",
		Long: `Add makes NEW, all of it, one more device of the file system: a block device, or a file, which --size makes. What was on it
is lost. New chunks take it from now on; a balance moves those that are there. From now on every verb wants it by --device.`,
		Example: `  btrlab device add a.img --device b.img c.img --size 1G`,
		Args:    cobra.ExactArgs(2),
	}
	n.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withNew(args[0], args[1], n, func(x *fs.FS, dev blockdev.Device) error {
			devid, err := x.AddDevice(a.Task, dev)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Out, "%s: device %d of %s, %d bytes; --device names it from now on\n", args[1], devid, args[0], dev.Size())
			return err
		})
	}
	return cmd
}

// devid is the device that an argument names: a number, the name of one of the image's devices, or
// missing, which stands for the first that is.
func (a verbs) devid(x *fs.FS, image, arg string) (uint64, error) {
	if id, err := strconv.ParseUint(arg, 10, 64); err == nil {
		return id, nil
	}
	if arg == "missing" {
		if list := x.Missing(); len(list) > 0 {
			return list[0], nil
		}
		return 0, errors.New("no device is missing")
	}
	for i, name := range append([]string{image}, a.Devices...) {
		if name == arg {
			return x.Devids()[i], nil
		}
	}
	return 0, fmt.Errorf("device %q, want a number, missing, or the name of a device of the file system", arg)
}

func (a verbs) deviceRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove IMAGE DEVICE",
		Aliases: []string{"delete"},
		Short:   "move what is on a device to the others, and take it out",
		Long: `Remove moves all chunks that have a part on a device, which is named by its number, by its name, or as missing, to the
other devices, and takes it out of the file system. Its superblock is zeroed. There must be room on the others, and as many of them
as the profiles want.`,
		Example: `  btrlab device remove a.img --device b.img --device c.img b.img
  btrlab device remove a.img --device c.img --degraded missing`,
		Args: cobra.ExactArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		bar := a.NewBar("remove", true)
		defer bar.Done()
		return a.WriteFS(args[0], func(x *fs.FS) error {
			devid, err := a.devid(x, args[0], args[1])
			if err != nil {
				return err
			}
			err = x.RemoveDevice(a.Task, devid, a.stopped, func(p relocation.Progress) {
				bar.Set(fmt.Sprintf("chunk at %d", p.Chunk.Logical), uint64(p.Done), uint64(p.Considered))
			})
			if errors.Is(err, relocation.ErrStopped) {
				return a.Interrupted()
			}
			return err
		})
	}
	return cmd
}

func (a verbs) deviceReplace() *cobra.Command {
	var n newDevice
	cmd := &cobra.Command{
		Use:   "replace IMAGE DEVICE NEW",
		Short: "put another device in the place of one",
		Long: `Replace copies what lies on a device, which is named by its number, by its name, or as missing, to NEW, and makes NEW that
device. What cannot be read, or all of a missing one, is made from the others. NEW is at least as large; resize DEVID:max takes the
rest of it. Run btrlab scrub afterwards: it reads all, compares checksums, which replace does not, and mends what it can.`,
		Example: `  btrlab device replace a.img --device b.img 2 new.img --size 1G
  btrlab device replace a.img --degraded missing new.img --size 1G`,
		Args: cobra.ExactArgs(3),
	}
	n.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		bar := a.NewBar("replace", true)
		defer bar.Done()
		return a.withNew(args[0], args[2], n, func(x *fs.FS, dev blockdev.Device) error {
			devid, err := a.devid(x, args[0], args[1])
			if err != nil {
				return err
			}
			err = x.ReplaceDevice(a.Task, devid, dev, func(done, all uint64) error {
				bar.Set("replace", done, all)
				return a.Interrupted()
			})
			if err == nil {
				_, err = fmt.Fprintf(a.Out, "%s: device %d of the file system\n", args[2], devid)
			}
			return err
		})
	}
	return cmd
}
