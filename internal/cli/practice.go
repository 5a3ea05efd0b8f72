package cli

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/prose"
	"btrlab/internal/study/practice"
	"btrlab/internal/study/timeline"
)

// practiceResult is a question, and with an answer its verdict, as practice prints it with --json.
type practiceResult struct {
	*practice.Question
	Title   string            `json:"title"`
	Text    []string          `json:"text"` // the question, in lines of 80 characters
	Answer  string            `json:"answer,omitempty"`
	Verdict *practice.Verdict `json:"verdict,omitempty"`
}

func (a *app) practice() *cobra.Command {
	var seed uint64
	level := 1
	var answer, kind string
	var asJSON bool
	var lf layoutFlags
	cmd := &cobra.Command{
		Use:   "practice",
		Short: "make a small question about concurrency, and judge the answer by exploration",
		Long: `Practice makes a question from a seed: what a few tasks do, and what to predict of it. Which schedule breaks the rule, or never; who can
see what; how few preemptions break it; how many schedules there are. It reads the answer from the terminal, from standard input or from
--answer, explores every schedule, and says whether the answer is right, what is so, and shows the shortest schedule. No answer is stored
anywhere: the explorer decides. The same seed and level are the same question on every machine.

Levels 1 to 3 are programs of a few lines with locks and words: two tasks and at most one lock; then two or three tasks and two locks;
then three tasks, longer. Levels 4 and 5 are operations on a file on the real write path under a locking policy: two operations on a few
pages; then writes of two batches, or three tasks.
Exit code 1 means that the answer is wrong; 2 that it is no answer to the question.`,
		Example: `  btrlab practice
  btrlab practice --seed 7 --level 2
  btrlab practice --seed 7 --level 2 --answer never
  btrlab practice --level 4 --kind break`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.Uint64Var(&seed, "seed", 0, "the question's number (default: another one each time)")
	f.IntVar(&level, "level", 1, fmt.Sprintf("difficulty, 1 to %d", practice.MaxLevel))
	f.StringVar(&kind, "kind", "", "break, see, fewest or count (default: the seed chooses)")
	f.StringVar(&answer, "answer", "", "your answer (default: asked for, or a line of standard input)")
	lf.flags(cmd)
	jsonFlag(cmd, &asJSON)
	completeFixed(cmd, "kind", []string{"break", "see", "fewest", "count"})
	completeFixed(cmd, "level", []string{"1", "2", "3", "4", "5"})
	f.Lookup("seed").DefValue = ""
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !f.Changed("seed") {
			var b [4]byte // short enough to be typed
			if _, err := rand.Read(b[:]); err != nil {
				return err
			}
			seed = uint64(binary.LittleEndian.Uint32(b[:]))
		}
		q, err := practice.New(seed, level, practice.Kind(kind))
		if err != nil {
			return usagef(cmd, "%v", err)
		}
		res := practiceResult{Question: q, Title: q.Title(), Text: questionLines(q, prose.Width)}
		if !asJSON && !f.Changed("answer") {
			if err := a.ask(fmt.Sprintf("practice, level %d, seed %d: %s", q.Level, q.Seed, q.Title()), q, a.layout(&lf)); err != nil {
				return err
			}
		}
		given := f.Changed("answer")
		if !given {
			if answer, given, err = a.readAnswer(); err != nil {
				return err
			}
		}
		if !given {
			if asJSON {
				return a.printJSON(res)
			}
			fmt.Fprintln(a.out, prose.Command("answer: ", q.Command()+" --answer ANSWER", a.width()))
			return nil
		}
		st := a.newStatus()
		defer st.done()
		v, err := q.Judge(answer, practice.Options{Progress: st.progress, Stop: a.stop.Load})
		st.done()
		var bad *practice.BadAnswer
		switch {
		case errors.As(err, &bad):
			return usagef(cmd, "%v", err)
		case errors.Is(err, practice.ErrStopped):
			return errNothing
		case err != nil:
			return err
		}
		res.Answer, res.Verdict = strings.TrimSpace(answer), v
		if asJSON {
			err = a.printJSON(res)
		} else {
			err = a.printVerdict(q, v, a.layout(&lf))
		}
		if err == nil && !v.Right {
			err = errFound
		}
		return err
	}
	return cmd
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

// ask prints a question, and where a schedule is asked for the steps without preemptions, so that there are numbers to name.
func (a *app) ask(title string, q *practice.Question, lay timeline.Layout) error {
	a.say("", title)
	fmt.Fprintf(a.out, "\n%s\n", strings.Join(questionLines(q, a.width()), "\n"))
	tr, err := q.Default()
	if err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	if tr == nil {
		return nil
	}
	if err := timeline.WriteText(a.out, tr, lay); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	return nil
}

// readAnswer reads a line of standard input; false is none.
func (a *app) readAnswer() (string, bool, error) {
	if f, ok := a.in.(*os.File); ok && isTerminal(f) {
		fmt.Fprint(a.out, "your answer: ")
	}
	line, err := bufio.NewReader(a.stdin()).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
		if line == "" {
			return "", false, nil
		}
	}
	return strings.TrimRight(line, "\r\n"), true, err
}

func (a *app) printVerdict(q *practice.Question, v *practice.Verdict, lay timeline.Layout) error {
	head := "WRONG: "
	if v.Right {
		head = "RIGHT: "
	}
	a.say(head, v.Says)
	a.say("       ", v.Count)
	if v.Trace != nil {
		fmt.Fprintln(a.out)
		if err := timeline.WriteText(a.out, v.Trace, lay); err != nil {
			return err
		}
		fmt.Fprintln(a.out)
		if q.Kind == practice.Break && v.Schedule != "" {
			a.say("       ", fmt.Sprintf("the schedule is %s", v.Schedule))
		}
	}
	fmt.Fprintln(a.out, prose.Command("again: ", v.Replay, a.width()))
	return nil
}
