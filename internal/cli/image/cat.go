package image

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

func (a verbs) cat() *cobra.Command {
	var offset, length app.ByteSize
	var how requestFlags
	cmd := &cobra.Command{
		Use:   "cat IMAGE:/path...",
		Short: "write files, or a range of one, to standard output",
		Example: `  btrlab cat disk.img:/etc/passwd
  btrlab cat --offset 4k --length 16 disk.img:/file`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.Flags().Var(&offset, "offset", "where in the file to begin (default 0)")
	cmd.Flags().Var(&length, "length", "read so many bytes, in one request")
	how.flags(cmd, "read past the page cache (O_DIRECT)")
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := app.Check(cmd, app.Needs("nowait", "length", "--nowait is of one request, want --length")); err != nil {
			return err
		}
		for _, arg := range args {
			image, path, err := a.FileSpec(cmd, arg)
			if err != nil {
				return err
			}
			err = a.ReadFS(image, func(x *fs.FS) error {
				f, err := x.OpenFile(a.Task, path, fs.O_RDONLY|directFlag(how.direct), 0)
				if err != nil {
					return app.InImage(image, path, err)
				}
				err = a.catFile(f, offset.N, length, how)
				if cerr := f.Close(a.Task); err == nil {
					err = cerr
				}
				return app.InImage(image, path, err)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	a.SmallCacheFlag(cmd, 32<<20)
	return cmd
}

// catRequest bounds what one request of cat reads, in bytes.
const catRequest = 1 << 20

// catFile writes a file from off on to the output: all of it, or length bytes.
func (a verbs) catFile(f *fs.File, off int64, length app.ByteSize, how requestFlags) error {
	if off == 0 && !length.Given {
		return transfer.Read(a.Task, &watcher{verbs: a}, f, a.Out)
	}
	left := length.N
	if !length.Given {
		left = max(f.Size(a.Task)-off, 0)
	}
	p := make([]byte, min(left, max(f.Size(a.Task)-off, 0)))
	if !length.Given {
		p = p[:min(len(p), catRequest)]
	}
	for left > 0 && len(p) > 0 {
		if err := a.Interrupted(); err != nil {
			return err
		}
		n, err := f.ReadIter(a.Task, how.request(off), p[:min(int64(len(p)), left)])
		if _, werr := a.Out.Write(p[:n]); werr != nil {
			return werr
		}
		if off, left = off+int64(n), left-int64(n); errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// directFlag is O_DIRECT if on.
func directFlag(on bool) fs.OpenFlags {
	if on {
		return fs.O_DIRECT
	}
	return 0
}
