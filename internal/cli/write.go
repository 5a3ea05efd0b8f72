package cli

import (
	"github.com/spf13/cobra"

	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

func (a *app) write() *cobra.Command {
	var offset byteSize
	var data string
	var app, direct bool
	cmd := &cobra.Command{
		Use:   "write IMAGE:/path",
		Short: "write standard input into an existing file at an offset, or at its end",
		Example: `  echo hello | btrlab write --offset 4k disk.img:/file
  btrlab write --offset 10 --data hello disk.img:/file
  date | btrlab write --append disk.img:/log`,
		Args: cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.completeSpec
	cmd.Flags().Var(&offset, "offset", "where in the file the data goes (default 0)")
	cmd.Flags().StringVar(&data, "data", "", "write this text instead of standard input")
	cmd.Flags().BoolVar(&app, "append", false, "write at the end of the file (the only place under chattr +a)")
	cmd.Flags().BoolVar(&direct, "direct", false, "write whole blocks past the page cache (O_DIRECT)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := fileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		if app && offset.set {
			return usagef(cmd, "--append and --offset, want one")
		}
		flags := directFlag(direct)
		if app {
			flags |= fs.O_APPEND
		}
		return a.onFile(image, path, flags, func(_ *fs.FS, f *fs.File) error {
			if cmd.Flags().Changed("data") {
				_, err := f.WriteAt(a.t, []byte(data), offset.n)
				return err
			}
			return transfer.Write(a.t, &watcher{app: a}, f, a.stdin(), offset.n)
		})
	}
	a.cacheFlag(cmd)
	return cmd
}
