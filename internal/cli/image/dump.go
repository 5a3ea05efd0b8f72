package image

import (
	"bufio"
	"io"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/progs/dump"
	"btrlab/internal/sched"
)

func (a verbs) dump() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "print the structures of an image as they are on disk",
		Example: `  btrlab dump super disk.img
  btrlab dump chunks disk.img
  btrlab dump tree fs disk.img
  btrlab dump log disk.img`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return app.Usagef(cmd, "what to dump? want super, chunks, tree or log")
			}
			return app.Usagef(cmd, "there is no dump %q, want super, chunks, tree or log", args[0])
		},
	}
	part := func(use, short, example string, nargs int, f func(t *sched.Task, w io.Writer, devs []blockdev.Device, args []string) error) {
		cmd.AddCommand(&cobra.Command{
			Use: use, Short: short, Example: "  " + example, Args: cobra.ExactArgs(nargs),
			RunE: func(cmd *cobra.Command, args []string) error {
				w := bufio.NewWriterSize(a.Out, 64<<10)
				var text io.Writer = w
				if app.IsTerminal(a.Out) {
					text = app.LineWriter{W: w}
				}
				err := a.WithDevices(args[nargs-1], blockdev.ReadOnly, func(devs []blockdev.Device) error {
					return f(a.Task, text, devs, args)
				})
				if ferr := w.Flush(); err == nil {
					err = ferr
				}
				return err
			},
		})
	}
	part("super IMAGE", "print the superblock", "btrlab dump super disk.img", 1,
		func(t *sched.Task, w io.Writer, devs []blockdev.Device, args []string) error {
			return dump.Super(t, w, devs[0])
		})
	part("chunks IMAGE", "print the chunk map", "btrlab dump chunks disk.img", 1,
		func(t *sched.Task, w io.Writer, devs []blockdev.Device, args []string) error {
			return dump.Chunks(t, w, devs[0], devs[1:]...)
		})
	part("tree NAME IMAGE", "print a tree, item by item: root, extent, chunk, dev, fs, csum, free-space or a number",
		"btrlab dump tree fs disk.img", 2,
		func(t *sched.Task, w io.Writer, devs []blockdev.Device, args []string) error {
			return dump.Tree(t, w, devs[0], args[0], devs[1:]...)
		})
	part("log IMAGE", "print what fsync logged after the last commit: the tree of logs and each log", "btrlab dump log disk.img", 1,
		func(t *sched.Task, w io.Writer, devs []blockdev.Device, args []string) error {
			return dump.Log(t, w, devs[0], devs[1:]...)
		})
	return cmd
}
