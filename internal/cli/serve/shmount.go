package serve

import (
	"fmt"
	gopath "path"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
)

// mountLine is the line of sh that opens another image at a path, in the words of mount(8) and
// guestfish.
func (a verbs) mountLine() *cobra.Command {
	var how app.Opening
	cmd := &cobra.Command{Use: "mount OTHER DIR", Short: "open another image at the path DIR; without arguments, list them", Args: cobra.MaximumNArgs(2)}
	f := cmd.Flags()
	f.IntVar(&how.Partition, "partition", 0, "the image is that of a disk: this partition, as Linux counts (default: the only btrfs there)")
	f.Var(&how.Offset, "offset", "the image is that of a disk: the btrfs that begins at this byte")
	f.Var(&how.Subvol, "subvol", "the subvolume in which paths begin, by path or id (default: the image's default one)")
	f.StringArrayVar(&how.Devices, "device", nil, "another device of the file system; once for each")
	f.BoolVar(&how.Degraded, "degraded", false, "go on without the devices that are missing")
	f.BoolVar(&how.NoReplay, "ro", false, "open it read-only, and leave its log as it is")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return a.printMounts()
		case len(args) == 1 || !gopath.IsAbs(args[1]):
			return app.Usagef(cmd, "%q, want an image and a path that begins with /", args)
		}
		how.Cache = a.Cache
		return a.Mount(args[0], args[1], how)
	}
	return cmd
}

// printMounts prints what is open, and where.
func (a verbs) printMounts() error {
	type row struct {
		Image string `json:"image"`
		Path  string `json:"path"`
	}
	rows := []row{{a.Open.Name, "/"}}
	for _, dir := range a.Open.Mounts() {
		name, _ := a.Open.Mounted(dir)
		rows = append(rows, row{name, dir})
	}
	if a.Open.JSON {
		return a.PrintJSON(rows)
	}
	for _, r := range rows {
		fmt.Fprintf(a.Out, "%s on %s\n", app.Shown(a.Out, r.Image), app.Shown(a.Out, r.Path))
	}
	return nil
}

// umountLine is the line of sh that closes what mountLine has opened.
func (a verbs) umountLine() *cobra.Command {
	return &cobra.Command{Use: "umount DIR", Short: "commit and close the image at the path DIR", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.Umount(args[0]) }}
}
