package image

import (
	"bufio"
	"io"
	"os"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

func (a verbs) receive() *cobra.Command {
	var file string
	var verbose, dump bool
	cmd := &cobra.Command{
		Use:   "receive IMAGE[:/path] | receive --dump",
		Short: "make the subvolumes that btrfs send, or send here, describes",
		Long: `Receive reads the stream of btrfs send, or of the verb send, and makes the subvolume that it describes in the directory
/path, default /, with its owners, modes, times, extended attributes, links and devices. It is read-only then. An incremental
stream needs the parent in the image: received before, or itself. Streams may follow each other. Versions 1 and 2 are read, with
compressed data; fs-verity is refused, and inode flags are left out, as by btrfs receive.

A stream that is cut short or damaged, or a parent that is missing, is an error that names the byte and the command: what was
made of that subvolume is deleted again.
With --dump it makes nothing and prints the commands of the stream, a line each, as btrfs receive --dump does.`,
		Example: `  btrlab send disk.img:/backup/monday | btrlab receive other.img
  btrlab receive -f snap.stream disk.img:/vm
  btrlab receive --dump -f snap.stream`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().StringVarP(&file, "file", "f", "", "read the stream from this file instead of standard input")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print the path of each subvolume")
	cmd.Flags().BoolVar(&dump, "dump", false, "print the commands of the stream, and make nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		switch {
		case dump && len(args) > 0:
			return app.Usagef(cmd, "--dump needs no image, have %q", args[0])
		case !dump && len(args) == 0:
			return app.Usagef(cmd, "have 0 arguments, want IMAGE[:/path]")
		}
		var in io.Reader
		if file != "" && file != "-" {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			in = f
		} else {
			in = a.Stdin()
		}
		if dump {
			return transfer.DumpStream(a.Out, bufio.NewReaderSize(in, 1<<20), a.Interrupted)
		}
		image, path, _ := a.SplitSpec(args[0])
		return a.WriteFS(image, func(x *fs.FS) error {
			w := &watcher{verbs: a, verb: "receive", verbose: verbose}
			return app.InImage(image, path, transfer.Receive(a.Task, x, w, bufio.NewReaderSize(in, 1<<20), path))
		})
	}
	a.SmallCacheFlag(cmd, 64<<20)
	return cmd
}
