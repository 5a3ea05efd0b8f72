package learn

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/cli/screen"
	"btrlab/internal/study/course"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/timeline"
)

// labRun plays the levels of lab 0.
func (a verbs) labRun() *cobra.Command {
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
			return app.Usagef(cmd, "lab %q has no levels, want %d", args[0], lab.N)
		}
		root, err := sandbox.Root(".")
		if err != nil {
			return err
		}
		if dir == "" {
			dir = lab.Dir(root)
		} else if _, err := os.ReadDir(dir); err != nil {
			return app.Usagef(cmd, "--dir: %v", err)
		}
		won, err := judges.Won(dir)
		if err != nil {
			return err
		}
		var l *levels.Level
		if len(args) > 1 {
			if l, err = levels.Lookup(args[1]); err != nil {
				return app.Usagef(cmd, "%v", err)
			}
		} else if l = nextLevel(won); l == nil || !app.IsTerminal(a.Out) {
			a.levelList(won)
			return nil
		}
		switch {
		case len(args) == 3:
			return a.judgeLevel(cmd, dir, l, args[2])
		case !app.IsTerminal(a.Out):
			fmt.Fprintln(a.Out, strings.Join(screen.About(l, a.Width()), "\n"))
			a.Say("", l.Goal())
			fmt.Fprintf(a.Out, "\nanswer: btrlab lab run 0 %s SCHEDULE, or never\n", l.Name)
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
func (a verbs) levelList(won map[string]bool) {
	for _, l := range levels.All {
		state := ""
		if won[l.Name] {
			state = "won"
		}
		fmt.Fprintf(a.Out, "%-14s %-28s %s\n", l.Name, l.Title, state)
	}
	if l := nextLevel(won); l != nil {
		fmt.Fprintf(a.Out, "\nnext: btrlab lab run 0 %s\n", l.Name)
	} else {
		fmt.Fprintln(a.Out, "\nall are won: btrlab lab grade 0")
	}
}

// playLevel lets the user play, and returns the answer; empty when there is none.
func playLevel(l *levels.Level) (string, error) {
	st, err := screen.NewLevel(l)
	if err != nil {
		return "", err
	}
	if err := st.Run(); err != nil {
		return "", err
	}
	return st.Answered(), nil
}

// judgeLevel prints what the answer comes to, and keeps one that wins.
func (a verbs) judgeLevel(cmd *cobra.Command, dir string, l *levels.Level, answer string) error {
	v := l.Judge(answer)
	if !v.Fits {
		return app.Usagef(cmd, "%s: %s", l.Name, v.Says)
	}
	if v.Trace != nil {
		if err := timeline.WriteText(a.Out, v.Trace, timeline.Layout{Width: a.Width()}); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
	}
	if !v.Won {
		a.Say("LOST: ", v.Says)
		return app.ErrFound
	}
	a.Say("WON: ", v.Says)
	a.Say("", l.Moral)
	if err := judges.KeepAnswer(dir, l, answer); err != nil {
		return err
	}
	won, err := judges.Won(dir)
	if err != nil {
		return err
	}
	if next := nextLevel(won); next != nil {
		fmt.Fprintf(a.Out, "\nnext: btrlab lab run 0 %s\n", next.Name)
	} else {
		fmt.Fprintln(a.Out, "\nall are won: btrlab lab grade 0")
	}
	return nil
}
