package cli

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

func (a *app) cat() *cobra.Command {
	var offset, length byteSize
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
	cmd.ValidArgsFunction = a.completeSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if how.nowait && !length.set {
			return usagef(cmd, "--nowait is of one request, want --length")
		}
		for _, arg := range args {
			image, path, err := a.fileSpec(cmd, arg)
			if err != nil {
				return err
			}
			err = a.readFS(image, func(x *fs.FS) error {
				f, err := x.OpenFile(a.t, path, fs.O_RDONLY|directFlag(how.direct), 0)
				if err != nil {
					return inImage(image, path, err)
				}
				err = a.catFile(f, offset.n, length, how)
				if cerr := f.Close(a.t); err == nil {
					err = cerr
				}
				return inImage(image, path, err)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	a.smallCacheFlag(cmd, 32<<20)
	return cmd
}

// catRequest bounds what one request of cat reads, in bytes.
const catRequest = 1 << 20

// catFile writes a file from off on to the output: all of it, or length bytes.
func (a *app) catFile(f *fs.File, off int64, length byteSize, how requestFlags) error {
	if off == 0 && !length.set {
		return transfer.Read(a.t, &watcher{app: a}, f, a.out)
	}
	left := length.n
	if !length.set {
		left = max(f.Size(a.t)-off, 0)
	}
	p := make([]byte, min(left, max(f.Size(a.t)-off, 0)))
	if !length.set {
		p = p[:min(len(p), catRequest)]
	}
	for left > 0 && len(p) > 0 {
		if err := a.interrupted(); err != nil {
			return err
		}
		n, err := f.ReadIter(a.t, how.request(off), p[:min(int64(len(p)), left)])
		if _, werr := a.out.Write(p[:n]); werr != nil {
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
