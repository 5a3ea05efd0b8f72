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

// width is that of the terminal that the output goes to, in characters; 80 without one, or on a narrower one.
func (a *app) width() int {
	f, ok := a.out.(*os.File)
	if !ok {
		return prose.Width
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return prose.Width
	}
	return max(columns, prose.Width)
}

// say prints heading and text, wrapped at the output's width; further lines are indented by the heading's width.
func (a *app) say(heading, text string) {
	for _, l := range prose.Hang(heading, strings.Repeat(" ", utf8.RuneCountInString(heading)), text, a.width()) {
		fmt.Fprintln(a.out, l)
	}
}
