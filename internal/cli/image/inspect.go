package image

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

func (a verbs) inspect() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "say what an inode, an address or a subvolume number stands for",
		Long: `Inspect answers what btrfs inspect-internal answers, without a mount. Paths begin at the top level. For the structures
on disk see btrlab dump.`,
		Example: `  btrlab inspect inode-resolve 257 disk.img
  btrlab inspect logical-resolve 13631488 disk.img
  btrlab inspect subvolid-resolve 256 disk.img
  btrlab inspect rootid disk.img:/home`,
	}
	part := func(use, short, example string, nargs int, f func(x *fs.FS, path string, n uint64) error) {
		c := &cobra.Command{Use: use, Short: short, Example: "  " + example, Args: cobra.ExactArgs(nargs)}
		c.RunE = func(cmd *cobra.Command, args []string) error {
			n := uint64(0)
			if nargs == 2 {
				var err error
				if n, err = strconv.ParseUint(args[0], 0, 64); err != nil {
					return app.Usagef(cmd, "%q, want a number", args[0])
				}
			}
			image, path, _ := a.SplitSpec(args[nargs-1])
			return a.ReadFS(image, func(x *fs.FS) error {
				if err := f(x, path, n); err != nil {
					return app.InImage(image, path, err)
				}
				return nil
			})
		}
		cmd.AddCommand(c)
	}
	paths := func(x *fs.FS, subvol uint64, ino format.Ino) error {
		list, err := x.Paths(a.Task, subvol, ino)
		if err != nil {
			return fmt.Errorf("inode %d of subvolume %d: %w", ino, subvol, err)
		}
		for _, p := range list {
			fmt.Fprintln(a.Out, app.Shown(a.Out, p))
		}
		return nil
	}
	part("inode-resolve INO IMAGE[:/path]", "print the paths of an inode, in the subvolume that has /path",
		"btrlab inspect inode-resolve 257 disk.img", 2, func(x *fs.FS, path string, n uint64) error {
			at, err := x.Stat(a.Task, path)
			if err != nil {
				return err
			}
			return paths(x, at.Subvol, format.Ino(n))
		})
	part("logical-resolve ADDRESS IMAGE", "print the files that have data at a logical address, with the offset",
		"btrlab inspect logical-resolve 13631488 disk.img", 2, func(x *fs.FS, _ string, n uint64) error {
			list, err := x.Referrers(a.Task, n)
			if err == nil && len(list) == 0 {
				err = fmt.Errorf("no file has data at %d", n)
			}
			for _, r := range list {
				if err == nil {
					fmt.Fprintf(a.Out, "inode %d offset %d root %d\n", r.Ino, r.Off, r.Subvol)
					err = paths(x, r.Subvol, r.Ino)
				}
			}
			return err
		})
	part("subvolid-resolve ID IMAGE", "print the path of a subvolume", "btrlab inspect subvolid-resolve 256 disk.img", 2,
		func(x *fs.FS, _ string, n uint64) error { return paths(x, n, format.FIRST_FREE_OBJECTID) })
	part("rootid IMAGE:/path", "print the number of the subvolume that has a path", "btrlab inspect rootid disk.img:/home", 1,
		func(x *fs.FS, path string, _ uint64) error {
			at, err := x.Lstat(a.Task, path)
			if err == nil {
				fmt.Fprintln(a.Out, at.Subvol)
			}
			return err
		})
	return cmd
}
