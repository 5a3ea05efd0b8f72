package image

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/progs/repair"
)

func (a verbs) scrub() *cobra.Command {
	var asJSON, each bool
	var o repair.ScrubOptions
	cmd := &cobra.Command{
		Use:   "scrub IMAGE",
		Short: "read every copy of an image, and mend bad copies from good ones",
		Long: `Scrub reads every copy of data and metadata, on all devices, and the parity of RAID5 and RAID6. A copy with a wrong checksum, or
one that cannot be read, is written from another copy or from parity, once what is written has the right checksum; a superblock from the newest one
of its device. Errors are counted in sectors, as btrfs scrub counts them; parity, which Linux mends without counting it, is one more kind.
What is bad on every copy is a line as check prints it. Whether names and references are right is the business of check.
Exit code 3 means that there are errors that cannot be corrected, 0 that there are none or that all are corrected, as of btrfs scrub start -B.`,
		Example: `  btrlab scrub disk.img
  btrlab scrub -r -d a.img --device b.img`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	cmd.Flags().BoolVarP(&o.ReadOnly, "readonly", "r", false, "write nothing: count what a scrub would correct")
	cmd.Flags().BoolVarP(&each, "each", "d", false, "print the errors of each device")
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.Open != nil && !o.ReadOnly {
			return fmt.Errorf("%s: a scrub that writes wants the image for itself, and it is open: want -r", args[0])
		}
		bar := a.NewBar("scrub", !asJSON)
		o.Progress = func(phase string, done, total uint64) { bar.Set(phase, done, total) }
		o.Stopped = a.Interrupted
		flags := blockdev.Flags(0)
		if o.ReadOnly {
			flags = blockdev.ReadOnly
		}
		var r *repair.Scrubbed
		start := time.Now()
		err := a.WithDevices(args[0], flags, func(devs []blockdev.Device) (err error) {
			r, err = repair.Scrub(a.Task, devs, o)
			return err
		})
		bar.Done()
		if err != nil {
			return err
		}
		if asJSON {
			err = a.printScrubJSON(r)
		} else {
			a.printScrub(r, each, start)
		}
		if sum, _ := r.Total(); err == nil && sum.Uncorrectable > 0 {
			return fmt.Errorf("%s: %w", args[0], app.ErrUncorrectable)
		}
		return err
	}
	return cmd
}

func (a verbs) printScrubJSON(r *repair.Scrubbed) error {
	sum, used := r.Total()
	lost := []string{}
	for _, f := range r.Lost {
		lost = append(lost, f.String()+"; "+f.Means)
	}
	return a.PrintJSON(struct {
		UUID string `json:"uuid"`
		Used uint64 `json:"bytes_used"`
		repair.ScrubStats
		Devices []repair.ScrubDevice `json:"devices"`
		Lost    []string             `json:"lost"`
		Notes   []string             `json:"notes,omitempty"`
	}{r.FSID.String(), used, sum, r.Devices, lost, r.Notes})
}

// printScrub prints what btrfs scrub start -B prints, and with each device apart what -d adds.
func (a verbs) printScrub(r *repair.Scrubbed, each bool, start time.Time) {
	for _, f := range r.Lost {
		fmt.Fprintln(a.Out, app.Shown(a.Out, f.String()+"; "+f.Means))
	}
	for _, n := range r.Notes {
		fmt.Fprintln(a.Out, "note:", app.Shown(a.Out, n))
	}
	took := time.Since(start)
	if each {
		for i := range r.Devices {
			d := &r.Devices[i]
			fmt.Fprintf(a.Out, "\nScrub device %s (id %d) done\n", app.Shown(a.Out, d.Name), d.Devid)
			a.printScrubStats(&d.ScrubStats, d.Used, start, took)
		}
		return
	}
	fmt.Fprintf(a.Out, "scrub done for %v\n", r.FSID)
	sum, used := r.Total()
	a.printScrubStats(&sum, used, start, took)
}

func (a verbs) printScrubStats(s *repair.ScrubStats, used uint64, start time.Time, took time.Duration) {
	line := func(name, text string, args ...any) {
		fmt.Fprintf(a.Out, "%-17s %s\n", name, fmt.Sprintf(text, args...))
	}
	seconds := int(took.Seconds())
	line("Scrub started:", "%s", start.Format(time.ANSIC))
	line("Status:", "finished")
	line("Duration:", "%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	line("Total to scrub:", "%s", app.HumanSize(used))
	line("Rate:", "%s/s", app.HumanSize(uint64(float64(s.Data+s.Tree)/max(took.Seconds(), 1e-3))))
	if s.Errors() == 0 {
		line("Error summary:", "no errors found")
		return
	}
	kinds := ""
	for _, k := range []struct {
		name string
		n    uint64
	}{{"read", s.Read}, {"super", s.Super}, {"verify", s.Verify}, {"csum", s.Csum}, {"parity", s.Parity}} {
		if k.n > 0 {
			kinds += fmt.Sprintf(" %s=%d", k.name, k.n)
		}
	}
	line("Error summary:", "%s", kinds[1:])
	line("  Corrected:", "%d", s.Corrected)
	line("  Uncorrectable:", "%d", s.Uncorrectable)
	line("  Unverified:", "%d", s.Unverified)
}
