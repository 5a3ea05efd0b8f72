package learn

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/practice"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/timeline"
	"btrlab/labs/own"
)

// practiceResult is a question, and with an answer its verdict, as practice prints it with --json.
type practiceResult struct {
	*practice.Question
	Title   string            `json:"title"`
	Text    []string          `json:"text"` // the question, in lines of 80 characters
	Answer  string            `json:"answer,omitempty"`
	Verdict *practice.Verdict `json:"verdict,omitempty"`
}

// practicing is the verb practice, with its flags.
type practicing struct {
	verbs
	cmd                   *cobra.Command
	seed                  uint64
	level                 int
	answer, kind, ownFile string
	asJSON, template      bool
	lf                    app.LayoutFlags
}

func (a verbs) practice() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "practice [--template [FILE]]",
		Short: "make a small question about concurrency, and judge the answer by exploration",
		Long: `Practice makes a question from a seed: what a few tasks do, and what to predict of it. Which schedule breaks the rule, or never; who can
see what; how few preemptions break it; how many schedules there are. It reads the answer from the terminal, from standard input or from
--answer, explores every schedule, and says whether the answer is right, what is so, and shows the shortest schedule. No answer is stored
anywhere: the explorer decides. The same seed and level are the same question on every machine.

Levels 1 to 3 are programs of a few lines with locks and words: two tasks and at most one lock; then two or three tasks and two locks;
then three tasks, longer. Levels 4 and 5 are operations on a file on the real write path under a locking policy: two operations on a few
pages; then writes of two batches, or three tasks.

With --own it explores a program of your own instead: a Go file with func Program(w *kit.World), ten lines of package labs/kit.
--template prints one that shows a race, or writes it to a file. Like a lab's code it is checked, built in the clone of btrlab
around the working directory, and stopped by its processor time; --answer runs one schedule of it. A Cond may wake a task without a
Broadcast, as the field's conditions may: if nothing else breaks the program, one such wake-up for each task is tried, and a schedule with
one begins with "spurious".
Exit code 1 means that the answer is wrong or the program breaks; 2 that it is no answer to the question.`,
		Example: `  btrlab practice
  btrlab practice --seed 7 --level 2
  btrlab practice --seed 7 --level 2 --answer never
  btrlab practice --level 4 --kind break
  btrlab practice --template mine.go; btrlab practice --own mine.go`,
		Args: cobra.MaximumNArgs(1),
	}
	v := &practicing{verbs: a, cmd: cmd}
	v.flags()
	cmd.RunE = func(_ *cobra.Command, args []string) error { return v.run(args) }
	return cmd
}

func (v *practicing) flags() {
	f := v.cmd.Flags()
	f.Uint64Var(&v.seed, "seed", 0, "the question's number (default: another one each time)")
	f.IntVar(&v.level, "level", 1, fmt.Sprintf("difficulty, 1 to %d", practice.MaxLevel))
	f.StringVar(&v.kind, "kind", "", "break, see, fewest or count (default: the seed chooses)")
	f.StringVar(&v.answer, "answer", "", "your answer (default: asked for, or a line of standard input)")
	f.StringVar(&v.ownFile, "own", "", "explore the program in this Go file")
	f.BoolVar(&v.template, "template", false, "print a program to begin with, or write it to FILE")
	v.lf.Flags(v.cmd)
	app.JSONFlag(v.cmd, &v.asJSON)
	app.CompleteFixed(v.cmd, "kind", []string{"break", "see", "fewest", "count"})
	app.CompleteFixed(v.cmd, "level", []string{"1", "2", "3", "4", "5"})
	f.Lookup("seed").DefValue = "0" // pflag leaves a zero out
}

func (v *practicing) run(args []string) error {
	given := v.cmd.Flags().Changed
	if len(args) > 0 && !v.template {
		return app.Usagef(v.cmd, "have an argument, %q, want one with --template only", args[0])
	}
	err := app.Check(v.cmd,
		app.Excludes("seed level kind", "template own", "--%s is about questions, not about a program of your own"),
		app.Excludes("template", "own", "want --template or --own, not both"))
	switch {
	case err != nil:
		return err
	case v.template:
		return v.writeTemplate(args)
	case v.ownFile != "":
		return v.exploreOwn(v.cmd, v.ownFile, given("answer"), v.answer, v.asJSON)
	}
	q, err := v.question()
	if err != nil {
		return err
	}
	if !v.asJSON && !given("answer") {
		if err := v.ask(fmt.Sprintf("practice, level %d, seed %d: %s", q.Level, q.Seed, q.Title()), q, v.Layout(&v.lf)); err != nil {
			return err
		}
	}
	return v.judge(q)
}

// question makes the one of the seed, or of a number that is drawn.
func (v *practicing) question() (*practice.Question, error) {
	if !v.cmd.Flags().Changed("seed") {
		var b [4]byte // short enough to be typed
		if _, err := rand.Read(b[:]); err != nil {
			return nil, err
		}
		v.seed = uint64(binary.LittleEndian.Uint32(b[:]))
	}
	making := v.NewStatus()
	defer making.Done()
	q, err := practice.Make(v.seed, v.level, practice.Kind(v.kind), func(n int) {
		making.Show(fmt.Sprintf("making the question: candidate %d", n))
	})
	if err != nil {
		return nil, app.Usagef(v.cmd, "%v", err)
	}
	return q, nil
}

// judge takes the answer, from --answer or from the input, and prints what comes of it.
func (v *practicing) judge(q *practice.Question) (err error) {
	var verdict *practice.Verdict
	judge := func(answer string) (err error) {
		st := v.NewStatus()
		defer st.Done()
		verdict, err = q.Judge(answer, practice.Options{Progress: st.Progress, Stop: v.Stop.Load})
		return err
	}
	given := v.cmd.Flags().Changed("answer")
	if given {
		err = judge(v.answer)
	} else if in, ok := v.In.(*os.File); !(v.asJSON && ok && app.IsTerminal(in)) {
		// else nobody has seen the question yet
		v.answer, given, err = v.answered(judge)
	}
	res := practiceResult{Question: q, Title: q.Title(), Text: questionLines(q, prose.Width)}
	var bad *practice.BadAnswer
	switch {
	case errors.As(err, &bad):
		return app.Usagef(v.cmd, "%v", err)
	case errors.Is(err, practice.ErrStopped):
		return app.ErrNothing
	case err != nil:
		return err
	case given:
	case v.asJSON:
		return v.PrintJSON(res)
	default:
		fmt.Fprintln(v.Out, prose.Command("answer: ", q.Command()+" --answer ANSWER", v.Width()))
		return nil
	}
	res.Answer, res.Verdict = strings.TrimSpace(v.answer), verdict
	if v.asJSON {
		err = v.PrintJSON(res)
	} else {
		err = v.printVerdict(q, verdict, v.Layout(&v.lf))
	}
	if err == nil && !verdict.Right {
		err = app.ErrFound
	}
	return err
}

// writeTemplate writes the program to begin with to a file that is not there yet, or prints it.
func (a verbs) writeTemplate(args []string) error {
	if len(args) == 0 {
		_, err := io.WriteString(a.Out, own.Template)
		return err
	}
	w, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, own.Template); err != nil {
		w.Close()
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	fmt.Fprintln(a.Out, prose.Command("explore it: ", "btrlab practice --own "+prose.ShellWord(args[0]), a.Width()))
	return nil
}

// exploreOwn explores a program of the user's own, or runs one schedule of it.
func (a verbs) exploreOwn(cmd *cobra.Command, file string, one bool, schedule string, asJSON bool) error {
	root, err := sandbox.Root(".")
	if err != nil {
		return err
	}
	st := a.NewStatus()
	defer st.Done()
	var o sandbox.Options
	if one {
		o = judges.OwnReplay(schedule)
	}
	o.Progress = func(p sandbox.Progress) { st.Progress(p.Progress) }
	ctx, cancel := a.Context(cmd.Context())
	defer cancel()
	r, err := judges.ExploreOwn(ctx, root, file, o)
	st.Done()
	switch {
	case errors.Is(err, context.Canceled):
		return app.ErrNothing
	case err != nil:
		return err
	case r.Misfit:
		return app.Usagef(cmd, "--answer %s: %s", schedule, r.Result)
	}
	if r.Violated {
		r.Replay = fmt.Sprintf("btrlab practice --own %s --answer '%s'", prose.ShellWord(file), r.Schedule)
	}
	if asJSON {
		err = a.PrintJSON(r)
	} else {
		if r.Trace != "" {
			fmt.Fprintf(a.Out, "%s\n\n", strings.TrimRight(r.Trace, "\n"))
		}
		fmt.Fprintln(a.Out, prose.Wrap(r.Result, a.Width()))
		if r.Replay != "" {
			fmt.Fprintln(a.Out, prose.Command("again: ", r.Replay, a.Width()))
		}
	}
	if err == nil && !r.Pass {
		err = app.ErrFound
	}
	return err
}

// questionLines is a question in lines of w characters.
func questionLines(q *practice.Question, w int) []string {
	var l []string
	for i, p := range q.Text() {
		if i > 0 {
			l = append(l, "")
		}
		if p.Text != "" {
			l = append(l, prose.Words(p.Text, w)...)
		}
		for _, line := range p.Lines {
			l = append(l, "  "+line)
		}
	}
	return l
}

// ask prints a question, and where a schedule is asked for the steps without preemptions, so that
// there are numbers to name.
func (a verbs) ask(title string, q *practice.Question, lay timeline.Layout) error {
	a.Say("", title)
	fmt.Fprintf(a.Out, "\n%s\n", strings.Join(questionLines(q, a.Width()), "\n"))
	tr, err := q.Default()
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	if tr == nil {
		return nil
	}
	if err := timeline.WriteText(a.Out, tr, lay); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	return nil
}

// answered reads an answer from standard input and judges it; false is none. On a terminal it says
// what is no answer to the question, and asks again.
func (a verbs) answered(judge func(answer string) error) (answer string, given bool, err error) {
	f, ok := a.In.(*os.File)
	asks := ok && app.IsTerminal(f)
	for in := bufio.NewScanner(a.Stdin()); ; {
		if asks {
			fmt.Fprint(a.Err, "your answer: ")
		}
		if !in.Scan() {
			return "", false, in.Err()
		}
		err = judge(in.Text())
		var bad *practice.BadAnswer
		if !asks || !errors.As(err, &bad) {
			return in.Text(), true, err
		}
		a.Say("", err.Error())
	}
}

func (a verbs) printVerdict(q *practice.Question, v *practice.Verdict, lay timeline.Layout) error {
	head := "WRONG: "
	if v.Right {
		head = "RIGHT: "
	}
	a.Say(head, v.Says)
	a.Say("       ", v.Count)
	if v.Trace != nil {
		fmt.Fprintln(a.Out)
		if err := timeline.WriteText(a.Out, v.Trace, lay); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
		if q.Kind == practice.Break && v.Schedule != "" {
			a.Say("       ", fmt.Sprintf("the schedule is %s", v.Schedule))
		}
	}
	fmt.Fprintln(a.Out, prose.Command("again: ", v.Replay, a.Width()))
	return nil
}
