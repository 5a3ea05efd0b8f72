// Package prose sets text for a terminal: lines of a given width, counted things, commands that go on in the next line.
package prose

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Width is the width of a line where nobody says otherwise, and the smallest one that tables are made for.
const Width = 80

// Words cuts text into lines of at most w characters, at blanks where it can. Blanks at the beginning of text, and what it lists
// behind "- ", are the indentation of the lines after the first, too; the other blanks are single afterwards.
func Words(text string, w int) []string {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	rest := indent
	if strings.HasPrefix(text[len(indent):], "- ") {
		rest += "  "
	}
	return Hang(indent, rest, text, w)
}

// Hang is Words with the first line behind first and the others behind rest.
func Hang(first, rest, text string, w int) []string {
	var l []string
	line, bare := first, true
	flush := func() {
		l = append(l, strings.TrimRight(line, " "))
		line, bare = rest, true
	}
	for _, word := range strings.Fields(text) {
		if n := utf8.RuneCountInString(word); !bare && utf8.RuneCountInString(line)+1+n > w {
			flush()
		}
		if !bare {
			line += " "
		}
		for room := w - utf8.RuneCountInString(line); utf8.RuneCountInString(word) > max(room, 1); room = w - utf8.RuneCountInString(line) {
			r := []rune(word)
			line += string(r[:max(room, 1)])
			word = string(r[max(room, 1):])
			flush()
		}
		line += word
		bare = false
	}
	if !bare || len(l) == 0 {
		flush()
	}
	return l
}

// Wrap sets a text of several lines: each line for itself, as Words does.
func Wrap(text string, w int) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(strings.Join(Words(line, w), "\n"))
	}
	return b.String()
}

// Fill is Wrap for a text whose paragraphs are broken into lines somewhere: they are broken anew. A paragraph ends at an empty line; a
// line that begins with a blank is one of its own.
func Fill(text string, w int) string {
	var b strings.Builder
	in := false
	for i, line := range strings.Split(text, "\n") {
		if join := line != "" && line[0] != ' ' && in; join {
			b.WriteByte(' ')
		} else if i > 0 {
			b.WriteByte('\n')
		}
		in = line != "" && line[0] != ' '
		b.WriteString(line)
	}
	return Wrap(b.String(), w)
}

// Command sets a command line behind a heading; where it is too long it goes on in the next line, at an option, as a
// shell has it.
func Command(indent, command string, w int) string {
	if utf8.RuneCountInString(indent+command) <= w {
		return indent + command
	}
	var b strings.Builder
	line, blank := indent, indent[:len(indent)-len(strings.TrimLeft(indent, " "))]
	for i, part := range strings.Split(command, " --") {
		if i > 0 {
			part = "--" + part
			if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(part)+2 > w {
				b.WriteString(line + " \\\n")
				line = blank + "    "
			} else {
				line += " "
			}
		}
		line += part
	}
	return b.String() + line
}

// Count is n things: "1 step", "2 steps".
func Count[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
