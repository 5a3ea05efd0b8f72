package learn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/study/course"
	"btrlab/internal/study/sandbox"
)

// watchEvery is how often lab watch looks at the files: they are few and small, and a second look
// costs less than a watch of the system's, which editors that replace files upset.
const watchEvery = 200 * time.Millisecond

// labWatch grades a lab whenever its files are saved.
func (a verbs) labWatch() *cobra.Command {
	var o course.Options
	cmd := &cobra.Command{
		Use: "watch N", Short: "grade lab N each time you save", Args: cobra.ExactArgs(1),
		Long: `Watch grades lab N now and each time its files change, and prints the report and the scores of all labs. What is saved while a grading
runs begins it again. Ctrl-C ends it.`,
		Example: "  btrlab lab watch 4\n  btrlab lab watch 5 --dir ~/mine",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			o.Student = strings.TrimSpace(o.Student)
			ctx, cancel := a.Context(cmd.Context())
			defer cancel()
			for ctx.Err() == nil {
				if err := a.gradeOnce(ctx, root, l, o); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "the folder with your files (default: the lab's own)")
	cmd.Flags().StringVar(&o.Student, "student", "", "the student's id: grade the personal questions, too")
	return cmd
}

// gradeOnce grades the files as they are, prints what it comes to, and returns when they have
// changed or ctx has ended.
func (a verbs) gradeOnce(ctx context.Context, root string, l *course.Lab, o course.Options) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	look := func() string { return l.Digest(root, o) }
	digest := look()
	unchanged, saved := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer saved()
		untilChanged(ctx, digest, look)
	}()
	st := a.NewStatus()
	o.Progress = func(p sandbox.Progress) {
		st.Search(p.Workload)
		st.Progress(p.Progress)
	}
	st.Show("building")
	r, err := course.Grade(unchanged, root, l, o)
	st.Done()
	var nothing *sandbox.NoFilesError
	switch {
	case errors.As(err, &nothing):
		fmt.Fprintf(a.Out, "%v; it is graded once it has\n", nothing)
	case unchanged.Err() != nil && err != nil: // saved again, or interrupted
	case err != nil:
		return err
	default:
		if err := a.graded(root, l, r, o, digest); err != nil {
			return err
		}
	}
	<-watched
	return nil
}

// graded prints the report, and how far all labs are.
func (a verbs) graded(root string, l *course.Lab, r *course.Report, o course.Options, digest string) error {
	if err := r.WriteText(a.Out); err != nil {
		return err
	}
	if err := l.Keep(root, r, o, digest); err != nil {
		return err
	}
	all, err := labStates(root)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	a.labTable(all)
	fmt.Fprintf(a.Out, "\nwatching %s; save to grade again, Ctrl-C ends it\n\n", r.Dir)
	return nil
}

// untilChanged returns when look no longer gives what it gave, or ctx has ended.
func untilChanged(ctx context.Context, gave string, look func() string) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for look() == gave {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
