package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/prose"
	"btrlab/internal/study/grade"
)

// lab is the verb for the labs: it reads labs/ of the clone that the working directory is in.
func (a *app) lab() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "the labs: their texts, predictions, hints and grades",
		Long: `Lab needs a clone of btrlab around the working directory, and for labs with Go code the go tool. Read first (show), predict,
work in labs/, grade. Grades come from the explorer and from virtual time, never from the clock of this machine.`,
		Example: "  btrlab lab list\n  btrlab lab show 4\n  btrlab lab grade 4",
	}
	cmd.AddCommand(a.labList(), a.labShow(), a.labPredict(), a.labHint(), a.labGrade())
	return cmd
}

// findLab is the lab that arg names and the module's folder.
func findLab(cmd *cobra.Command, arg string) (*grade.Lab, string, error) {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return nil, "", usagef(cmd, "lab %q, want a number", arg)
	}
	l, err := grade.Lookup(n)
	if err != nil {
		return nil, "", usagef(cmd, "%v", err)
	}
	root, err := grade.Root(".")
	return l, root, err
}

func (a *app) labList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "list the labs", Args: cobra.NoArgs, Example: "  btrlab lab list",
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON {
				return a.printJSON(grade.Labs)
			}
			for _, l := range grade.Labs {
				fmt.Fprintf(a.out, "%2d  %-20s %4d min  labs/%s/%s\n", l.N, l.Title, l.Minutes, l.Folder, l.File)
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) labShow() *cobra.Command {
	return &cobra.Command{
		Use: "show N", Short: "print the text of lab N", Args: cobra.ExactArgs(1), Example: "  btrlab lab show 4",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			text, err := l.Text(root)
			if err != nil {
				return err
			}
			fmt.Fprint(a.out, prose.Fill(text, a.width()))
			return nil
		},
	}
}

func (a *app) labPredict() *cobra.Command {
	return &cobra.Command{
		Use: "predict N [LETTER...]", Short: "show the questions that come before lab N, or keep your answers",
		Long:    "Predict prints the questions; with a letter for each it keeps your answers, and grade sets them beside what is so.",
		Args:    cobra.MinimumNArgs(1),
		Example: "  btrlab lab predict 4\n  btrlab lab predict 4 b a c",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			if len(args) > 1 {
				if err := l.Predict(root, args[1:]); err != nil {
					return usagef(cmd, "%v", err)
				}
				fmt.Fprintf(a.out, "kept; btrlab lab grade %d shows what is so\n", l.N)
				return nil
			}
			qs, err := l.Questions(root)
			if err != nil {
				return err
			}
			for i, q := range qs {
				a.say(fmt.Sprintf("%d. ", i+1), q.Ask)
				for j, c := range q.Choices {
					a.say(fmt.Sprintf("   %c  ", 'a'+j), c)
				}
			}
			fmt.Fprintf(a.out, "\nanswer: btrlab lab predict %d%s\n", l.N, strings.Repeat(" LETTER", len(qs)))
			return nil
		},
	}
}

func (a *app) labHint() *cobra.Command {
	level := 1
	cmd := &cobra.Command{
		Use: "hint N", Short: "print a hint for lab N", Args: cobra.ExactArgs(1),
		Long:    "Hint prints a hint: level 1 is a nudge, 2 the idea, 3 almost the answer.",
		Example: "  btrlab lab hint 4\n  btrlab lab hint 4 --level 2",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			if level < 1 || level > grade.MaxHint {
				return usagef(cmd, "--level %d, want 1 to %d", level, grade.MaxHint)
			}
			text, err := l.Hint(root, level)
			if err != nil {
				return err
			}
			fmt.Fprint(a.out, prose.Fill(text, a.width()))
			if level < grade.MaxHint {
				fmt.Fprintf(a.out, "\nmore: btrlab lab hint %d --level %d\n", l.N, level+1)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&level, "level", 1, "1, 2 or 3")
	return cmd
}

// context ends when parent does or SIGINT comes.
func (a *app) context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		select {
		case <-a.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (a *app) labGrade() *cobra.Command {
	var dir, replay, results string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "grade N", Short: "grade lab N", Args: cobra.ExactArgs(1),
		Long: `Grade runs every workload of the lab under your code and prints a table; a violation comes with its shortest schedule, the
command that replays it and, for the first, its steps. Code that does not end is stopped by its processor time, with the line in
which it was. Exit code 1 means that something failed; 2 that there is nothing to grade, or no such workload or schedule.`,
		Example: `  btrlab lab grade 4
  btrlab lab grade 5 --dir ~/mine --gradescope results.json
  btrlab lab grade 4 --replay truncate-race=11:1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			st := a.newStatus()
			defer st.done()
			o := grade.Options{Dir: dir, Progress: func(p grade.Progress) {
				st.search(p.Workload)
				st.progress(p.Progress)
			}}
			if replay != "" {
				var ok bool
				if o.Workload, o.Schedule, ok = strings.Cut(replay, "="); !ok || o.Workload == "" {
					return usagef(cmd, "--replay %q, want WORKLOAD=SCHEDULE", replay)
				}
				if l.N == 1 {
					return usagef(cmd, "lab 1 has no code to replay; use btrlab replay")
				}
				if names := grade.Workloads(l.N); !slices.Contains(names, o.Workload) {
					return usagef(cmd, "--replay: lab %d has no workload %q with schedules, want one of %s", l.N, o.Workload, strings.Join(names, ", "))
				}
			}
			if results != "" { // a bad path is an error now, not after minutes of grading
				f, err := os.OpenFile(results, os.O_WRONLY|os.O_CREATE, 0o644)
				if err != nil {
					return err
				}
				f.Close()
			}
			ctx, cancel := a.context(cmd.Context())
			defer cancel()
			r, err := grade.Grade(ctx, root, l, o)
			st.done()
			var nothing *grade.NoFilesError
			switch {
			case errors.As(err, &nothing) && results != "":
				r = l.Nothing(nothing)
			case nothing != nil:
				return usagef(cmd, "%v", err)
			case errors.Is(err, context.Canceled):
				return errNothing
			case err != nil:
				return err
			}
			if i := slices.IndexFunc(r.Rows, func(x grade.Row) bool { return x.Misfit }); i >= 0 {
				return usagef(cmd, "--replay %s: %s", replay, r.Rows[i].Result)
			}
			if results != "" {
				var b bytes.Buffer
				if err := r.WriteGradescope(&b); err != nil {
					return err
				}
				if err := os.WriteFile(results, b.Bytes(), 0o644); err != nil {
					return err
				}
			}
			switch {
			case asJSON:
				err = a.printJSON(r)
			case o.Workload != "":
				for _, x := range r.Rows {
					if x.Trace != "" {
						fmt.Fprintf(a.out, "%s\n\n", strings.TrimRight(x.Trace, "\n"))
					}
					fmt.Fprintln(a.out, prose.Wrap(x.Name+": "+x.Result, a.width()))
				}
			default:
				err = r.WriteText(a.out)
			}
			if err == nil && !r.Pass {
				err = errFound
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", "", "the folder with your files (default: the lab's own)")
	f.StringVar(&replay, "replay", "", "run one schedule of one workload, WORKLOAD=SCHEDULE, and show its steps")
	f.StringVar(&results, "gradescope", "", "also write the report as Gradescope's results.json to this file")
	jsonFlag(cmd, &asJSON)
	return cmd
}
