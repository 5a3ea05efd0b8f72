package image

import (
	"bufio"
	"errors"
	"fmt"
	gopath "path"
	"sort"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/prose"
)

func (a verbs) tree() *cobra.Command {
	var level int
	var dirs bool
	cmd := &cobra.Command{
		Use:     "tree IMAGE[:/path]",
		Short:   "draw what is below a directory",
		Example: "  btrlab tree -L 2 disk.img:/etc",
		Args:    cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().IntVarP(&level, "level", "L", 0, "go down no further than this (default: to the end)")
	cmd.Flags().BoolVarP(&dirs, "dirs", "d", false, "directories only")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := app.Check(cmd, app.AtLeast(level, 1, "level %d, want 1 or more").If(cmd.Flags().Changed("level"))); err != nil {
			return err
		}
		image, path, _ := a.SplitSpec(args[0])
		w := bufio.NewWriterSize(a.Out, 64<<10)
		d := &drawnTree{verbs: a, w: w, level: level, dirsOnly: dirs, lines: treeLines()}
		err := a.ReadFS(image, func(x *fs.FS) error {
			d.x = x
			at, err := x.Stat(a.Task, path)
			if err == nil && !at.IsDir() {
				err = errno.ENOTDIR
			}
			if err != nil {
				return app.InImage(image, path, err)
			}
			fmt.Fprintln(w, app.Shown(a.Out, path))
			return app.InImage(image, path, d.below(path, "", 1))
		})
		if err == nil {
			fmt.Fprintf(w, "\n%d director%s", d.dirs, plural(d.dirs, "y", "ies"))
			if !dirs {
				fmt.Fprintf(w, ", %d file%s", d.files, plural(d.files, "", "s"))
			}
			fmt.Fprintln(w)
		}
		if ferr := w.Flush(); err == nil {
			err = ferr
		}
		return err
	}
	a.CacheFlag(cmd)
	return cmd
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// drawnTree draws and counts.
type drawnTree struct {
	verbs
	x           *fs.FS
	w           *bufio.Writer
	level       int
	dirsOnly    bool
	dirs, files int
	lines       [3]string // before a name, below it, before the last name
}

// treeLines are the lines of a drawing, those of tree(1): with the letters of the locale.
func treeLines() [3]string {
	if prose.UTF8() {
		return [3]string{"├── ", "│   ", "└── "}
	}
	return [3]string{"|-- ", "|   ", "`-- "}
}

// below draws the names in path; indent is what is before them.
func (d *drawnTree) below(path, indent string, depth int) error {
	list, err := d.x.ReadDir(d.Task, path)
	if err != nil {
		return err
	}
	if d.dirsOnly {
		kept := list[:0]
		for _, e := range list {
			if e.Type == format.FtDir {
				kept = append(kept, e)
			}
		}
		list = kept
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	for i, e := range list {
		if err := d.Interrupted(); err != nil {
			return err
		}
		branch, next := d.lines[0], indent+d.lines[1]
		if i == len(list)-1 {
			branch, next = d.lines[2], indent+"    "
		}
		full := gopath.Join(path, e.Name)
		name := app.Shown(d.Out, e.Name)
		if e.Type == format.FtSymlink {
			target, err := d.x.Readlink(d.Task, full)
			if err != nil {
				return err
			}
			name += " -> " + app.Shown(d.Out, target)
		}
		fmt.Fprintf(d.w, "%s%s%s\n", indent, branch, name)
		if e.Type != format.FtDir {
			d.files++
			continue
		}
		d.dirs++
		if d.level > 0 && depth >= d.level {
			continue
		}
		// A subvolume of the original, in a snapshot, leads nowhere.
		if err := d.below(full, next, depth+1); err != nil && !(e.Subvol != 0 && errors.Is(err, errno.ENOENT)) {
			return err
		}
	}
	return nil
}
