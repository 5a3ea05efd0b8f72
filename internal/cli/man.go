package cli

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// man writes the manual pages.
func (a *app) man() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "man FOLDER",
		Short: "write a manual page for each verb into a folder",
		Long:  "Man writes the help of each verb as a manual page of section 1 into FOLDER, which is made if it is not there.",
		Example: `  btrlab man man1 && man ./man1/btrlab-compare.1
  btrlab completion bash > /etc/bash_completion.d/btrlab`,
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		root := a.commands() // without the layout for a terminal
		root.DisableAutoGenTag = true
		root.InitDefaultCompletionCmd()
		return doc.GenManTree(root, &doc.GenManHeader{Title: "BTRLAB", Section: "1", Source: "btrlab", Manual: "btrlab"}, args[0])
	}
	return cmd
}
