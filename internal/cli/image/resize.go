package image

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	raw "btrlab/internal/progs/image"
	"btrlab/internal/script"
)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (a verbs) resize() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resize IMAGE [DEVID:]SIZE|+SIZE|-SIZE|max|min",
		Short: "make a file system larger or smaller",
		Long: `Resize grows a file system, and the file that it is in, or shrinks it, and the file after it. What lies beyond the new end is
moved into holes before it, a stripe of a chunk at a time, and chunks that are partly free are cut when there are no holes; if there
is still no room the size stays as it was. Max is the size of the device, min as small as cutting and moving makes it: next to nothing
fits in it then. A size must be 256M or more when it shrinks. Of several devices it is device DEVID, 1 by default.`,
		Example: `  btrlab resize disk.img +1G
  btrlab resize disk.img min`,
		Args: cobra.ExactArgs(2),
	}
	cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"max", "min"}, cobra.ShellCompDirectiveDefault)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, size := args[0], args[1]
		if _, err := os.Stat(image); err != nil && exists(size) {
			image, size = size, image // the order of btrfs filesystem resize
		}
		devid := uint64(1)
		if id, rest, ok := strings.Cut(size, ":"); ok {
			var err error
			if devid, err = strconv.ParseUint(id, 10, 64); err != nil {
				return app.Usagef(cmd, "device %q, want a number", id)
			}
			size = rest
		}
		if a.Open != nil {
			return errors.New("resize: the image is open, want it alone")
		}
		d, err := a.resized(image, devid)
		if err != nil {
			return err
		}
		want, err := d.newSize(size)
		if err != nil {
			return app.Usagef(cmd, "%v", err)
		}
		grows := d.whole && int64(want) > d.size
		if grows {
			if err := os.Truncate(d.name, int64(want)); err != nil {
				return err
			}
		}
		var now uint64
		var moved int
		err = a.WriteFS(image, func(x *fs.FS) error {
			var err error
			now, moved, err = x.Resize(a.Task, devid, want)
			return err
		})
		if err != nil {
			if grows {
				err = errors.Join(err, a.cutBack(image, &d))
			}
			return err
		}
		if d.whole && int64(now) < d.size {
			if err := os.Truncate(d.name, int64(now)); err != nil {
				return err
			}
		}
		fmt.Fprintf(a.Out, "%s: %d bytes", d.name, now)
		if moved > 0 {
			fmt.Fprintf(a.Out, ", %d stripe%s moved", moved, plural(moved, "", "s"))
		}
		fmt.Fprintln(a.Out)
		return nil
	}
	return cmd
}

// cutBack gives the file of a device its old size after an error, unless the file system may have
// the new one: a commit that failed late can have reached a superblock.
func (a verbs) cutBack(image string, d *resized) error {
	claimed := int64(0)
	err := a.WithDevices(image, blockdev.ReadOnly, func(devs []blockdev.Device) error {
		for _, s := range raw.Supers(a.Task, devs...) {
			if s.Device == d.name && s.Err == nil {
				claimed = max(claimed, int64(s.Super.DevItem.TotalBytes))
			}
		}
		return nil
	})
	if err == nil && claimed <= d.size {
		return os.Truncate(d.name, d.size)
	}
	if err == nil {
		err = fmt.Errorf("%s has %d bytes now, as a superblock says: check the image", d.name, claimed)
	}
	return err
}

// resized is a device that gets another size.
type resized struct {
	name  string
	size  int64  // bytes of the device or its file
	total uint64 // bytes that the file system has of it
	whole bool   // it is a regular file, and nothing else is in that
}

// resized finds device devid.
func (a verbs) resized(image string, devid uint64) (r resized, err error) {
	err = a.WithDevices(image, blockdev.ReadOnly, func(devs []blockdev.Device) error {
		var ids []string
		for i, d := range devs {
			s := raw.ReadSuper(a.Task, d, 0)
			if s.Err != nil {
				return s.Err
			}
			if s.Super.DevItem.Devid != devid {
				ids = append(ids, fmt.Sprint(s.Super.DevItem.Devid))
				continue
			}
			r = resized{name: append([]string{image}, a.Devices...)[i], size: d.Size(), total: s.Super.DevItem.TotalBytes}
			st, err := os.Stat(r.name)
			base, off := blockdev.Base(d)
			r.whole = err == nil && st.Mode().IsRegular() && off == 0 && base.Size() == d.Size()
			return err
		}
		return fmt.Errorf("no device %d, have %s: want DEVID:SIZE", devid, strings.Join(ids, ", "))
	})
	return r, err
}

// newSize is the size that the argument of resize says, 0 for the smallest.
func (r *resized) newSize(arg string) (uint64, error) {
	switch arg {
	case "min":
		return 0, nil
	case "max":
		return uint64(r.size), nil
	}
	n, err := script.ParseSize(strings.TrimLeft(arg, "+-"))
	size := uint64(n)
	switch {
	case err != nil || n <= 0:
		return 0, fmt.Errorf("size %q, want a size, +SIZE, -SIZE, max or min", arg)
	case arg[0] == '+':
		return r.total + size, nil
	case arg[0] == '-' && size >= r.total:
		return 0, fmt.Errorf("size %s, the device has %d bytes", arg, r.total)
	case arg[0] == '-':
		return r.total - size, nil
	}
	return size, nil
}

// SizesLast puts a size of resize that begins with - after all flags and a --, because it looks
// like one of them.
func SizesLast(args []string) []string {
	if len(args) == 0 || args[0] != "resize" {
		return args
	}
	i := slices.IndexFunc(args, func(s string) bool { return len(s) > 1 && s[0] == '-' && '0' <= s[1] && s[1] <= '9' })
	if i < 0 || slices.Contains(args, "--") {
		return args
	}
	rest := slices.Delete(slices.Clone(args), i, i+1)
	return append(rest, "--", args[i])
}
