package cli

import (
	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/progs/dump"
)

func (a *app) info() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "info IMAGE",
		Short:   "show label, identifiers, features and space of an image",
		Example: "  btrlab info disk.img",
		Args:    cobra.ExactArgs(1),
	}
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		info, err := a.readInfo(args[0])
		if err != nil {
			return err
		}
		if asJSON {
			return a.printJSON(info)
		}
		info.Label = shown(a.out, info.Label)
		dump.PrintInfo(a.out, info)
		return nil
	}
	return cmd
}

func (a *app) readInfo(image string) (info dump.Info, err error) {
	err = a.withDevices(image, blockdev.ReadOnly, func(devs []blockdev.Device) (err error) {
		info, err = dump.ReadInfo(a.t, devs[0], devs[1:]...)
		return err
	})
	return info, err
}
