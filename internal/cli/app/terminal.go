package app

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"btrlab/internal/prose"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
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

// Width is that of the terminal that the output goes to, in characters; 80 without one, or on a
// narrower one.
func (a *Run) Width() int { return TerminalWidth(a.Out) }

// TerminalWidth is the columns of the terminal that w is, prose.Width if it is none or narrower.
func TerminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return prose.Width
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return prose.Width
	}
	return max(columns, prose.Width)
}

// Say prints heading and text, wrapped at the output's width; further lines are indented by the
// heading's width.
func (a *Run) Say(heading, text string) {
	for _, l := range prose.Hang(heading, strings.Repeat(" ", utf8.RuneCountInString(heading)), text, a.Width()) {
		fmt.Fprintln(a.Out, l)
	}
}
