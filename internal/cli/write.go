package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
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
		return a.onFile(image, path, func(x *fs.FS, f *fs.File) error {
			if cmd.Flags().Changed("data") {
				_, err := f.WriteAt(a.t, []byte(data), offset.n)
				return err
			}
			p := &putter{app: a, x: x}
			return p.copyAt(f, a.stdin(), offset.n)
		})
	}
	return cmd
}

func (a *app) truncate() *cobra.Command {
	var size byteSize
	cmd := &cobra.Command{
		Use:     "truncate --size N IMAGE:/path",
		Short:   "set the size of a file",
		Example: "  btrlab truncate --size 1M disk.img:/file",
		Args:    cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.completeSpec
	cmd.Flags().Var(&size, "size", "the new size (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := fileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		if !size.set {
			return usagef(cmd, "no size, want --size N")
		}
		return a.onFile(image, path, func(_ *fs.FS, f *fs.File) error { return f.Truncate(a.t, size.n) })
	}
	return cmd
}

func (a *app) fallocate() *cobra.Command {
	var offset, length byteSize
	var keep, punch, zero bool
	cmd := &cobra.Command{
		Use:   "fallocate --length N IMAGE:/path",
		Short: "reserve space in a file, or punch a hole",
		Example: `  btrlab fallocate --length 64M disk.img:/file
  btrlab fallocate --punch-hole --offset 1M --length 1M disk.img:/file`,
		Args: cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.completeSpec
	fl := cmd.Flags()
	fl.Var(&offset, "offset", "start of the range (default 0)")
	fl.Var(&length, "length", "length of the range (required)")
	fl.BoolVar(&keep, "keep-size", false, "do not make the file longer")
	fl.BoolVar(&punch, "punch-hole", false, "free the range; it reads as zeros")
	fl.BoolVar(&zero, "zero-range", false, "make the range read as zeros and keep it reserved")
	cmd.MarkFlagsMutuallyExclusive("punch-hole", "zero-range")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := fileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		if length.n == 0 {
			return usagef(cmd, "no length, want --length N")
		}
		var mode uint32
		if keep || punch {
			mode |= fs.FALLOC_FL_KEEP_SIZE
		}
		if punch {
			mode |= fs.FALLOC_FL_PUNCH_HOLE
		}
		if zero {
			mode |= fs.FALLOC_FL_ZERO_RANGE
		}
		return a.onFile(image, path, func(_ *fs.FS, f *fs.File) error {
			return f.Fallocate(a.t, mode, offset.n, length.n)
		})
	}
	return cmd
}

func (a *app) chattr() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "chattr +C|-C IMAGE:/path...",
		Short: "switch copy-on-write of an empty file, or of what is made in a directory, off (+C) or on (-C)",
		Example: `  btrlab chattr +C disk.img:/vm
  btrlab chattr -C disk.img:/vm`,
		Args: cobra.MinimumNArgs(1),
	}
	minus := cmd.Flags().BoolP("cow", "C", false, "-C: copy on write again")
	cmd.Flags().MarkHidden("cow")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 && !*minus {
			return []string{"+C", "-C"}, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completeSpec(cmd, args, word)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		set := !*minus
		if set {
			if args[0] != "+C" {
				return usagef(cmd, "attribute %q, want +C or -C", args[0])
			}
			args = args[1:]
		}
		if len(args) == 0 {
			return usagef(cmd, "no file, want IMAGE:/path")
		}
		return a.eachImage(cmd, args, func(x *fs.FS, path string) error {
			at, err := x.Stat(a.t, path)
			if err != nil {
				return err
			}
			flags := at.Flags &^ format.InodeNoDataCow
			if set {
				flags |= format.InodeNoDataCow
			}
			if flags == at.Flags {
				return nil
			}
			if err := x.SetFlags(a.t, path, flags); err != nil {
				if at.IsRegular() && at.Size > 0 && errors.Is(err, errno.EINVAL) {
					return fmt.Errorf("%s has %d bytes, want an empty file: %w", path, at.Size, errno.EINVAL)
				}
				return err
			}
			return nil
		})
	}
	return cmd
}

// onFile runs f on an existing file opened for writing.
func (a *app) onFile(image, path string, f func(x *fs.FS, file *fs.File) error) error {
	return a.writeFS(image, func(x *fs.FS) error {
		file, err := x.OpenFile(a.t, path, fs.O_RDWR, 0)
		if err != nil {
			return inImage(image, path, err)
		}
		err = f(x, file)
		if cerr := file.Close(a.t); err == nil {
			err = cerr
		}
		return inImage(image, path, err)
	})
}
