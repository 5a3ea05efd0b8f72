package image

import (
	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
)

func (a verbs) fallocate() *cobra.Command {
	var offset, length app.ByteSize
	var keep, punch, zero bool
	cmd := &cobra.Command{
		Use:   "fallocate --length N IMAGE:/path",
		Short: "reserve space in a file, or punch a hole",
		Example: `  btrlab fallocate --length 64M disk.img:/file
  btrlab fallocate --punch-hole --offset 1M --length 1M disk.img:/file`,
		Args: cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	fl := cmd.Flags()
	fl.Var(&offset, "offset", "start of the range (default 0)")
	fl.Var(&length, "length", "length of the range (required)")
	fl.BoolVar(&keep, "keep-size", false, "do not make the file longer")
	fl.BoolVar(&punch, "punch-hole", false, "free the range; it reads as zeros")
	fl.BoolVar(&zero, "zero-range", false, "make the range read as zeros and keep it reserved")
	cmd.MarkFlagsMutuallyExclusive("punch-hole", "zero-range")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.FileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		if length.N == 0 {
			return app.Usagef(cmd, "no length, want --length N")
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
		return a.OnFile(image, path, 0, func(_ *fs.FS, f *fs.File) error {
			return f.Fallocate(a.Task, mode, offset.N, length.N)
		})
	}
	return cmd
}
