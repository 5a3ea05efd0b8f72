package image

import (
	"errors"
	"fmt"
	gopath "path"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

func (a verbs) rm() *cobra.Command {
	var recursive, force bool
	cmd := &cobra.Command{
		Use:   "rm IMAGE:/path...",
		Short: "delete files, or trees with -r",
		Long: `Rm deletes files, and with -r directories with everything below. Of a directory with a subvolume in it nothing is deleted. Rm goes on after
what it cannot delete, says so of each, and exits with 1.`,
		Example: "  btrlab rm -r disk.img:/tmp",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "delete directories with everything below")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "no error when it is not there")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			if a.Open == nil {
				break
			}
			if name, ok := a.Open.Mounted(gopath.Clean(arg)); ok {
				return fmt.Errorf("rm %s: %s is mounted there, umount it first: %w", arg, name, errno.EBUSY)
			}
		}
		return a.EachImage(cmd, args, func(x *fs.FS, path string) error {
			at, err := x.Lstat(a.Task, path)
			if force && errors.Is(err, errno.ENOENT) {
				return nil
			}
			if err != nil {
				return err
			}
			if !at.IsDir() {
				return x.Unlink(a.Task, path)
			}
			if !recursive {
				return errors.New("is a directory, want -r")
			}
			if err := a.nestedSubvolume(x, path); err != nil { // before the first file is gone
				return err
			}
			if at.Ino == format.FIRST_FREE_OBJECTID && path != "/" {
				return errors.New("is a subvolume, want btrlab subvolume delete for it")
			}
			if err := a.rmTree(x, path); err != nil || path == "/" {
				return err
			}
			return x.Rmdir(a.Task, path)
		})
	}
	a.CacheFlag(cmd)
	return cmd
}

// rmTree empties the directory path. It goes on after what it cannot delete, and leaves the
// directories above that.
func (a verbs) rmTree(x *fs.FS, path string) error {
	var failed app.Several
	failed.Add(a.eachName(x, path, func(full string, e fs.DirEntry) error {
		failed.Add(a.rmName(x, full, e))
		return nil // eachName ends after an interrupt
	}))
	return failed.Err()
}

// rmName deletes the name full, with everything below.
func (a verbs) rmName(x *fs.FS, full string, e fs.DirEntry) error {
	at, err := x.Lstat(a.Task, full)
	if e.Subvol != 0 && errors.Is(err, errno.ENOENT) {
		return x.Rmdir(a.Task, full)
	}
	if err != nil {
		return err
	}
	if !at.IsDir() {
		return x.Unlink(a.Task, full)
	}
	if err := a.rmTree(x, full); err != nil {
		return err
	}
	return x.Rmdir(a.Task, full)
}

// nestedSubvolume is an error that names a subvolume below the directory path.
func (a verbs) nestedSubvolume(x *fs.FS, path string) error {
	return a.eachName(x, path, func(full string, e fs.DirEntry) error {
		if e.Subvol != 0 {
			if _, err := x.Lstat(a.Task, full); errors.Is(err, errno.ENOENT) {
				return nil // the place of a subvolume of the original: an empty directory
			}
			return fmt.Errorf("has the subvolume %s, want btrlab subvolume delete for it", full)
		}
		if e.Type != format.FtDir {
			return nil
		}
		return a.nestedSubvolume(x, full)
	})
}

// eachName calls f with the full path and the entry of each name in the directory path, until an
// error or an interrupt.
func (a verbs) eachName(x *fs.FS, path string, f func(full string, e fs.DirEntry) error) error {
	list, err := x.ReadDir(a.Task, path)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := a.Interrupted(); err != nil {
			return err
		}
		if err := f(gopath.Join(path, e.Name), e); err != nil {
			return err
		}
	}
	return nil
}
