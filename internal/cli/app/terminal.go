package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"btrlab/internal/prose"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	if n, ok := w.(*prose.Narrow); ok {
		w = n.W
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Shown is text with names from an image as it is printed to w. On a terminal control characters
// are escaped, because a name may have some that retitle the window, hide what was printed before,
// or end the line; a file or a pipe gets the text as it is.
func Shown(w io.Writer, text string) string {
	if !IsTerminal(w) {
		return text
	}
	return prose.Escape(text)
}

// LineWriter escapes what is written to it, but for the ends of lines and tabs. A character comes
// in one Write.
type LineWriter struct{ W io.Writer }

func (l LineWriter) Write(p []byte) (int, error) {
	_, err := io.WriteString(l.W, prose.EscapeLines(string(p)))
	return len(p), err
}

// Width is that of the output, in characters: see TerminalWidth.
func (a *Run) Width() int { return TerminalWidth(a.Out) }

// minWidth is the width of a line on a terminal that has less, or says nonsense.
const minWidth = 20

// TerminalWidth is the columns of the terminal that w is; of another file those that the variable
// COLUMNS has, or prose.Width.
func TerminalWidth(w io.Writer) int {
	if n, ok := w.(*prose.Narrow); ok {
		return n.Columns
	}
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return max(columns, minWidth)
		}
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		return max(columns, minWidth)
	}
	return prose.Width
}

// NarrowOutput makes a verb whose text and tables are set for 80 columns fit a narrower output.
// What is for a program (--json, --benchstat) and what draws a screen (--step) stays as it is.
func (a *Run) NarrowOutput(cmd *cobra.Command) {
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		w := a.Width()
		if w >= prose.Width || len(given(cmd, "json benchstat step")) > 0 {
			return run(cmd, args)
		}
		n := &prose.Narrow{W: a.Out, Columns: w}
		a.Out = n
		defer func() { a.Out = n.W }()
		return errors.Join(run(cmd, args), n.Close())
	}
}

// Say prints heading and text, wrapped at the output's width; further lines are indented by the
// heading's width.
func (a *Run) Say(heading, text string) {
	for _, l := range prose.Hang(heading, strings.Repeat(" ", utf8.RuneCountInString(heading)), text, a.Width()) {
		fmt.Fprintln(a.Out, l)
	}
}
