package image

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	gopath "path"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	raw "btrlab/internal/progs/image"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/prose"
	"btrlab/internal/transfer"
)

func (a verbs) rescue() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rescue",
		Short: "save the files of an image that cannot be opened, or repair its superblocks",
		Example: `  btrlab rescue copy disk.img saved
  btrlab rescue zero-log disk.img`,
	}
	cmd.AddCommand(a.rescueCopy(), a.rescueScan(), a.rescueFixSuper(), a.rescueOlderRoot(), a.rescueChunkRecover(), a.rescueUndo(), a.rescueZeroLog())
	return cmd
}

func (a verbs) rescueZeroLog() *cobra.Command {
	return &cobra.Command{
		Use:   "zero-log IMAGE",
		Short: "drop the log of an image, which cannot be replayed",
		Long: `Zero-log makes the superblocks point at no log. The file system is then as at its last commit: what was fsynced
after it is lost. It is for an image whose log cannot be replayed; any verb that writes replays a good one.`,
		Example:           "  btrlab rescue zero-log disk.img",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithDevices(args[0], 0, func(devs []blockdev.Device) error {
				bytenr, level, err := rescue.ZeroLog(a.Task, devs...)
				switch {
				case err != nil:
					return err
				case bytenr == 0:
					fmt.Fprintf(a.Out, "%s: no log\n", args[0])
				default:
					fmt.Fprintf(a.Out, "%s: log dropped, was at %d, level %d\n", args[0], bytenr, level)
				}
				return nil
			})
		},
	}
}

// withDamaged opens the devices of an image, which is read as far as it goes. Replay says that its
// log is replayed first.
func (a verbs) withDamaged(image string, o rescue.Options, title string, replay bool, f func(im *rescue.Image, b *app.Bar) error) error {
	b := a.NewBar(title, true)
	defer b.Done()
	o.Progress = func(done, total uint64) { b.Set("scan", done, total) }
	o.Stop = a.Interrupted
	return a.WithDevices(image, blockdev.ReadOnly, func(devs []blockdev.Device) error {
		note := ""
		if replay {
			devs, note = a.replayed(devs)
		}
		im, err := rescue.Open(a.Task, devs, o)
		if err != nil {
			return err
		}
		if note != "" {
			im.Note(note)
		}
		return f(im, b)
	})
}

// replayed replays the log of an image, if it has one, on copies of the devices in memory, which
// hold what changes. An image that does not open for writing is copied as at its last commit. The
// note says which.
func (a verbs) replayed(devs []blockdev.Device) (list []blockdev.Device, note string) {
	for _, s := range raw.Supers(a.Task, devs...) {
		if s.Err != nil || s.Copy > 0 || s.Super.LogRoot == 0 {
			continue
		}
		for _, d := range devs {
			list = append(list, dm.NewOverlay(d, nil))
		}
		x, err := fs.Open(a.Task, list, fs.Options{Memory: a.CacheSize(), Degraded: a.Degraded})
		if err == nil {
			err = x.Close(a.Task)
		}
		if err != nil {
			return devs, "the log is not replayed, and what it has is left out: " + app.OneLine(err)
		}
		return list, "a log is there: it was replayed on a copy in memory"
	}
	return devs, ""
}

func (a verbs) rescueCopy() *cobra.Command {
	var o rescue.Options
	var co rescue.CopyOptions
	var asTar bool
	var match []string
	cmd := &cobra.Command{
		Use:   "copy IMAGE[:/path] DIR",
		Short: "copy what is left of the files of a damaged image",
		Long: `Copy reads a damaged image as far as it goes, writes nothing to it and never asks. It needs neither the primary
superblock nor the trees of extents and checksums; of the tree of chunks, of roots and of files it takes what is left of older states where
the last one is lost, and finds it by a scan of the whole image. Files go to DIR, which is made if there is none, with owners, modes, times,
extended attributes, hard links, devices and pipes, or with --tar to the archive DIR, - for standard output. What has no name any more goes
to DIR/lost+found.
Each file that is not whole is one line, then a summary follows; the exit code is 1 if something is partial or lost. A sector whose checksum
is wrong on every copy is copied as it is on the disk, one that cannot be read as zeros.
A second run goes on where an interrupted one has stopped: files of the same size and time are left as they are.
What was fsynced after the last commit is in the copy if the image's log can be replayed, which is done on a copy in memory.
Data and tree blocks on a device of RAID5 or RAID6 that is missing or bad are made from parity.
With a /path only that is copied: a file goes into DIR, of a directory or subvolume what is in it. With --match only what one of the patterns
matches is, at its place: one without a slash is of names in any directory, one with slashes of the path from the top of the image; what is in
a directory that matches is copied as well. Paths begin at the top level, subvolumes are directories there, and a snapshot that /path names is
copied without --snapshots.`,
		Example: `  btrlab rescue copy disk.img saved
  btrlab rescue copy --tar disk.img saved.tar
  btrlab rescue copy --generation 5 disk.img older
  btrlab rescue copy disk.img:/src docs
  btrlab rescue copy --match '*.txt' --match src/sub disk.img texts`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	cmd.Flags().BoolVar(&asTar, "tar", false, "write a tar archive")
	cmd.Flags().Uint64Var(&o.Generation, "generation", 0, "the state as of this transaction, or the newest before it")
	cmd.Flags().BoolVar(&o.Scan, "scan", false, "scan the whole image first, even if nothing is missing")
	cmd.Flags().BoolVarP(&co.Snapshots, "snapshots", "s", false, "copy snapshots as well")
	cmd.Flags().StringArrayVar(&match, "match", nil, "copy only what matches: a name with *, ? or [a-z], or a path from the top; once for each")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, _ := a.SplitSpec(args[0])
		dest := args[1]
		co.Under = strings.Trim(gopath.Clean("/"+path), "/")
		patterns, err := transfer.ParseExclude(match)
		if err != nil {
			return app.Usagef(cmd, "%v", err)
		}
		if len(patterns) > 0 {
			co.Match = patterns.Has
		}
		return a.copyDamaged(image, dest, o, co, asTar, match)
	}
	return cmd
}

// copyDamaged copies what is left of an image to dest, and says what is not whole.
func (a verbs) copyDamaged(image, dest string, o rescue.Options, co rescue.CopyOptions, asTar bool, match []string) error {
	out := a.Out
	if asTar && dest == "-" {
		out = a.Err
	}
	return a.withDamaged(image, o, "rescue", o.Generation == 0, func(im *rescue.Image, b *app.Bar) error {
		noted := 0
		notes := func() {
			for _, n := range im.Notes()[noted:] {
				fmt.Fprintln(out, "note:", app.Shown(out, n))
			}
			noted = len(im.Notes())
		}
		notes()
		co.Report = func(r rescue.Report) {
			notes()
			word := "partial"
			if r.Kind == rescue.Lost {
				word = "lost"
			}
			fmt.Fprintf(out, "%s: %s: %s\n", word, app.Shown(out, "/"+strings.TrimPrefix(r.Path, "/")), app.Shown(out, r.Why))
		}
		co.Begin = func(path string, begun uint64) { b.Set(fmt.Sprintf("rescue %d files", begun), begun, 0) }
		refused := func(path string, err error) {
			fmt.Fprintf(a.Err, "btrlab: left out: %s\n", app.Shown(a.Err, app.OneLine(fmt.Errorf("/%s: %w", path, err))))
		}
		var sum rescue.Summary
		var err error
		if asTar {
			sum, err = rescueTar(im, a.Out, dest, co, refused)
		} else {
			sum, err = rescueDir(im, dest, co, refused)
		}
		notes()
		if errors.Is(err, rescue.ErrNothing) {
			return nothingLeft(co.Under, match)
		}
		if err != nil {
			return err
		}
		a.printRescued(out, image, sum)
		if sum.Partial+sum.Lost > 0 {
			return app.ErrFound
		}
		return nil
	})
}

// nothingLeft is the error of a copy of a part that is not there.
func nothingLeft(under string, match []string) error {
	if len(match) > 0 {
		return fmt.Errorf("/%s: nothing matches %s", under, strings.Join(match, " or "))
	}
	return fmt.Errorf("/%s: no such file or directory is left; a copy of all has what lost its name in lost+found", under)
}

func rescueDir(im *rescue.Image, dest string, o rescue.CopyOptions, refused func(string, error)) (rescue.Summary, error) {
	_, there := os.Lstat(dest)
	to, err := transfer.NewLanding(dest)
	if err != nil {
		return rescue.Summary{}, err
	}
	to.Refused = refused
	sum, err := im.Copy(to, o)
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, rescue.ErrNothing) && there != nil {
		os.Remove(dest)
	}
	return sum, err
}

func rescueTar(im *rescue.Image, stdout io.Writer, dest string, o rescue.CopyOptions, refused func(string, error)) (sum rescue.Summary, err error) {
	write := func(w io.Writer) error {
		b := bufio.NewWriterSize(w, 1<<20)
		to := transfer.NewArchive(b)
		to.Refused = refused
		if sum, err = im.Copy(to, o); err != nil {
			return errors.Join(err, to.Close())
		}
		return errors.Join(to.Close(), b.Flush())
	}
	if dest == "-" {
		return sum, write(stdout)
	}
	err = app.ReplaceFile(dest, write)
	return sum, err
}

func (a verbs) printRescued(out io.Writer, image string, s rescue.Summary) {
	fmt.Fprintf(out, "%s: %s whole, %d partial, %d lost", image, prose.Count(s.Whole, "file"), s.Partial, s.Lost)
	if s.Already > 0 {
		fmt.Fprintf(out, ", %d already there", s.Already)
	}
	fmt.Fprintf(out, "; %s, %s\n", prose.Count(s.Dirs, "directory"), app.HumanSize(s.Bytes))
	if s.Plain > 0 {
		fmt.Fprintf(out, "  %s of the whole ones without checksums to compare with\n", prose.Count(s.Plain, "file"))
	}
	if s.Snapshots > 0 {
		fmt.Fprintf(out, "  %s left out: --snapshots copies them\n", prose.Count(s.Snapshots, "snapshot"))
	}
}

func (a verbs) rescueScan() *cobra.Command {
	var o rescue.Options
	return &cobra.Command{
		Use:   "scan IMAGE",
		Short: "list the superblocks, and the trees of which blocks are left",
		Long: `Scan reads the whole image and lists its superblocks and, for each tree, how many blocks with a right checksum there are,
the newest generation, where the newest root is, and the generations of the roots of which older states are left: those that
rescue copy --generation can begin with. Blocks that are not in use any more are counted as well.`,
		Example:           "  btrlab rescue scan disk.img",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Scan = true
			err := a.WithDevices(args[0], blockdev.ReadOnly, func(devs []blockdev.Device) error {
				for _, s := range raw.Supers(a.Task, devs...) {
					state := fmt.Sprintf("generation %d", s.Generation)
					if s.Err != nil {
						state = app.OneLine(s.Err)
					}
					fmt.Fprintf(a.Out, "superblock %d at %d: %s\n", s.Copy, s.Bytenr, app.Shown(a.Out, state))
				}
				return nil
			})
			if err != nil {
				return err
			}
			return a.withDamaged(args[0], o, "rescue", false, func(im *rescue.Image, _ *app.Bar) error {
				for _, n := range im.Notes() {
					fmt.Fprintln(a.Out, "note:", app.Shown(a.Out, n))
				}
				trees, err := im.Trees()
				if err != nil {
					return err
				}
				fmt.Fprintf(a.Out, "%-13s %8s %10s %14s %5s  %s\n", "tree", "blocks", "newest", "root", "level", "older roots")
				for _, t := range trees {
					older := ""
					if len(t.Generations) > 1 {
						older = strings.Trim(fmt.Sprint(t.Generations[1:]), "[]")
					}
					fmt.Fprintln(a.Out, strings.TrimRight(fmt.Sprintf("%-13s %8d %10d %14d %5d  %s", treeID(t.ID), t.Blocks, t.Newest, t.Root, t.Level, older), " "))
				}
				return nil
			})
		},
	}
}

func (a verbs) rescueChunkRecover() *cobra.Command {
	var dryRun bool
	var undo string
	cmd := &cobra.Command{
		Use:   "chunk-recover IMAGE",
		Short: "make the chunk tree anew",
		Long: `Chunk-recover scans the whole image and makes the chunk tree anew: of the chunk items that are left, and for the others of device extents and
block groups. A chunk whose stripes have an order, which device extents do not tell, is an error if its item is lost. The result is tried on a copy
in memory first; what was there before goes to the undo file, by which rescue undo brings it back. Check the image afterwards: check --repair puts
the rest right.`,
		Example:           "  btrlab rescue chunk-recover --dry-run disk.img",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "write nothing")
	cmd.Flags().StringVar(&undo, "undo", "", "the undo file, which must not be there (default IMAGE.undo)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := app.Check(cmd, app.Excludes("dry-run", "undo", "--dry-run writes no --undo")); err != nil {
			return err
		}
		b := a.NewBar("rescue", true)
		defer b.Done()
		o := rescue.Options{Stop: a.Interrupted, Progress: func(done, total uint64) { b.Set("scan", done, total) }}
		flags := blockdev.Flags(0)
		if dryRun {
			flags = blockdev.ReadOnly
		}
		return a.WithDevices(args[0], flags, func(devs []blockdev.Device) error {
			r, err := rescue.ChunkRecover(a.Task, devs, o)
			b.Done()
			switch {
			case err != nil:
				return err
			case r == nil:
				fmt.Fprintf(a.Out, "%s: the chunk tree is whole\n", args[0])
				return nil
			}
			for _, n := range r.Notes {
				fmt.Fprintln(a.Out, "note:", app.Shown(a.Out, n))
			}
			tail := "nothing is written"
			if !dryRun {
				file := cmp.Or(undo, args[0]+".undo")
				if err := a.keepUndo(file, func(w *rescue.UndoWriter, done func() error) error { return r.Commit(a.Task, w.Add, done) }); err != nil {
					return err
				}
				tail = "what was there is in " + file
			}
			fmt.Fprintf(a.Out, "%s: %s, %d of them lost before; %s\n", args[0], prose.Count(r.Chunks, "chunk"), r.Made, tail)
			return nil
		})
	}
	return cmd
}

func (a verbs) rescueUndo() *cobra.Command {
	return &cobra.Command{
		Use:               "undo IMAGE FILE",
		Short:             "take a repair back",
		Long:              `Undo writes back what was there before check --repair or rescue chunk-recover, from its undo file. What was written to the image since may be damaged by it.`,
		Example:           "  btrlab rescue undo disk.img disk.img.undo",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[1])
			if err != nil {
				return err
			}
			defer f.Close()
			return a.WithDevices(args[0], 0, func(devs []blockdev.Device) error {
				n, err := rescue.Undo(a.Task, devs, f)
				if err != nil {
					return app.Named(args[1], err)
				}
				fmt.Fprintf(a.Out, "%s: %s written back\n", args[0], app.HumanSize(uint64(n)))
				return nil
			})
		},
	}
}

// treeIDs are the names of trees that every file system has.
var treeIDs = map[uint64]string{
	format.ROOT_TREE_OBJECTID: "roots", format.EXTENT_TREE_OBJECTID: "extents", format.CHUNK_TREE_OBJECTID: "chunks", format.DEV_TREE_OBJECTID: "devices",
	format.FS_TREE_OBJECTID: "files", format.CSUM_TREE_OBJECTID: "checksums", format.QUOTA_TREE_OBJECTID: "quotas", format.UUID_TREE_OBJECTID: "uuids",
	format.FREE_SPACE_TREE_OBJECTID: "free space", format.BLOCK_GROUP_TREE_OBJECTID: "groups", format.TREE_LOG_OBJECTID: "log",
	format.DATA_RELOC_TREE_OBJECTID: "relocation",
}

// treeID is the number of a tree, with its name if it has one.
func treeID(id uint64) string {
	text := fmt.Sprint(int64(id))
	if name := treeIDs[id]; name != "" {
		text += " " + name
	}
	return text
}

func (a verbs) rescueFixSuper() *cobra.Command {
	return &cobra.Command{
		Use:               "fix-super IMAGE",
		Short:             "write a whole superblock over those that are not",
		Long:              `Fix-super writes the newest whole superblock of each device over its superblocks that are not whole. One that is whole stays as it is.`,
		Example:           "  btrlab rescue fix-super disk.img",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithDevices(args[0], 0, func(devs []blockdev.Device) error {
				fixed, err := rescue.FixSuper(a.Task, devs)
				for _, s := range fixed {
					fmt.Fprintf(a.Out, "%s: superblock %d at %d: written, generation %d\n", args[0], s.Copy, s.Bytenr, s.Generation)
				}
				if err == nil && len(fixed) == 0 {
					fmt.Fprintf(a.Out, "%s: every superblock is whole\n", args[0])
				}
				return err
			})
		},
	}
}

func (a verbs) rescueOlderRoot() *cobra.Command {
	var generation uint64
	cmd := &cobra.Command{
		Use:   "older-root IMAGE",
		Short: "go back to the root tree of an earlier transaction",
		Long: `Older-root makes the superblocks point at the root tree of an earlier transaction, one of the four that they keep. What was written
since is lost. Only its root block is looked at: later transactions may have written over other blocks of that state, so copy the image before,
and check it afterwards.`,
		Example:           "  btrlab rescue older-root disk.img",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithDevices(args[0], 0, func(devs []blockdev.Device) error {
				g, err := rescue.OlderRoot(a.Task, devs, generation)
				if err == nil {
					fmt.Fprintf(a.Out, "%s: root tree of generation %d\n", args[0], g)
				}
				return err
			})
		},
	}
	cmd.Flags().Uint64Var(&generation, "generation", 0, "that of this transaction (default the newest before the present one)")
	return cmd
}
