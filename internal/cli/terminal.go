package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
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
	return escape(text)
}

// lineWriter escapes what is written to it, but for the ends of lines and tabs. A character comes
// in one Write.
type lineWriter struct{ w io.Writer }

func (l lineWriter) Write(p []byte) (int, error) {
	var b strings.Builder
	for from, i := 0, 0; i <= len(p); i++ {
		if i < len(p) && p[i] != '\n' && p[i] != '\t' {
			continue
		}
		b.WriteString(escape(string(p[from:i])))
		if from = i + 1; i < len(p) {
			b.WriteByte(p[i])
		}
	}
	_, err := io.WriteString(l.w, b.String())
	return len(p), err
}

// escape makes control characters, and bytes that are no UTF-8, readable: \n, \x1b.
func escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		s = s[n:]
	}
	return b.String()
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
