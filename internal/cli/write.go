package cli

import (
	"github.com/spf13/cobra"

	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

func (a *app) write() *cobra.Command {
	var offset byteSize
	var data string
	cmd := &cobra.Command{
		Use:   "write IMAGE:/path",
		Short: "write standard input into an existing file at an offset",
		Example: `  echo hello | btrlab write --offset 4k disk.img:/file
  btrlab write --offset 10 --data hello disk.img:/file`,
		Args: cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.completeSpec
	cmd.Flags().Var(&offset, "offset", "where in the file the data goes (default 0)")
	cmd.Flags().StringVar(&data, "data", "", "write this text instead of standard input")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := fileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		return a.onFile(image, path, func(_ *fs.FS, f *fs.File) error {
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
