package image

import (
	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/progs/dump"
)

func (a verbs) info() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "info IMAGE",
		Short:   "show label, identifiers, features and space of an image",
		Example: "  btrlab info disk.img",
		Args:    cobra.ExactArgs(1),
	}
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		info, err := a.readInfo(args[0])
		if err != nil {
			return err
		}
		if asJSON {
			return a.PrintJSON(info)
		}
		info.Label = app.Shown(a.Out, info.Label)
		dump.PrintInfo(a.Out, info)
		return nil
	}
	return cmd
}

func (a verbs) readInfo(image string) (info dump.Info, err error) {
	err = a.WithDevices(image, blockdev.ReadOnly, func(devs []blockdev.Device) (err error) {
		info, err = dump.ReadInfo(a.Task, devs[0], devs[1:]...)
		return err
	})
	return info, err
}
