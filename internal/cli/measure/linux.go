package measure

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/linuxfile"
	"btrlab/internal/measure/stats"
)

// linuxFlag is --linux of bench and compare.
func linuxFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "linux", "", "run the job through the running kernel, too, on a file in this directory of a mounted file system: "+
		"rows linux, and linux-nowait, which tries each request with RWF_NOWAIT first")
	cmd.MarkFlagDirname("linux")
}

// checkLinux says whether --linux goes with the runtime.
func (r *runtimeFlags) checkLinux(cmd *cobra.Command, dir string) error {
	return app.Check(cmd, app.Not(dir != "" && r.name != "real", "--linux needs --runtime real: the running kernel has no simulated clock"))
}

// linuxRows are the rows of --linux, those of a seed. files, if it is not 0, is how many COW
// files they have instead of one NOCOW file. done removes their files.
func (a verbs) linuxRows(dir string, of []experiment.Other, files int) (rows []experiment.Other, done func() error, err error) {
	if dir == "" {
		return nil, func() error { return nil }, nil
	}
	d, err := linuxfile.Open(dir, files == 0, a.Note)
	if err != nil {
		return nil, nil, err
	}
	d.Files = files
	for _, row := range of {
		row.Rig = d
		rows = append(rows, row)
	}
	return rows, d.Close, nil
}

// benchLinux adds the rows of --linux to run: each job once more, under the name of the row.
func (a verbs) benchLinux(jf *fio.JobFile, dir string, nocow bool, bar *app.Bar, run *stats.Run) (err error) {
	d, err := linuxfile.Open(dir, nocow, a.Note)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, row := range linuxfile.Rows() {
		if a.Stop.Load() {
			break
		}
		var count linuxfile.Count
		o := a.benchOptions(row+": ", bar)
		o.Open = d.Job(row, &count)
		more, err := fio.Run(a.Task, jf, o)
		if err != nil {
			return fmt.Errorf("%s: %w", row, err)
		}
		group := 0
		for _, j := range run.Jobs {
			group = max(group, j.GroupID+1)
		}
		desc := d.FileSystem() + " at " + dir
		if again, tried := count.Load(); tried > 0 {
			desc += fmt.Sprintf("; EAGAIN for %.1f %% of %d requests", 100*float64(again)/float64(tried), tried)
		}
		for _, j := range more.Jobs {
			j.Name, j.Desc, j.GroupID = row+": "+j.Name, desc, group+j.GroupID
			run.Jobs = append(run.Jobs, j)
		}
		run.ElapsedNs += more.ElapsedNs
	}
	return nil
}
