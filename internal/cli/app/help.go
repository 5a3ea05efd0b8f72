package app

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"btrlab/internal/prose"
)

var (
	badArgument  = regexp.MustCompile(`^invalid argument ("(?:[^"\\]|\\.)*") for "(?:-., )?(--[a-z-]+)" flag: strconv\.\w+: .*$`)
	badShorthand = regexp.MustCompile(`^unknown shorthand flag: '(.)' in -(.+)$`)
)

// FlagError is the error of a flag without the words of its parser: what, have, want.
func FlagError(err error) error {
	text := err.Error()
	if m := badArgument.FindStringSubmatch(text); m != nil {
		value, quoteErr := strconv.Unquote(m[1])
		if quoteErr == nil {
			return fmt.Errorf("bad %s, have %q want a number", m[2], value)
		}
	}
	if m := badShorthand.FindStringSubmatch(text); m != nil && len(m[2]) > 0 && unicode.IsLetter(rune(m[1][0])) {
		return fmt.Errorf("there is no flag -%s", m[1])
	}
	return err
}

// The functions of help templates are cobra's for the whole process, and no lock of it protects
// them: they are added once, before the clients of sh --at make commands, many at a time.
func init() {
	cobra.AddTemplateFunc("fill", func(text string) string { return prose.Fill(text, prose.Width) })
	cobra.AddTemplateFunc("hang", func(name, text string) string {
		return strings.Join(prose.Hang("  "+name+" ", strings.Repeat(" ", len(name)+3), text, prose.Width), "\n")
	})
}

// SetHelp makes the help of every verb fit a terminal of 80 columns.
func SetHelp(root *cobra.Command) {
	var examples func(cmd *cobra.Command)
	examples = func(cmd *cobra.Command) {
		lines := strings.Split(cmd.Example, "\n")
		for i, l := range lines {
			bare := strings.TrimLeft(l, " ")
			lines[i] = prose.Command(l[:len(l)-len(bare)], bare, prose.Width)
		}
		cmd.Example = strings.Join(lines, "\n")
		for _, c := range cmd.Commands() {
			examples(c)
		}
	}
	examples(root)
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if w := TerminalWidth(cmd.OutOrStdout()); w < prose.Width {
			n := &prose.Narrow{W: cmd.OutOrStdout(), Columns: w}
			defer n.Close()
			cmd.SetOut(n)
		}
		help(cmd, args)
	})
	root.SetHelpTemplate(strings.ReplaceAll(root.HelpTemplate(), ". | trimTrailingWhitespaces", "fill ."))
	root.SetUsageTemplate(strings.NewReplacer(
		"FlagUsages |", fmt.Sprintf("FlagUsagesWrapped %d |", prose.Width),
		"  {{rpad .Name .NamePadding }} {{.Short}}", "{{hang (rpad .Name .NamePadding) .Short}}",
	).Replace(root.UsageTemplate()))
}

// Add adds verbs to root, in the help in a group.
func (a *Run) Add(root *cobra.Command, group string, verbs ...*cobra.Command) {
	for _, v := range verbs {
		v.GroupID = group
		v.DisableFlagsInUseLine = false
		root.AddCommand(v)
	}
}

// WrapArgs makes every error about arguments a usage error, and rejects an unknown word after a
// verb that has only subcommands.
func WrapArgs(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		WrapArgs(c)
		if c.HasSubCommands() && !c.Runnable() {
			c.DisableFlagsInUseLine = true
			c.Args = nil // completion's refuses the word by its number
			c.RunE = func(cmd *cobra.Command, given []string) error {
				if len(given) == 0 {
					return cmd.Help()
				}
				var l []string
				for _, sub := range cmd.Commands() {
					l = append(l, sub.Name())
				}
				return Usagef(cmd, "there is no verb %q, want one of %s", given[0], strings.Join(l, ", "))
			}
		}
		if args := c.Args; args != nil {
			c.Args = func(cmd *cobra.Command, given []string) error {
				if err := args(cmd, given); err != nil {
					return Usagef(cmd, "have %s, want %s", prose.Count(len(given), "argument"), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
				}
				return nil
			}
		}
	}
}
