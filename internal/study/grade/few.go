package grade

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"btrlab/internal/prose"
)

// What a report has of the text of a submission. A file may have ten thousand mistakes, and a panic
// may say a gigabyte.
const (
	maxLines = 20
	maxLine  = 1_000   // bytes of a line
	maxTrace = 1 << 20 // bytes of the steps of an execution
)

// Few are the first lines of a list, each cut where it is long, and how many more there are.
func Few(lines []string) []string {
	var l []string
	for i, x := range lines {
		if i == maxLines && len(lines) > maxLines+1 {
			return append(l, fmt.Sprintf("and %d more", len(lines)-maxLines))
		}
		l = append(l, cut(x, maxLine))
	}
	return l
}

// cut is the first n bytes of s, of whole characters, and a sign that there were more.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + " ..."
}

// Clean makes a row safe to print: texts of a submission, which may be in any of its own, have no
// control characters but ends of lines, and no more lines than people read. Whoever has rows from a
// judge calls it, before anything else does anything with them.
func (x *Row) Clean() {
	x.Name, x.Asks = prose.Escape(x.Name), prose.EscapeLines(x.Asks)
	x.Result = prose.EscapeLines(strings.Join(Few(strings.Split(cut(x.Result, maxTrace), "\n")), "\n"))
	x.Trace = prose.EscapeLines(cut(x.Trace, maxTrace))
	x.Schedule, x.Replay, x.Shared, x.Workload = prose.Escape(cut(x.Schedule, maxLine)), prose.Escape(cut(x.Replay, 2*maxLine)), prose.Escape(x.Shared), prose.Escape(x.Workload)
	for i := range x.Parts {
		p := &x.Parts[i]
		p.Result = prose.EscapeLines(strings.Join(Few(strings.Split(cut(p.Result, maxTrace), "\n")), "\n"))
	}
}
