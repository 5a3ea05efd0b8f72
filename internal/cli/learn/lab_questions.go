package learn

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/study/course"
	"btrlab/internal/study/judges"
)

// labQuestions prints the questions that are another one for each student.
func (a verbs) labQuestions() *cobra.Command {
	var student string
	var asJSON bool
	var lf app.LayoutFlags
	cmd := &cobra.Command{
		Use: "questions N", Short: "print the personal questions of lab N", Args: cobra.ExactArgs(1),
		Long: `Questions prints the questions of a lab that are graded and are another one for each student: they are made from the id that --student
gives. The answers go into personal.txt beside the lab's file, and lab grade N --student ID judges them by exploration. Of a lab
whose rows are all another one for each student, as 15 and 17, it prints the rows; their answers go into the lab's own file.`,
		Example: "  btrlab lab questions 4 --student ada\n  btrlab lab grade 4 --student ada",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			if strings.TrimSpace(student) == "" {
				return app.Usagef(cmd, "--student %q, want the id that the lab is graded with", student)
			}
			if tasks := l.Asks(student); tasks != nil {
				return a.printTasks(l, tasks, student, asJSON)
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
				return a.PrintJSON(list)
			}
			if len(qs) == 0 {
				fmt.Fprintf(a.Out, "lab %d has no personal questions\n", l.N)
				return nil
			}
			for i, q := range qs {
				if err := a.ask(fmt.Sprintf("lab %d, personal question %d of %s: %s", l.N, i+1, student, q.Title()), q, a.Layout(&lf)); err != nil {
					return err
				}
			}
			a.Say("", fmt.Sprintf("Write a line NUMBER = ANSWER for each into %s.", relative(root, l.PersonalFile(root))))
			fmt.Fprintln(a.Out, prose.Command("grade: ", fmt.Sprintf("btrlab lab grade %d --student %s", l.N, prose.ShellWord(student)), a.Width()))
			return nil
		},
	}
	cmd.Flags().StringVar(&student, "student", "", "the student's id")
	lf.Flags(cmd)
	app.JSONFlag(cmd, &asJSON)
	return cmd
}

// printTasks prints the rows of a lab that are a student's own.
func (a verbs) printTasks(l *course.Lab, tasks []judges.Asked, student string, asJSON bool) error {
	if asJSON {
		return a.PrintJSON(tasks)
	}
	for _, t := range tasks {
		for _, line := range prose.Hang(fmt.Sprintf("%-12s %2g  ", t.Name, t.Points), strings.Repeat(" ", 17), t.Asks, a.Width()) {
			fmt.Fprintln(a.Out, line)
		}
	}
	fmt.Fprintln(a.Out, prose.Command("grade: ", fmt.Sprintf("btrlab lab grade %d --student %s", l.N, prose.ShellWord(student)), a.Width()))
	return nil
}
