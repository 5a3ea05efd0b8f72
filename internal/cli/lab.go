package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/prose"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/handout"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
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
	cmd.AddCommand(a.labList(), a.labShow(), a.labPredict(), a.labQuestions(), a.labHint(), a.labRun(), a.labGrade(), a.labHandout())
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

// labQuestions prints the questions that are another one for each student.
func (a *app) labQuestions() *cobra.Command {
	var student string
	var asJSON bool
	var lf layoutFlags
	cmd := &cobra.Command{
		Use: "questions N", Short: "print the personal questions of lab N", Args: cobra.ExactArgs(1),
		Long: `Questions prints the questions of a lab that are graded and are another one for each student: they are made from the id that --student
gives. The answers go into personal.txt beside the lab's file, and lab grade N --student ID judges them by exploration.`,
		Example: "  btrlab lab questions 4 --student ada\n  btrlab lab grade 4 --student ada",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			if strings.TrimSpace(student) == "" {
				return usagef(cmd, "--student %q, want the id that the lab is graded with", student)
			}
			qs, err := l.Personal(root, student)
			if err != nil {
				return err
			}
			if asJSON {
				list := []practiceResult{}
				for _, q := range qs {
					list = append(list, practiceResult{Question: q, Title: q.Title(), Text: questionLines(q, prose.Width)})
				}
				return a.printJSON(list)
			}
			if len(qs) == 0 {
				fmt.Fprintf(a.out, "lab %d has no personal questions\n", l.N)
				return nil
			}
			for i, q := range qs {
				if err := a.ask(fmt.Sprintf("lab %d, personal question %d of %s: %s", l.N, i+1, student, q.Title()), q, a.layout(&lf)); err != nil {
					return err
				}
			}
			a.say("", fmt.Sprintf("Write a line NUMBER = ANSWER for each into %s.", relative(root, l.PersonalFile(root))))
			fmt.Fprintln(a.out, prose.Command("grade: ", fmt.Sprintf("btrlab lab grade %d --student %s", l.N, quoteWord(student)), a.width()))
			return nil
		},
	}
	cmd.Flags().StringVar(&student, "student", "", "the student's id")
	lf.flags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// relative is path from root where it lies in there.
func relative(root, path string) string {
	if rel, err := filepath.Rel(root, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// quoteWord quotes what a shell would take apart.
func quoteWord(s string) string {
	if strings.ContainsAny(s, " '\"$!*?;&|<>()#~\\\t") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
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

// labRun plays the levels of lab 0.
func (a *app) labRun() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "run N [LEVEL [ANSWER]]", Short: "play the levels of lab 0", Args: cobra.RangeArgs(1, 3),
		Long: `Run plays a level of lab 0 on a terminal: the number of a task lets it do one step, u takes a step back, x says that no schedule
breaks the level. Without LEVEL it plays the first level that is not won yet, or without a terminal lists them. With an ANSWER, a
schedule or the word never, it judges that. An answer that wins is kept in answers.txt. Exit code 1 means that the level is not won.`,
		Example: "  btrlab lab run 0\n  btrlab lab run 0 lost-update 2:1\n  btrlab lab run 0 one-lock never",
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the folder with answers.txt (default: the lab's own)")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, l := range levels.All {
			names = append(names, l.Name)
		}
		if len(args) != 1 {
			names = nil
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] != "0" && args[0] != "00" {
			return usagef(cmd, "lab %q has no levels, want 0", args[0])
		}
		lab, root, err := findLab(cmd, "0")
		if err != nil {
			return err
		}
		if dir == "" {
			dir = lab.Dir(root)
		}
		won, err := grade.Won(dir)
		if err != nil {
			return err
		}
		var l *levels.Level
		if len(args) > 1 {
			if l, err = levels.Lookup(args[1]); err != nil {
				return usagef(cmd, "%v", err)
			}
		} else if l = nextLevel(won); l == nil || !isTerminal(a.out) {
			a.levelList(won)
			return nil
		}
		switch {
		case len(args) == 3:
			return a.judgeLevel(cmd, dir, l, args[2])
		case !isTerminal(a.out):
			fmt.Fprintln(a.out, strings.Join(aboutLevel(l, a.width()), "\n"))
			a.say("", l.Goal())
			fmt.Fprintf(a.out, "\nanswer: btrlab lab run 0 %s SCHEDULE, or never\n", l.Name)
			return nil
		}
		answer, err := playLevel(l)
		if err != nil || answer == "" {
			return err
		}
		return a.judgeLevel(cmd, dir, l, answer)
	}
	return cmd
}

// nextLevel is the first level that is not won, or nil.
func nextLevel(won map[string]bool) *levels.Level {
	for _, l := range levels.All {
		if !won[l.Name] {
			return l
		}
	}
	return nil
}

// levelList prints the levels with those that are won.
func (a *app) levelList(won map[string]bool) {
	for _, l := range levels.All {
		state := ""
		if won[l.Name] {
			state = "won"
		}
		fmt.Fprintf(a.out, "%-14s %-28s %s\n", l.Name, l.Title, state)
	}
	if l := nextLevel(won); l != nil {
		fmt.Fprintf(a.out, "\nnext: btrlab lab run 0 %s\n", l.Name)
	} else {
		fmt.Fprintln(a.out, "\nall are won: btrlab lab grade 0")
	}
}

// aboutLevel is the story of a level and its program, in lines of w characters.
func aboutLevel(l *levels.Level, w int) []string {
	text := append([]string{l.Title, ""}, prose.Words(l.Story, w)...)
	return append(append(text, ""), strings.Split(l.Code(), "\n")...)
}

// playLevel lets the user play, and returns the answer; empty when there is none.
func playLevel(l *levels.Level) (string, error) {
	st, err := levelStepper(l)
	if err != nil {
		return "", err
	}
	if err := st.run(); err != nil {
		return "", err
	}
	return st.answered(), nil
}

func levelStepper(l *levels.Level) (*stepper, error) {
	p, err := timeline.NewPlay("", func(schedule string) (*scenario.Trace, error) { return l.Replay(schedule), nil })
	if err != nil {
		return nil, err
	}
	return &stepper{title: l.Name, goal: l.Goal(), again: l.Command, play: p, never: true, help: true,
		about: append(aboutLevel(l, prose.Width-4), "x           say never: no schedule breaks the rule")}, nil
}

// judgeLevel prints what the answer comes to, and keeps one that wins.
func (a *app) judgeLevel(cmd *cobra.Command, dir string, l *levels.Level, answer string) error {
	v := l.Judge(answer)
	if !v.Fits {
		return usagef(cmd, "%s: %s", l.Name, v.Says)
	}
	if v.Trace != nil {
		if err := timeline.WriteText(a.out, v.Trace, timeline.Layout{Width: a.width()}); err != nil {
			return err
		}
		fmt.Fprintln(a.out)
	}
	if !v.Won {
		a.say("LOST: ", v.Says)
		return errFound
	}
	a.say("WON: ", v.Says)
	a.say("", l.Moral)
	if err := grade.KeepAnswer(dir, l, answer); err != nil {
		return err
	}
	won, err := grade.Won(dir)
	if err != nil {
		return err
	}
	if next := nextLevel(won); next != nil {
		fmt.Fprintf(a.out, "\nnext: btrlab lab run 0 %s\n", next.Name)
	} else {
		fmt.Fprintln(a.out, "\nall are won: btrlab lab grade 0")
	}
	return nil
}

// gradeAll grades the folders in dir; the table goes to a file after each, or in the end to standard output.
func (a *app) gradeAll(cmd *cobra.Command, root string, l *grade.Lab, dir, table string, byName bool) error {
	var known []grade.Submission
	if table != "" {
		f, err := os.Open(table)
		switch {
		case err == nil:
			known, err = grade.ReadCSV(f)
			f.Close()
			if err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
		case !errors.Is(err, os.ErrNotExist):
			return err
		}
	}
	st := a.newStatus()
	defer st.done()
	ctx, cancel := a.context(cmd.Context())
	defer cancel()
	all, err := grade.GradeAll(ctx, root, l, dir, byName, known, func(all []grade.Submission) error {
		st.search(all[len(all)-1].Name)
		if table == "" {
			return nil
		}
		return replaceFile(table, func(w io.Writer) error { return grade.WriteCSV(w, all) })
	})
	st.done()
	var nothing *grade.NoFilesError
	switch {
	case errors.As(err, &nothing):
		return usagef(cmd, "%v", err)
	case errors.Is(err, context.Canceled):
		return errNothing
	case err != nil:
		return err
	}
	if table == "" {
		return grade.WriteCSV(a.out, all)
	}
	fmt.Fprintf(a.out, "%s in %s\n", prose.Count(len(all), "submission"), table)
	return nil
}

// labHandout makes what a class is given.
func (a *app) labHandout() *cobra.Command {
	return &cobra.Command{
		Use: "handout DIR", Short: "make what a class is given: a tree and a zip without solutions", Args: cobra.ExactArgs(1),
		Long: `Handout takes the last commit of this clone without the folders instructor, the tests that hold solutions and the history, and
writes it as a tree to DIR and as a zip to DIR.zip. Labs can be predicted and graded in it, and make test passes. The same commit gives the
same bytes. If a line of a solution were left in it, that is an error, and nothing is written.`,
		Example: "  btrlab lab handout artifacts/handout",
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := grade.Root(".")
			if err != nil {
				return err
			}
			tree, err := handout.Committed(root)
			if err != nil {
				return err
			}
			files, err := handout.From(tree)
			if err != nil {
				return err
			}
			if leaks := handout.Leaks(tree, files); len(leaks) > 0 {
				return fmt.Errorf("not handed out: %s", strings.Join(leaks, "\n"))
			}
			dir := filepath.Clean(args[0])
			if err := handout.WriteTree(dir, files); err != nil {
				return err
			}
			if err := replaceFile(dir+".zip", func(w io.Writer) error { return handout.WriteZip(w, "btrlab", files) }); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s in %s and %s.zip\n", prose.Count(len(files), "file"), dir, dir)
			return nil
		},
	}
}

// replaceFile writes a file anew: a reader sees the old one or the new one.
func replaceFile(path string, write func(w io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".grades-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(write(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
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

// writeReport writes the page of a report to path. A profile that was not made, because nothing was measured, is not named.
func writeReport(l *grade.Lab, r *grade.Report, root, dir, path, profile string) error {
	if dir == "" {
		dir = l.Dir(root)
	}
	if _, err := os.Stat(profile); err != nil {
		profile = ""
	}
	return replaceFile(path, func(w io.Writer) error { return l.WriteMarkdown(w, r, dir, profile) })
}

func (a *app) labGrade() *cobra.Command {
	var dir, replay, results, class, table, student, page string
	var asJSON, byName bool
	cmd := &cobra.Command{
		Use: "grade N", Short: "grade lab N", Args: cobra.ExactArgs(1),
		Long: `Grade runs every workload of the lab under your code and prints a table; a violation comes with its shortest schedule, the
command that replays it and, for the first, its steps. Code that does not end is stopped by its processor time, with the line in
which it was. With --student the personal questions of the lab are graded, too: their answers are in personal.txt. Exit code 1 means that something failed; 2 that there is nothing to grade, or no such workload or schedule.`,
		Example: `  btrlab lab grade 4
  btrlab lab grade 5 --dir ~/mine --gradescope results.json
  btrlab lab grade 4 --replay truncate-race=11:1
  btrlab lab grade 4 --student ada
  btrlab lab grade 5 --all submissions --csv grades.csv
  btrlab lab grade 12 --report lab-12.markdown`,
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			if class != "" {
				if dir != "" || replay != "" || results != "" || student != "" || page != "" || asJSON {
					return usagef(cmd, "--all goes with --csv and --by-name only")
				}
				return a.gradeAll(cmd, root, l, class, table, byName)
			}
			if byName {
				return usagef(cmd, "--by-name goes with --all only")
			}
			if table != "" {
				return usagef(cmd, "--csv goes with --all only")
			}
			st := a.newStatus()
			defer st.done()
			o := grade.Options{Dir: dir, Student: strings.TrimSpace(student), Progress: func(p grade.Progress) {
				st.search(p.Workload)
				st.progress(p.Progress)
			}}
			if replay != "" {
				var ok bool
				if o.Workload, o.Schedule, ok = strings.Cut(replay, "="); !ok || o.Workload == "" {
					return usagef(cmd, "--replay %q, want WORKLOAD=SCHEDULE", replay)
				}
				if l.N == 0 || l.N == 1 {
					return usagef(cmd, "lab %d has no code to replay; use btrlab %s", l.N, map[int]string{0: "lab run", 1: "replay"}[l.N])
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
			if page != "" {
				if replay != "" {
					return usagef(cmd, "--report goes with a whole grade, not with --replay")
				}
				f, err := os.OpenFile(page, os.O_WRONLY|os.O_CREATE, 0o644)
				if err != nil {
					return err
				}
				f.Close()
				o.Profile = strings.TrimSuffix(page, filepath.Ext(page)) + ".lock.pprof"
				if err := os.Remove(o.Profile); err != nil && !errors.Is(err, os.ErrNotExist) {
					return err // one of an earlier grade
				}
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
			if page != "" {
				if err := writeReport(l, r, root, dir, page, o.Profile); err != nil {
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
	f.StringVar(&student, "student", "", "the student's id: grade the personal questions, which lab questions prints")
	f.BoolVar(&byName, "by-name", false, "with --all: a folder's name is its student's id, and personal questions are graded")
	f.StringVar(&class, "all", "", "grade every folder in this one, and print a table")
	f.StringVar(&table, "csv", "", "with --all: keep the table in this file, and grade only what has changed since")
	f.StringVar(&page, "report", "", "also write a page with tables and the rubric to this file (Markdown), and beside it the profile of the waits")
	f.StringVar(&results, "gradescope", "", "also write the report as Gradescope's results.json to this file")
	jsonFlag(cmd, &asJSON)
	return cmd
}
