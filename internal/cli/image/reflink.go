package image

import (
	"errors"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/script"
	"btrlab/internal/transfer"
)

func (a verbs) reflink() *cobra.Command {
	var offset, length, dest app.ByteSize
	cmd := &cobra.Command{
		Use:   "reflink IMAGE:/source /dest",
		Short: "make a file, or a range of it, share the data of another",
		Long: `Reflink makes /dest a file with the contents of the source that shares its extents, as cp --reflink. With a range it
shares only that, as the reflink of xfs_io, and /dest is made if it is not there. Offsets and lengths are multiples
of 4k; a range may end at the end of the source if /dest is not longer.`,
		Example: `  btrlab reflink disk.img:/vm.img /vm-copy.img
  btrlab reflink --offset 1M --length 64k --to 0 disk.img:/a /b`,
		Args: cobra.ExactArgs(2),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().Var(&offset, "offset", "start of the range in the source (default 0)")
	cmd.Flags().Var(&length, "length", "length of the range (default up to the end of the source)")
	cmd.Flags().Var(&dest, "to", "start of the range in /dest (default that in the source)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, from, to, err := a.TwoPaths(cmd, args)
		if err != nil {
			return err
		}
		if length.Given && length.N == 0 {
			return app.Usagef(cmd, "bad --length, have 0 want at least 1")
		}
		whole := !offset.Given && !length.Given && !dest.Given
		if !dest.Given {
			dest.N = offset.N
		}
		return a.WriteFS(image, func(x *fs.FS) error {
			to := script.IntoDir(a.Task, x, from, to)
			return app.InImage(image, to, a.reflinkFile(x, from, to, offset.N, length.N, dest.N, whole))
		})
	}
	return cmd
}

// reflinkFile makes a range of to share what from has. A file that it makes takes permissions and
// NOCOW from the source, because a file with checksums shares nothing with one without, and the
// rest from its directory; whole replaces what to has.
func (a verbs) reflinkFile(x *fs.FS, from, to string, off, n, at int64, whole bool) (err error) {
	src, err := x.OpenFile(a.Task, from, fs.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer closeInto(a, src, &err)
	st := src.Stat(a.Task)
	dst, err := x.OpenFile(a.Task, to, fs.O_RDWR|fs.O_CREAT|fs.O_EXCL, transfer.ModeOfNew(st.Mode))
	made := err == nil
	if errors.Is(err, errno.EEXIST) {
		dst, err = x.OpenFile(a.Task, to, fs.O_RDWR, 0)
	}
	if err != nil {
		return err
	}
	defer closeInto(a, dst, &err)
	const nocow = format.InodeNoDataCow | format.InodeNoDataSum
	if have := dst.Flags(); made && (have^st.Flags)&nocow != 0 {
		// What the directory says of compression gives way to NOCOW.
		if st.Flags&nocow != 0 && have&compress.FlagsOfProperty != 0 {
			have &^= compress.FlagsOfProperty
			if err := dst.SetFlags(a.Task, have); err != nil {
				return err
			}
		}
		if err := dst.SetFlags(a.Task, have&^nocow|st.Flags&nocow); err != nil {
			return err
		}
	}
	if whole {
		return dst.ReflinkAll(a.Task, src)
	}
	return dst.Reflink(a.Task, src, off, n, at)
}

// closeInto closes f and keeps the first error.
func closeInto(a verbs, f *fs.File, err *error) {
	if cerr := f.Close(a.Task); *err == nil {
		*err = cerr
	}
}
