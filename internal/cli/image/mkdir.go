package image

import (
	"errors"
	gopath "path"
	"strconv"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
)

func (a verbs) mkdir() *cobra.Command {
	var parents bool
	var mode string
	cmd := &cobra.Command{
		Use:     "mkdir IMAGE:/path...",
		Short:   "make directories",
		Example: "  btrlab mkdir -p disk.img:/var/lib/data",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "make missing parents; no error when it is there")
	cmd.Flags().StringVarP(&mode, "mode", "m", "755", "permissions, octal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		perm, err := strconv.ParseUint(mode, 8, 12)
		if err != nil {
			return app.Usagef(cmd, "mode %q, want an octal number up to 7777", mode)
		}
		return a.EachImage(cmd, args, func(x *fs.FS, path string) error {
			if parents {
				return a.mkdirAll(x, path, uint32(perm))
			}
			return x.Mkdir(a.Task, path, uint32(perm))
		})
	}
	return cmd
}

func (a verbs) mkdirAll(x *fs.FS, path string, perm uint32) error {
	at, err := x.Stat(a.Task, path)
	switch {
	case err == nil && at.IsDir():
		return nil
	case err == nil:
		return errno.ENOTDIR
	case !errors.Is(err, errno.ENOENT):
		return err
	}
	if err := a.mkdirAll(x, gopath.Dir(path), 0o755); err != nil {
		return err
	}
	return x.Mkdir(a.Task, path, perm)
}
