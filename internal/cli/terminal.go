package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"btrlab/internal/prose"
)

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// shown is text with names from an image as it is printed to w. On a terminal control characters
// are escaped, because a name may have some that retitle the window, hide what was printed before,
// or end the line; a file or a pipe gets the text as it is.
func shown(w io.Writer, text string) string {
	if !isTerminal(w) {
		return text
	}
	return prose.Escape(text)
}

// lineWriter escapes what is written to it, but for the ends of lines and tabs. A character comes
// in one Write.
type lineWriter struct{ w io.Writer }

func (l lineWriter) Write(p []byte) (int, error) {
	_, err := io.WriteString(l.w, prose.EscapeLines(string(p)))
	return len(p), err
}

// width is that of the terminal that the output goes to, in characters; 80 without one, or on a
// narrower one.
func (a *app) width() int { return terminalWidth(a.out) }

// terminalWidth is the columns of the terminal that w is, prose.Width if it is none or narrower.
func terminalWidth(w io.Writer) int {
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

// say prints heading and text, wrapped at the output's width; further lines are indented by the
// heading's width.
func (a *app) say(heading, text string) {
	for _, l := range prose.Hang(heading, strings.Repeat(" ", utf8.RuneCountInString(heading)), text, a.width()) {
		fmt.Fprintln(a.out, l)
	}
}
