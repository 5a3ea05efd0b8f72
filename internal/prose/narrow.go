package prose

import (
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Narrow is a writer of text for lines of less than Width: what was set for that width is set anew.
// A block, the lines between two empty ones, that fits stays as it is. The columns of a table that
// does not fit go below each other, each part with the first column; other lines are wrapped.
type Narrow struct {
	W       io.Writer // where the text goes
	Columns int

	part  string // of a line
	block []string
	err   error
}

// Write takes text. A block is written once it has ended.
func (n *Narrow) Write(p []byte) (int, error) {
	lines := strings.Split(n.part+string(p), "\n")
	n.part = lines[len(lines)-1]
	for _, l := range lines[:len(lines)-1] {
		if n.block = append(n.block, l); strings.TrimSpace(l) == "" {
			n.flush()
		}
	}
	return len(p), n.err
}

// Close writes what is left.
func (n *Narrow) Close() error {
	last := n.part
	n.flush()
	if last != "" {
		n.print(strings.Join(Hang("", "  ", last, n.Columns), "\n"))
	}
	n.part = ""
	return n.err
}

func (n *Narrow) print(s string) {
	if _, err := io.WriteString(n.W, s); n.err == nil {
		n.err = err
	}
}

func (n *Narrow) flush() {
	for _, l := range n.set(n.block) {
		n.print(strings.TrimRight(l, " ") + "\n")
	}
	n.block = nil
}

// set is a block that fits.
func (n *Narrow) set(block []string) []string {
	fits := true
	for _, l := range block {
		fits = fits && utf8.RuneCountInString(l) <= n.Columns
	}
	if fits {
		return block
	}
	if cells := columns(block); cells != nil && 2*cells[0].width() <= n.Columns {
		return n.table(block, cells)
	}
	var out []string
	for _, l := range joined(block, n.Columns) {
		if utf8.RuneCountInString(l) <= n.Columns {
			out = append(out, l)
			continue
		}
		indent := l[:len(l)-len(strings.TrimLeft(l, " "))]
		indent = indent[:min(len(indent), n.Columns/2)]
		out = append(out, Hang(indent, indent+"  ", strings.TrimLeft(l, " "), n.Columns)...)
	}
	return out
}

// joined is a block with the lines of a sentence in one: a line goes on the one before, which is
// too long, further to the right, or, where nothing is set in columns, with a small letter.
func joined(block []string, w int) (out []string) {
	indent := func(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }
	list := slices.ContainsFunc(block, func(l string) bool { return strings.Contains(strings.TrimSpace(l), "  ") })
	for i, l := range block {
		bare := strings.TrimLeft(l, " ")
		if n := len(out); n > 0 && bare != "" && utf8.RuneCountInString(out[n-1]) > w {
			at := indent(block[i-1])
			if r, _ := utf8.DecodeRuneInString(bare); indent(l) >= 4 && indent(l) > indent(out[n-1]) || !list && unicode.IsLower(r) && indent(l) == at {
				out[n-1] += " " + bare
				continue
			}
		}
		out = append(out, l)
	}
	return out
}

// span is a column of a table: characters [from, to) of each line.
type span struct{ from, to int }

func (s span) width() int { return s.to - s.from }

func (s span) of(line []rune) string {
	return string(line[min(s.from, len(line)):min(s.to, len(line))])
}

// columns are the columns of a table, nil if the lines are none: all lines are blank between two of
// them, one of them for two characters or more, which words of a sentence are not.
func columns(block []string) (cells []span) {
	blank, wide, end := []bool{}, []bool{}, 0
	lines := 0
	for _, l := range block {
		if strings.Trim(l, "-─ ") == "" {
			continue
		}
		lines++
		r := []rune(l)
		for i := range r {
			if i == len(blank) {
				blank, wide = append(blank, true), append(wide, false)
			}
			if r[i] != ' ' {
				blank[i] = false
				end = max(end, i+1)
			} else if i > 0 && r[i-1] == ' ' || i+1 < len(r) && r[i+1] == ' ' {
				wide[i] = true
			}
		}
	}
	if lines < 2 {
		return nil
	}
	at := span{-1, 0}
	for i := 0; i < end; {
		if !blank[i] {
			if at.from < 0 {
				at.from = i
			}
			i++
			at.to = i
			continue
		}
		from, isWide := i, false
		for ; i < end && blank[i]; i++ {
			isWide = isWide || wide[i]
		}
		if at.from >= 0 && isWide {
			cells = append(cells, span{at.from, from})
			at.from = -1
		}
	}
	if cells = append(cells, at); len(cells) < 2 {
		return nil
	}
	return cells
}

// table sets the columns of a table below each other where they do not fit beside each other.
func (n *Narrow) table(block []string, cells []span) (out []string) {
	key := cells[0]
	room := n.Columns - key.width() - 1
	for rest := cells[1:]; len(rest) > 0; {
		k, used := 0, 0
		for k < len(rest) && (k == 0 || used+rest[k].width() <= room) {
			used += rest[k].width() + 1
			k++
		}
		if len(out) > 0 && out[len(out)-1] != "" {
			out = append(out, "")
		}
		for _, l := range block {
			out = append(out, n.row(l, key, rest[:k], room)...)
		}
		rest = rest[k:]
	}
	return out
}

// row is one line of a part of a table: the first column and some others.
func (n *Narrow) row(l string, key span, cells []span, room int) []string {
	if strings.TrimSpace(l) == "" {
		return []string{""}
	}
	if strings.Trim(l, "-─ ") == "" {
		r := []rune(l)
		return []string{string(r[:min(len(r), n.Columns)])}
	}
	r := []rune(l)
	first := key.of(r)
	first += strings.Repeat(" ", max(0, key.width()-utf8.RuneCountInString(first))) + " "
	if len(cells) == 1 && cells[0].width() > room {
		return Hang(first, strings.Repeat(" ", key.width()+1), strings.TrimSpace(cells[0].of(r)), n.Columns)
	}
	for _, c := range cells {
		text := c.of(r)
		first += text + strings.Repeat(" ", max(0, c.width()-utf8.RuneCountInString(text))) + " "
	}
	return []string{first}
}
