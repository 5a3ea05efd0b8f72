// Package prose sets text for a terminal: lines of a given width, counted things, commands that go
// on in the next line.
package prose

import (
	"fmt"
	"regexp"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Width is the width of a line where nobody says otherwise, and the smallest one that tables are
// made for.
const Width = 80

// marker is the indentation of a line and the mark of a list's item.
var marker = regexp.MustCompile(`^ *(?:[-*] +|[0-9]+\. +)?`)

// Words cuts text into lines of at most w characters, at blanks where it can. Blanks at the
// beginning of text, and as many as the mark of an item, "- " or "1. ", takes, begin the lines
// after the first, too; the other blanks are single afterwards.
func Words(text string, w int) []string {
	first := marker.FindString(text)
	return Hang(first, strings.Repeat(" ", len(first)), text[len(first):], w)
}

// words are the words of text; a range, "[4K, 8K)", is one.
func words(text string) []string {
	l := strings.Fields(text)
	n := 0
	for i, w := range l {
		if i > 0 && strings.HasPrefix(l[n-1], "[") && strings.HasSuffix(l[n-1], ",") && strings.Contains(w, ")") {
			l[n-1] += " " + w
			continue
		}
		l[n] = w
		n++
	}
	return l[:n]
}

// Hang is Words with first before the first line and rest before the others.
func Hang(first, rest, text string, w int) []string {
	var l []string
	line, bare := first, true
	flush := func() {
		l = append(l, strings.TrimRight(line, " "))
		line, bare = rest, true
	}
	for _, word := range words(text) {
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

// Fill is Wrap for a text whose paragraphs and items are broken into lines somewhere: they are
// broken anew. Headings, tables, blocks between fences, and indented lines that go on no item stay
// as they are.
func Fill(text string, w int) string {
	var l []string
	open, item, fence := false, false, false // the last line goes on; in an item
	for line := range strings.SplitSeq(text, "\n") {
		mark := marker.FindString(line)
		isItem := strings.TrimSpace(mark) != ""
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fence = !fence
			open = false
			l = append(l, line)
		case fence || line == "" || line[0] == '#' || line[0] == '|' || !isItem && line[0] == ' ' && !(open && item):
			open = false
			l = append(l, line)
		case open && !isItem:
			l[len(l)-1] += " " + strings.TrimSpace(line)
		default:
			open, item = true, isItem
			l = append(l, line)
		}
		if !open {
			l[len(l)-1] = "\x00" + l[len(l)-1] // as it is
		}
	}
	for i, line := range l {
		if as, ok := strings.CutPrefix(line, "\x00"); ok {
			l[i] = as
		} else {
			l[i] = strings.Join(Words(line, w), "\n")
		}
	}
	return strings.Join(l, "\n")
}

// Command sets a command line after a heading; where it is too long it goes on in the next line, at
// an option, as a shell has it.
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

// ShellWord quotes s for a shell where the shell would not take it as one word.
func ShellWord(s string) string {
	if s == "" || strings.ContainsAny(s, " '\"$!*?;&|<>()#~\\\t") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// Count is n things: "1 step", "2 steps", "2 flushes", "2 directories".
func Count[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	stem, y := strings.CutSuffix(thing, "ory")
	switch {
	case y:
		thing = stem + "orie"
	case strings.HasSuffix(thing, "sh"):
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// List is "a", "a and b", "a, b and c".
func List(words []string) string {
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " and " + words[n]
	}
	return strings.Join(words, "")
}

// Nearest is the one of names that word is most likely a slip of: the first in order of those with
// the fewest letters to change, take away or add, of which at most two; "" when there is none.
func Nearest(word string, names []string) string {
	best, at := "", 3
	for _, n := range names {
		if d := distance(word, n); d < at || d == at && best != "" && n < best {
			best, at = n, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	prev := make([]int, len(b)+1)
	for i := range prev {
		prev[i] = i
	}
	for i := range len(a) {
		diag := prev[0]
		prev[0] = i + 1
		for k := range len(b) {
			cost := diag
			if a[i] != b[k] {
				cost++
			}
			diag = prev[k+1]
			prev[k+1] = min(cost, prev[k]+1, diag+1)
		}
	}
	return prev[len(b)]
}

// Table sets lines of cells in columns, which are so many blanks apart and aligned at the right.
func Table(apart int, lines [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, apart, ' ', tabwriter.AlignRight)
	for _, line := range lines {
		fmt.Fprintln(w, strings.Join(line, "\t")+"\t")
	}
	w.Flush()
	return b.String()
}
