package cli

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"btrlab/internal/cli/app"
)

// man writes the manual pages.
func (a cmdline) man() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "man FOLDER",
		Short: "write a manual page for each verb into a folder",
		Long:  "Man writes the help of each verb as a manual page of section 1 into FOLDER, which is made if it is not there.",
		Example: `  btrlab man man1 && man ./man1/btrlab-compare.1
  btrlab completion bash > /etc/bash_completion.d/btrlab`,
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		undo, err := app.MakeDirs(args[0])
		if err != nil {
			return err
		}
		if err := a.manPages(args[0]); err != nil {
			undo()
			return err
		}
		return nil
	}
	return cmd
}

// manPages writes the pages beside those in dir, and moves them there when all are whole.
func (a cmdline) manPages(dir string) error {
	part, err := os.MkdirTemp(dir, ".part~")
	if err != nil {
		return err
	}
	defer os.RemoveAll(part)
	root := a.commands() // without the layout for a terminal
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "BTRLAB", Section: "1", Source: "btrlab", Manual: "btrlab"}, part); err != nil {
		return err
	}
	return app.MoveInto(dir, part)
}
