package image

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/rescue"
)

func (a verbs) uuid() *cobra.Command {
	return &cobra.Command{
		Use:   "uuid IMAGE [UUID|random]",
		Short: "show the identifier of a file system, or change it",
		Long: `Uuid changes the identifier in the superblocks; tree blocks keep the old one, as after btrfstune -M, so it takes no time.
Linux reads such a file system since 5.0. Two images of one identifier cannot be mounted together.`,
		Example: "  btrlab uuid copy.img random",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.ReadFS(args[0], func(x *fs.FS) error {
					s := x.Super(a.Task)
					_, err := fmt.Fprintln(a.Out, s.FSID)
					return err
				})
			}
			if a.Open != nil {
				return errors.New("uuid: the image is open, want it alone")
			}
			id, ok := format.ParseUUID(args[1])
			if args[1] == "random" {
				rand.Read(id[:]) // does not fail
				id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
				ok = true
			}
			if !ok || id.IsZero() {
				return app.Usagef(cmd, "uuid %q, want eight, four, four, four and twelve hexadecimal digits with - between, or random", args[1])
			}
			return a.WithDevices(args[0], 0, func(devs []blockdev.Device) error {
				if err := rescue.SetFSID(a.Task, id, devs...); err != nil {
					return err
				}
				_, err := fmt.Fprintln(a.Out, id)
				return err
			})
		},
	}
}
