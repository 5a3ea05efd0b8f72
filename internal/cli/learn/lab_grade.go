package learn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/study/course"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
)

// gradeFlags is the command line of lab grade.
type gradeFlags struct {
	dir, replay, results, class, table, student, page string
	asJSON, byName                                    bool
	limit                                             time.Duration
	memory                                            app.ByteSize
	shard                                             app.ShardFlags
}

func (a verbs) labGrade() *cobra.Command {
	var c gradeFlags
	cmd := &cobra.Command{
		Use: "grade N", Short: "grade lab N", Args: cobra.ExactArgs(1),
		Long: `Grade runs every workload of the lab under your code and prints a table; a violation comes with its shortest schedule, the
command that replays it and, for the first, its steps. Code that does not end is stopped by its processor time, with the line in
which it was; it loses that row, as does code that takes more than --memory. --limit bounds the whole submission, and the report says
which limit ended it. With --all the
same code, but for comments, layout and local names, is explored once, and what is alike is named by groups. Elsewhere than on a terminal, standard error has a line for each row as it is judged, and with
--all one for each submission. --shard divides a class among machines, and btrlab merge prints the table. With --student the personal questions of the lab are graded, too: their answers are in personal.txt.
Exit code 1 means that something failed; 2 that there is nothing to grade, or no such workload or schedule.`,
		Example: `  btrlab lab grade 4
  btrlab lab grade 5 --dir ~/mine --gradescope results.json
  btrlab lab grade 4 --replay truncate-race=11:1
  btrlab lab grade 4 --student ada
  btrlab lab grade 5 --all submissions --csv grades.csv
  btrlab lab grade 5 --all submissions --shard 3/16 --out part-3.json
  btrlab lab grade 12 --report lab-12.markdown`,
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			if err := cmp.Or(c.check(cmd), app.Check(cmd, c.shard.Rules()...)); err != nil {
				return err
			}
			if c.shard.On() {
				return a.shardOfClass(cmd, root, l, &c)
			}
			if c.class != "" {
				return a.gradeAll(cmd, root, l, &c)
			}
			return a.gradeOne(cmd, root, l, &c)
		},
	}
	c.flags(cmd)
	c.shard.Flags(cmd, "the submissions of --all")
	return cmd
}

func (c *gradeFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.dir, "dir", "", "the folder with your files (default: the lab's own)")
	f.StringVar(&c.replay, "replay", "", "run one schedule of one workload, WORKLOAD=SCHEDULE, and show its steps; of a question QUESTION=WORKLOAD=SCHEDULE, with its fault under your code")
	f.StringVar(&c.student, "student", "", "the student's id: grade the personal questions, which lab questions prints")
	f.BoolVar(&c.byName, "by-name", false, "with --all: a folder's name is its student's id, and personal questions are graded")
	f.StringVar(&c.class, "all", "", "grade every folder in this one, and print a table")
	f.StringVar(&c.table, "csv", "", "with --all: keep the table in this file, and grade only what has changed since")
	f.StringVar(&c.page, "report", "", "also write a page with tables and the rubric to this file (Markdown), and beside it the profile of the waits")
	f.DurationVar(&c.limit, "limit", 5*time.Minute, "stop a submission after this much processor time, or six times as long by the clock")
	c.memory = app.ByteSize{N: sandbox.MaxHeap}
	f.Var(&c.memory, "memory", "what the grading program may have of memory while it runs a submission, 128M or more")
	f.StringVar(&c.results, "gradescope", "", "also write the report as Gradescope's results.json to this file")
	app.OutputFlag(cmd, "csv", "report", "gradescope")
	app.JSONFlag(cmd, &c.asJSON)
}

// check refuses what does not go together.
func (c *gradeFlags) check(cmd *cobra.Command) error {
	one := c.dir != "" || c.replay != "" || c.results != "" || c.student != "" || c.page != "" || c.asJSON
	return app.Check(cmd,
		app.AtLeast(c.limit, time.Second, "--limit %v, want 1s or more"),
		app.Not(c.memory.N < minMemory, "--memory %s, want 128M or more: the grader itself needs some", c.memory.String()),
		app.Not(c.page != "" && c.replay != "", "--report goes with a whole grade, not with --replay"),
		app.Not(c.class != "" && one, "--all goes with --csv and --by-name only"),
		app.Needs("by-name", "all", "--by-name goes with --all only"),
		app.Needs("csv", "all", "--csv goes with --all only"),
		app.Needs("shard", "all", "--shard divides the submissions of --all"),
		app.Excludes("csv", "shard", "--csv does not go with --shard: btrlab merge prints the table"))
}

// minMemory is for the grader with an image in memory.
const minMemory = 128 << 20

// limits are those of each submission. A busy machine takes long for little processor time.
func (c *gradeFlags) limits() course.Options {
	return course.Options{Options: sandbox.Options{CPU: c.limit, Limit: 6 * c.limit, Memory: uint64(c.memory.N)}}
}

// replayed is what names a workload of the lab and a schedule, WORKLOAD=SCHEDULE.
func replayed(cmd *cobra.Command, l *course.Lab, arg string) (workload, schedule string, err error) {
	workload, schedule, ok := strings.Cut(arg, "=")
	names := l.Explored()
	switch {
	case !ok || workload == "":
		err = app.Usagef(cmd, "schedule %q, want WORKLOAD=SCHEDULE", arg)
	case l.Try != "":
		err = app.Usagef(cmd, "lab %d has no code to replay; use btrlab %s", l.N, l.Try)
	case !l.Searched(workload):
		err = app.Usagef(cmd, "lab %d has no workload %q with schedules, want one of %s", l.N, workload, strings.Join(names, ", "))
	}
	return workload, schedule, err
}

// gradeOne grades one folder: the lab's own, or --dir.
func (a verbs) gradeOne(cmd *cobra.Command, root string, l *course.Lab, c *gradeFlags) (err error) {
	st := a.NewStatus()
	defer st.Done()
	o := c.limits()
	o.Dir, o.Student, o.Progress = c.dir, strings.TrimSpace(c.student), func(p sandbox.Progress) {
		st.Search(p.Workload)
		st.Progress(p.Progress)
	}
	if !st.Terminal && c.replay == "" {
		o.Judged = func(name, verdict string) { fmt.Fprintf(a.Err, "%s: %s\n", name, verdict) }
	}
	if c.replay != "" {
		if o.Workload, o.Schedule, err = replayed(cmd, l, c.replay); err != nil {
			return err
		}
	}
	if c.page != "" {
		o.Profile = strings.TrimSuffix(c.page, filepath.Ext(c.page)) + ".lock.pprof"
		if err := os.Remove(o.Profile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // one of an earlier grade
		}
	}
	ctx, cancel := a.Context(cmd.Context())
	defer cancel()
	st.Show("building")
	began, digest := time.Now(), l.Digest(root, o)
	r, err := course.Grade(ctx, root, l, o)
	st.Done()
	var nothing *sandbox.NoFilesError
	switch {
	case errors.As(err, &nothing) && c.results != "":
		r = l.Nothing(nothing)
	case nothing != nil:
		return app.Usagef(cmd, "%v", err)
	case errors.Is(err, context.Canceled):
		return app.ErrNothing
	case err != nil:
		return err
	}
	if i := slices.IndexFunc(r.Rows, func(x grade.Row) bool { return x.Misfit }); i >= 0 {
		return app.Usagef(cmd, "--replay %s: %s", c.replay, r.Rows[i].Result)
	}
	if c.replay == "" && nothing == nil {
		if err := l.Keep(root, r, o, digest); err != nil { // no reason to lose the report
			fmt.Fprintf(a.Err, "btrlab: lab status will not show this grade: %s\n", app.OneLine(err))
		}
	}
	if c.results != "" {
		if err := app.ReplaceFile(c.results, func(w io.Writer) error { return r.WriteGradescope(w, time.Since(began)) }); err != nil {
			return err
		}
	}
	if c.page != "" {
		if err := writeReport(l, r, root, c.dir, c.page, o.Profile); err != nil {
			return err
		}
	}
	if err := a.printGrade(r, c); err != nil {
		return err
	}
	if !r.Pass {
		return app.ErrFound
	}
	return nil
}

// printGrade writes the report, or of a replay the steps and the verdict.
func (a verbs) printGrade(r *course.Report, c *gradeFlags) error {
	if c.asJSON {
		return a.PrintJSON(r)
	}
	if c.replay == "" {
		return r.WriteText(a.Out)
	}
	for _, x := range r.Rows {
		if x.Trace != "" {
			fmt.Fprintf(a.Out, "%s\n\n", strings.TrimRight(x.Trace, "\n"))
		}
		fmt.Fprintln(a.Out, prose.Wrap(x.Name+": "+x.Result, a.Width()))
	}
	return nil
}

// writeReport writes the page of a report to path. A profile that was not made, because nothing was
// measured, is not named.
func writeReport(l *course.Lab, r *course.Report, root, dir, path, profile string) error {
	if dir == "" {
		dir = l.Dir(root)
	}
	if _, err := os.Stat(profile); err != nil {
		profile = ""
	}
	return app.ReplaceFile(path, func(w io.Writer) error { return l.WriteMarkdown(w, r, dir, profile) })
}

// gradeAll grades the folders in --all; the table goes to a file after each, or in the end to
// standard output.
func (a verbs) gradeAll(cmd *cobra.Command, root string, l *course.Lab, c *gradeFlags) error {
	ctx, cancel := a.Context(cmd.Context())
	defer cancel()
	all, err := gradeInto(ctx, root, l, c, func(x course.Submission) {
		fmt.Fprintf(a.Err, "%s: %g of %g points\n", x.Name, x.Score, x.Max)
	})
	var nothing *sandbox.NoFilesError
	switch {
	case errors.As(err, &nothing):
		return app.Usagef(cmd, "%v", err)
	case errors.Is(err, context.Canceled):
		return c.interrupted(len(all))
	case err != nil:
		return err
	}
	if c.table == "" {
		if err := course.WriteCSV(a.Out, all); err != nil {
			return err
		}
		a.printClusters(a.Err, all)
		return nil
	}
	if err := keepTable(c.table, all, nil); err != nil { // without those that have gone
		return err
	}
	fmt.Fprintf(a.Out, "%s in %s\n", prose.Count(len(all), "submission"), c.table)
	a.printClusters(a.Out, all)
	return nil
}

// interrupted says what there is of a class when the grading was stopped after so many submissions,
// and how to go on.
func (c *gradeFlags) interrupted(graded int) error {
	class := 0
	if l, err := os.ReadDir(c.class); err == nil {
		for _, e := range l {
			if e.IsDir() {
				class++
			}
		}
	}
	if c.table == "" {
		return app.Interruption(fmt.Sprintf("interrupted after %d of %s, and nothing is kept; with --csv FILE the same command goes on where it stopped",
			graded, prose.Count(class, "submission")))
	}
	rows := 0
	if f, err := os.Open(c.table); err == nil {
		known, err := course.ReadCSV(f)
		f.Close()
		if err == nil {
			rows = len(known)
		}
	}
	return app.Interruption(fmt.Sprintf("interrupted; %s of %d stand in %s, and the same command goes on with the rest", prose.Count(rows, "row"), class, c.table))
}

// printClusters names the submissions that are alike, a line for each group.
func (a verbs) printClusters(w io.Writer, all []course.Submission) {
	for _, x := range course.Clusters(all) {
		what := fmt.Sprintf("alike, %.2f or more", x.Least)
		if x.Same {
			what = "the same but for comments, layout and names"
		}
		fmt.Fprintln(w, prose.Wrap(fmt.Sprintf("%s: %s", what, strings.Join(x.Names, ", ")), a.Width()))
	}
}

// gradeInto grades the folders in --all and keeps the table after each, if there is one; what
// stands in it already is taken over where the files are the same. It calls graded with each.
func gradeInto(ctx context.Context, root string, l *course.Lab, c *gradeFlags, graded func(x course.Submission)) ([]course.Submission, error) {
	table := c.table
	var known []course.Submission
	if table != "" {
		f, err := os.Open(table)
		switch {
		case err == nil:
			known, err = course.ReadCSV(f)
			f.Close()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", table, err)
			}
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		}
	}
	return course.GradeAll(ctx, root, l, c.class, c.byName, c.limits(), known, func(all []course.Submission) error {
		graded(all[len(all)-1])
		if table == "" {
			return nil
		}
		return keepTable(table, all, known)
	})
}

// keepTable writes what is graded so far, and after it what an earlier grading has of submissions
// that this one has not come to: if it is interrupted nothing is lost.
func keepTable(table string, all, known []course.Submission) error {
	rows := slices.Clone(all)
	for _, x := range known {
		if !slices.ContainsFunc(all, func(y course.Submission) bool { return y.Name == x.Name }) {
			rows = append(rows, x)
		}
	}
	return app.ReplaceFile(table, func(w io.Writer) error { return course.WriteCSV(w, rows) })
}
