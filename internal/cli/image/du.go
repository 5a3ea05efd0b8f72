package image

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

// usage is what du shows of a file or a directory, in bytes.
type usage struct {
	Path      string  `json:"path"`
	Total     uint64  `json:"total"`
	Exclusive uint64  `json:"exclusive"`
	SetShared *uint64 `json:"set_shared,omitempty"` // of a directory
}

func (a verbs) du() *cobra.Command {
	var summary, raw, asJSON bool
	cmd := &cobra.Command{
		Use:   "du IMAGE[:/path]...",
		Short: "show what files take, and how much of it only they have",
		Long: `Du prints the bytes of each file's extents, those that no other file and no snapshot has, and of a directory what its
files share, each extent once: deleting the directory wins what is exclusive, and what is shared if nothing outside has it. Holes and
data in the tree count nothing, compressed data by its length in the file, as btrfs filesystem du counts.`,
		Example: "  btrlab du -s disk.img:/home disk.img:/backup",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().BoolVarP(&summary, "summarize", "s", false, "a line for each argument only")
	cmd.Flags().BoolVar(&raw, "raw", false, "bytes, without a unit")
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		all := []usage{}
		size := app.HumanSize
		if raw {
			size = func(n uint64) string { return fmt.Sprint(n) }
		}
		if !asJSON {
			fmt.Fprintf(a.Out, "%12s %12s %12s  %s\n", "Total", "Exclusive", "Set shared", "Filename")
		}
		for _, arg := range args {
			image, path, _ := a.SplitSpec(arg)
			err := a.ReadFS(image, func(x *fs.FS) error {
				d := &diskUsage{verbs: a, x: x, summary: summary, show: func(u usage) {
					if asJSON {
						all = append(all, u)
						return
					}
					set := "-"
					if u.SetShared != nil {
						set = size(*u.SetShared)
					}
					fmt.Fprintf(a.Out, "%12s %12s %12s  %s\n", size(u.Total), size(u.Exclusive), set, app.Shown(a.Out, u.Path))
				}}
				return app.InImage(image, path, d.run(path))
			})
			if err != nil {
				return err
			}
		}
		if asJSON {
			return a.PrintJSON(all)
		}
		return nil
	}
	a.CacheFlag(cmd)
	return cmd
}

// diskUsage adds up what is below one argument.
type diskUsage struct {
	verbs
	x       *fs.FS
	sharing *fs.Sharing
	summary bool
	show    func(u usage)
	seen    map[[2]uint64]bool // files with several names: one of them counts
}

// diskRange is a part of an extent on the disk.
type diskRange = format.Range[uint64]

func (d *diskUsage) run(path string) (err error) {
	if err = d.x.Sync(d.Task); err != nil && !errors.Is(err, errno.EROFS) {
		return err
	}
	if d.sharing, err = d.x.Sharing(d.Task); err != nil {
		return err
	}
	d.seen = map[[2]uint64]bool{}
	_, _, err = d.add(path, true)
	return err
}

// add shows what path takes, and returns it with the ranges that are shared.
func (d *diskUsage) add(path string, top bool) (u usage, shared []diskRange, err error) {
	if err := d.Interrupted(); err != nil {
		return u, nil, err
	}
	u.Path = path
	n, err := d.x.NodeAt(d.Task, path)
	if err != nil {
		return u, nil, err
	}
	at := n.Attr(d.Task)
	id := [2]uint64{at.Subvol, uint64(at.Ino)}
	again := at.IsRegular() && d.seen[id] // another name of a file that counts
	if at.IsRegular() && !again {
		d.seen[id] = at.Nlink > 1
		err = n.Extents(d.Task, func(_ uint64, x format.FileExtent) {
			u.Total += x.NumBytes
			if d.sharing.Shared(x.DiskBytenr) {
				shared = append(shared, format.RangeOf(x.DiskBytenr+x.Offset, x.NumBytes))
			} else {
				u.Exclusive += x.NumBytes
			}
		})
	}
	if ferr := n.Forget(d.Task, 1); err == nil {
		err = ferr
	}
	if err != nil {
		return u, nil, err
	}
	if at.IsDir() {
		err = d.list(d.x, path, false, func(full string, e fs.DirEntry) error {
			b, ranges, err := d.add(full, false)
			if e.Subvol != 0 && errors.Is(err, errno.ENOENT) {
				return nil // a subvolume of the original, in a snapshot
			}
			u.Total += b.Total
			u.Exclusive += b.Exclusive
			shared = append(shared, ranges...)
			return err
		})
		if err != nil {
			return u, nil, err
		}
		shared = format.Merge(shared)
		sum := uint64(0)
		for _, r := range shared {
			sum += r.Len()
		}
		u.SetShared = &sum
	}
	if top || !d.summary && (at.IsDir() || at.IsRegular()) && !again {
		d.show(u)
	}
	return u, shared, nil
}
