package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

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
					return &notEmptyError{path, at.Size}
				}
				return err
			}
			return nil
		})
	}
	return cmd
}

// notEmptyError says that copy-on-write cannot be switched for a file that has data.
type notEmptyError struct {
	path string
	size uint64
}

func (e *notEmptyError) Error() string {
	return fmt.Sprintf("%s has %d bytes, want an empty file: %v", e.path, e.size, errno.EINVAL)
}

func (e *notEmptyError) Unwrap() error { return errno.EINVAL }
