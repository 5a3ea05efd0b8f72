package image

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/repair"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/prose"
)

func (a verbs) check() *cobra.Command {
	var asJSON bool
	var o check.Options
	var repair, dryRun bool
	var undo string
	var memory app.ByteSize
	cmd := &cobra.Command{
		Use:   "check IMAGE",
		Short: "check every structure and every checksum of an image",
		Long: `Check reads an image with a walker of its own and prints one line per broken rule: the rule and the place, what is there, what should be, and
what it means to you, with the file that it is about. It never writes.
Exit code 1 means that something was found.
It holds about 450 bytes for each extent; with --max-memory it judges the extents by ranges of block groups, reads the trees of files again for
each, and finds the same.
With --repair it puts right what follows from the rest: superblocks and copies of blocks that are bad, from whole ones; items that make Linux
refuse a leaf; names, and counts of files and directories; what has no name, in lost+found; links of subvolumes; device extents; the extent tree
with block groups and free space, and the sums of them; checksums that are missing; counts of qgroups. It works on a copy in memory, and writes it only if the
result checks clean, or strictly better, after what was there before has gone to the undo file, by which rescue undo brings it back. Copy the
files first: rescue copy.`,
		Example: `  btrlab check disk.img
  btrlab check --max-memory 256M disk.img
  btrlab check --repair --dry-run disk.img`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	cmd.Flags().BoolVar(&o.NoData, "no-data", false, "leave the data and its checksums unread")
	cmd.Flags().Var(&memory, "max-memory", "memory for extents, judged by ranges (default unbounded)")
	cmd.Flags().BoolVar(&repair, "repair", false, "repair what follows from the rest of the image")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "with --repair: write nothing")
	cmd.Flags().StringVar(&undo, "undo", "", "with --repair: the undo file, which must not be there (default IMAGE.undo)")
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := app.Check(cmd,
			app.Needs("dry-run undo", "repair", "--dry-run and --undo go with --repair"),
			app.Excludes("repair", "max-memory", "--repair has no --max-memory"),
			app.Not(memory.Given && memory.N < 1<<20, "--max-memory %s: want at least 1M", &memory),
			app.Excludes("repair", "json", "--repair has no --json"))
		if err != nil {
			return err
		}
		o.MaxMemory = uint64(memory.N)
		if repair && a.Open != nil {
			return errors.New("--repair wants the image for itself, and it is open")
		}
		if repair {
			return a.repair(args[0], cmp.Or(undo, args[0]+".undo"), dryRun, o)
		}
		var res check.Result
		bar := a.NewBar("check", !asJSON)
		o.Progress = func(phase string, done, total uint64) { bar.Set(phase, done, total) }
		err = a.WithDevices(args[0], blockdev.ReadOnly, func(devs []blockdev.Device) (err error) {
			o.Devices = devs[1:]
			res, err = check.Check(a.Task, devs[0], o)
			return err
		})
		bar.Done()
		if err != nil {
			return err
		}
		if asJSON {
			if res.Findings == nil {
				res.Findings = []check.Finding{}
			}
			if err := a.PrintJSON(res); err != nil {
				return err
			}
		} else {
			a.printCheck(args[0], res)
		}
		if !res.Clean {
			return app.ErrFound
		}
		return nil
	}
	app.ProfileFlags(a.Run, cmd, true)
	return cmd
}

// repair proposes a repair of the image, and carries it out if the image is better then.
func (a verbs) repair(image, undo string, dryRun bool, o check.Options) error {
	flags := blockdev.Flags(0)
	if dryRun {
		flags = blockdev.ReadOnly
	}
	return a.WithDevices(image, flags, func(devs []blockdev.Device) error {
		o.Devices = devs[1:]
		r, err := repair.Propose(a.Task, devs[0], o)
		if err != nil {
			return err
		}
		for _, f := range r.Before.Findings {
			fmt.Fprintln(a.Out, app.Shown(a.Out, f.String()+"; "+f.Means))
		}
		if r.Before.Clean {
			a.printCheck(image, r.Before)
			return nil
		}
		for _, l := range r.Done {
			fmt.Fprintln(a.Out, "repair:", l)
		}
		for _, l := range r.Left {
			if r.After.Clean {
				break // another repair has put it right
			}
			fmt.Fprintln(a.Out, "left:", app.Shown(a.Out, l))
		}
		left := fmt.Sprintf("%s found, %d left", prose.Count(len(r.Before.Findings), "broken rule"), len(r.After.Findings))
		switch {
		case !r.Better():
			fmt.Fprintf(a.Out, "%s: %s: not better, nothing is written\n", image, left)
			return app.ErrFound
		case dryRun:
			fmt.Fprintf(a.Out, "%s: %s after a repair; nothing is written\n", image, left)
			return app.ErrFound
		}
		if err := a.commit(r, undo); err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "%s: %s; what was there is in %s\n", image, left, undo)
		if !r.After.Clean {
			return app.ErrFound
		}
		return nil
	})
}

// commit writes a repair, after its undo file.
func (a verbs) commit(r *repair.Repair, undo string) error {
	return a.keepUndo(undo, func(w *rescue.UndoWriter, done func() error) error { return r.Commit(a.Task, w.Add, done) })
}

// keepUndo makes an undo file, which must not be there, for what commit writes after it has called
// done.
func (a verbs) keepUndo(path string, commit func(w *rescue.UndoWriter, done func() error) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := rescue.NewUndoWriter(f)
	err = commit(w, func() error { return errors.Join(w.Close(), f.Sync()) })
	return errors.Join(err, f.Close())
}

func (a verbs) printCheck(image string, res check.Result) {
	for _, f := range res.Findings {
		fmt.Fprintln(a.Out, app.Shown(a.Out, f.String()+"; "+f.Means))
	}
	for _, n := range res.Notes {
		fmt.Fprintln(a.Out, "note:", app.Shown(a.Out, n))
	}
	if !res.Clean {
		fmt.Fprintf(a.Out, "%s: %s found\n", image, prose.Count(len(res.Findings), "broken rule"))
		return
	}
	s := res.Stats
	fmt.Fprintf(a.Out, "%s: clean; %s, %s (%s,\n  %s), %s, %s of data verified by checksum\n", image, prose.Count(s.TreeBlocks, "tree block"),
		prose.Count(s.Inodes, "inode"), prose.Count(s.Files, "file"), prose.Count(s.Dirs, "directory"), prose.Count(s.DataExtents, "data extent"), app.HumanSize(s.DataBytes))
}
