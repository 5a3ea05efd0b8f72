package image

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
)

func (a verbs) chown() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "chown UID:GID IMAGE:/path...",
		Short: "change the owner of files",
		Long: `Chown changes owner and group, as numbers: the users of this machine need not be those of the image. As in Linux setuid, setgid and
capabilities of a file go with its owner. A symbolic link is followed.`,
		Example: "  btrlab chown 1000:1000 disk.img:/home",
		Args:    cobra.MinimumNArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		own, err := parseOwner(args[0])
		if err == nil && own == nil {
			err = fmt.Errorf("no owner, want UID:GID")
		}
		if err != nil {
			return app.Usagef(cmd, "%v", err)
		}
		return a.EachImage(cmd, args[1:], func(x *fs.FS, path string) error { return a.giveAway(x, path, *own) })
	}
	return cmd
}

// giveAway changes the owner of path, and takes setuid and setgid away from what is no directory.
// Models chown_common().
func (a verbs) giveAway(x *fs.FS, path string, own fs.Owner) error {
	at, err := x.Stat(a.Task, path)
	if err != nil {
		return err
	}
	if err := x.Chown(a.Task, path, own.UID, own.GID); err != nil || at.IsDir() {
		return err
	}
	mode := at.Mode & 0o7777 &^ 0o4000
	if mode&0o010 != 0 { // setgid without it is a mandatory lock, which stays
		mode &^= 0o2000
	}
	if mode == at.Mode&0o7777 {
		return nil
	}
	return x.Chmod(a.Task, path, mode)
}
