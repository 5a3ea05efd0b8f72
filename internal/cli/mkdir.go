package cli

import (
	"errors"
	gopath "path"
	"strconv"

	"github.com/spf13/cobra"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
)

func (a *app) mkdir() *cobra.Command {
	var parents bool
	var mode string
	cmd := &cobra.Command{
		Use:     "mkdir IMAGE:/path...",
		Short:   "make directories",
		Example: "  btrlab mkdir -p disk.img:/var/lib/data",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.ValidArgsFunction = a.completeSpec
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "make missing parents; no error when it is there")
	cmd.Flags().StringVarP(&mode, "mode", "m", "755", "permissions, octal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		perm, err := strconv.ParseUint(mode, 8, 12)
		if err != nil {
			return usagef(cmd, "mode %q, want an octal number up to 7777", mode)
		}
		return a.eachImage(cmd, args, func(x *fs.FS, path string) error {
			if parents {
				return a.mkdirAll(x, path, uint32(perm))
			}
			return x.Mkdir(a.t, path, uint32(perm))
		})
	}
	return cmd
}

func (a *app) mkdirAll(x *fs.FS, path string, perm uint32) error {
	at, err := x.Stat(a.t, path)
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
	return x.Mkdir(a.t, path, perm)
}

// eachImage calls f for each IMAGE:/path of args, and opens an image once for a run of arguments
// that name it. It goes on after an error.
func (a *app) eachImage(cmd *cobra.Command, args []string, f func(x *fs.FS, path string) error) error {
	type target struct{ image, path string }
	targets := make([]target, len(args))
	for i, arg := range args {
		image, path, err := a.fileSpec(cmd, arg)
		if err != nil {
			return err
		}
		targets[i] = target{image, path}
	}
	var failed several
	for len(targets) > 0 {
		image, n := targets[0].image, 1
		for n < len(targets) && targets[n].image == image {
			n++
		}
		err := a.writeFS(image, func(x *fs.FS) error {
			var failed several
			for _, g := range targets[:n] {
				if !failed.add(a.interrupted()) {
					break
				}
				each(f(x, g.path), func(err error) { failed.add(inImage(image, g.path, err)) })
			}
			return failed.err()
		})
		if !failed.add(err) {
			break
		}
		targets = targets[n:]
	}
	return failed.err()
}
