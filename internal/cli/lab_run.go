package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/prose"
	"btrlab/internal/study/course"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

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
		lab := course.Levels()
		if n, err := strconv.Atoi(args[0]); err != nil || n != lab.N {
			return usagef(cmd, "lab %q has no levels, want %d", args[0], lab.N)
		}
		root, err := sandbox.Root(".")
		if err != nil {
			return err
		}
		if dir == "" {
			dir = lab.Dir(root)
		} else if _, err := os.ReadDir(dir); err != nil {
			return usagef(cmd, "--dir: %v", err)
		}
		won, err := judges.Won(dir)
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
	if err := judges.KeepAnswer(dir, l, answer); err != nil {
		return err
	}
	won, err := judges.Won(dir)
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
