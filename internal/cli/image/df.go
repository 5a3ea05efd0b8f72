package image

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/progs/dump"
)

func (a verbs) df() *cobra.Command {
	var asJSON, devices, raw bool
	cmd := &cobra.Command{
		Use:   "df IMAGE",
		Short: "show the space of an image by what it is used for",
		Long: `Df shows the space of an image by what it is used for, as file bytes: a byte with two copies counts once. Unallocated
are bytes of the devices, of which a profile with two copies makes half as many. With --devices it is the table of btrfs filesystem usage -T:
what each device gives to each type and profile, and below that file bytes.`,
		Example: `  btrlab df disk.img
  btrlab df --devices a.img --device b.img`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVarP(&devices, "devices", "T", false, "print a table of the devices by type and profile")
	cmd.Flags().BoolVarP(&raw, "raw", "b", false, "print bytes")
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
		size := app.HumanSize
		if raw {
			size = func(n uint64) string { return fmt.Sprint(n) }
		}
		if devices {
			return a.printDevices(info, size)
		}
		w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
		fmt.Fprintf(w, "type\tprofile\ttotal\tused\tfree\n")
		for _, u := range r.Usage {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", u.Type, u.Profile, size(u.Total), size(u.Used), size(u.Total-u.Used))
		}
		fmt.Fprintf(w, "unallocated\t\t%s\t\t\n", size(r.Unallocated))
		for _, d := range r.Devices {
			if len(r.Devices) > 1 {
				fmt.Fprintf(w, "device %d\t\t%s\t%s\t%s\n", d.Devid, size(d.Size), size(d.Allocated), size(d.Size-d.Allocated))
			}
		}
		return w.Flush()
	}
	return cmd
}

// typeNames are the names of btrfs-progs for types of chunks.
var typeNames = map[string]string{"data": "Data", "metadata": "Metadata", "system": "System", "mixed": "Data+Metadata"}

// printDevices prints the table of btrfs filesystem usage -T.
func (a verbs) printDevices(info dump.Info, size func(n uint64) string) error {
	part := func(n uint64) string {
		if n == 0 {
			return "-"
		}
		return size(n)
	}
	head, names := []string{"", ""}, []string{"Id", "Path"}
	total, used := []string{"", "Total"}, []string{"", "Used"}
	for _, u := range info.Usage {
		profile := u.Profile
		if profile != "single" {
			profile = strings.ToUpper(profile)
		}
		head, names = append(head, cmp.Or(typeNames[u.Type], u.Type)), append(names, profile)
		total, used = append(total, size(u.Total)), append(used, size(u.Used))
	}
	head, names = append(head, "", "", ""), append(names, "Unallocated", "Total", "Slack")
	rows := [][]string{head, names, nil}
	var free, all, slack uint64
	for _, d := range info.Devices {
		row := []string{fmt.Sprint(d.Devid), app.Shown(a.Out, cmp.Or(d.Name, "missing"))}
		allocated := uint64(0)
		for _, n := range d.Parts {
			row, allocated = append(row, part(n)), allocated+n
		}
		left := max(d.Size, allocated) - allocated
		rows = append(rows, append(row, size(left), size(d.Size), part(d.Slack)))
		free, all, slack = free+left, all+d.Size, slack+d.Slack
	}
	rows = append(rows, nil, append(total, size(free), size(all), size(slack)), append(used, "", "", ""))
	return a.printTable(rows)
}

// printTable prints rows of cells as btrfs-progs does: the first two as they are, numbers to the
// right. A row that is nil is a line.
func (a verbs) printTable(rows [][]string) error {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	for n, r := range rows {
		var cells []string
		for i, w := range width {
			switch {
			case r == nil:
				cells = append(cells, strings.Repeat("-", w))
			case n < 2 || i == 1:
				cells = append(cells, fmt.Sprintf("%-*s", w, r[i]))
			default:
				cells = append(cells, fmt.Sprintf("%*s", w, r[i]))
			}
		}
		if _, err := fmt.Fprintln(a.Out, strings.TrimRight(strings.Join(cells, " "), " ")); err != nil {
			return err
		}
	}
	return nil
}
