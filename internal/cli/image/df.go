package image

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/progs/dump"
)

func (a verbs) df() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "df IMAGE",
		Short: "show the space of an image by what it is used for",
		Long: `Df shows the space of an image by what it is used for, as file bytes: a byte with two copies counts once. Unallocated
are bytes of the devices, of which a profile with two copies makes half as many.`,
		Example: "  btrlab df disk.img",
		Args:    cobra.ExactArgs(1),
	}
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		info, err := a.readInfo(args[0])
		if err != nil {
			return err
		}
		type result struct {
			Size        uint64       `json:"size"`
			Used        uint64       `json:"used"`
			Unallocated uint64       `json:"unallocated"`
			Usage       []dump.Usage `json:"usage"`

			Devices []dump.DeviceInfo `json:"devices"`
		}
		r := result{info.TotalBytes, info.BytesUsed, info.TotalBytes - info.Allocated, info.Usage, info.Devices}
		if asJSON {
			return a.PrintJSON(r)
		}
		w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
		fmt.Fprintf(w, "type\tprofile\ttotal\tused\tfree\n")
		for _, u := range r.Usage {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", u.Type, u.Profile, app.HumanSize(u.Total), app.HumanSize(u.Used), app.HumanSize(u.Total-u.Used))
		}
		fmt.Fprintf(w, "unallocated\t\t%s\t\t\n", app.HumanSize(r.Unallocated))
		for _, d := range r.Devices {
			if len(r.Devices) > 1 {
				fmt.Fprintf(w, "device %d\t\t%s\t%s\t%s\n", d.Devid, app.HumanSize(d.Size), app.HumanSize(d.Allocated), app.HumanSize(d.Size-d.Allocated))
			}
		}
		return w.Flush()
	}
	return cmd
}
