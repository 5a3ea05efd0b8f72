package learn

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/study/course"
	"btrlab/internal/study/sandbox"
)

// debugFlags is the command line of lab debug.
type debugFlags struct {
	dir   string
	build bool
}

func (a verbs) labDebug() *cobra.Command {
	var c debugFlags
	cmd := &cobra.Command{
		Use: "debug N WORKLOAD=SCHEDULE", Short: "step through a schedule of lab N in a debugger", Args: cobra.ExactArgs(2),
		Long: `Debug builds a program that runs one schedule of one workload under your code, as grade prints it, and starts Delve (dlv) on it. The
program stops at each step of the schedule, on the stack of the task that does it, and says what every task does next and what it
holds. In Delve, onward goes to the next step and shows your line; all of its other commands are there. With --build it only makes the
program, labs/_grade/debug, for a debugger of your choice: the .vscode of lab init starts it with F5.

Of a question about your code with a fault under it, WORKLOAD is QUESTION=WORKLOAD, as in lab grade --replay.`,
		Example: "  btrlab lab debug 4 truncate-race=11:1\n  btrlab lab debug 4 truncate-race=11:1 --build\n  btrlab lab debug 3 count-late=inside-truncate=6:1",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			return a.debug(cmd, root, l, args[1], &c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.dir, "dir", "", "the folder with your files (default: the lab's own)")
	f.BoolVar(&c.build, "build", false, "make the program, and start no debugger")
	return cmd
}

func (a verbs) debug(cmd *cobra.Command, root string, l *course.Lab, replay string, c *debugFlags) error {
	workload, schedule, err := replayed(cmd, l, replay)
	if err != nil {
		return err
	}
	dlv := ""
	if !c.build {
		if dlv, err = app.FindDelve(); err != nil {
			return err
		}
	}
	ctx, cancel := a.Context(cmd.Context())
	defer cancel()
	st := a.NewStatus()
	defer st.Done()
	st.Show("building")
	bin := filepath.Join(root, "labs", "_grade", "debug")
	if runtime.GOOS == "windows" {
		bin += ".exe"
	}
	if err := a.fits(ctx, cmd, root, l, c.dir, workload, schedule); err != nil {
		st.Done()
		return err
	}
	wrong, err := course.Debug(ctx, root, l, c.dir, workload, schedule, bin)
	st.Done()
	switch {
	case errors.Is(err, context.Canceled):
		return app.ErrNothing
	case err != nil:
		return err
	case len(wrong) > 0:
		return errors.New(strings.Join(wrong, "\n"))
	}
	if c.build {
		fmt.Fprintln(a.Out, relative(root, bin))
		return nil
	}
	return app.Delve(dlv, bin)
}

// fits runs the schedule once as a grade does, with its limits: a debugger is for one that has
// steps.
func (a verbs) fits(ctx context.Context, cmd *cobra.Command, root string, l *course.Lab, dir, workload, schedule string) error {
	o := (&gradeFlags{limit: time.Minute, memory: app.ByteSize{N: sandbox.MaxHeap}}).limits()
	o.Dir, o.Workload, o.Schedule = dir, workload, schedule
	r, err := course.Grade(ctx, root, l, o)
	var nothing *sandbox.NoFilesError
	switch {
	case errors.As(err, &nothing):
		return app.Usagef(cmd, "%v", err)
	case errors.Is(err, context.Canceled):
		return app.ErrNothing
	case err != nil:
		return err
	}
	for _, x := range r.Rows {
		switch {
		case x.Misfit:
			return app.Usagef(cmd, "%s=%s: %s", workload, schedule, x.Result)
		case x.Trace == "" && x.Name == workload:
			return app.Usagef(cmd, "%s has no steps to stop at", workload)
		case x.Trace == "":
			return errors.New(x.Result)
		}
	}
	return nil
}
