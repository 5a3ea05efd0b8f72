package handout

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// minLine is the shortest line, in bytes, by which a solution is known; a shorter one, such as a
// return, is anybody's.
const minLine = 16

// schedule is an answer that would be found out by playing only.
var schedule = regexp.MustCompile(`^\d+:\d+(,\d+:\d+)*$`)

// ofLab is in Go that has to do with a lab.
var ofLab = regexp.MustCompile(`labs/(kit|\d)`)

// Leaks are the lines of the solutions in tree that are in a file of out, a sentence each. A line
// of code counts if the lab's own folder and the kit do not have it, an answer "name = schedule" if
// one line has both its sides.
func Leaks(tree, out []File) []string {
	public := map[string]string{} // what students read, by the lab's folder
	for _, f := range out {
		if dir := path.Dir(f.Path); strings.HasPrefix(dir, "labs/") {
			public[dir] += string(f.Data)
		}
	}
	var leaks []string
	for _, f := range tree {
		dir, _, ok := strings.Cut(f.Path, "/instructor/_solution/")
		if !ok {
			continue
		}
		for line := range strings.Lines(string(f.Data)) {
			code := path.Ext(f.Path) == ".go"
			words := own(strings.TrimSpace(line), code, public[dir]+public["labs/kit"])
			if words == nil {
				continue
			}
			for _, g := range out {
				if code && path.Ext(g.Path) == ".go" && !ofLab.Match(g.Data) {
					continue // the engine, which knows no lab: its lines may read the same
				}
				if at := lineWith(g.Data, words); at > 0 {
					leaks = append(leaks, fmt.Sprintf("%s:%d has a line of %s: %s", g.Path, at, f.Path, strings.TrimSpace(line)))
				}
			}
		}
	}
	return leaks
}

// own is the mark by which a line of a solution is known, all of it; nil when it is nobody's in
// particular.
func own(line string, code bool, public string) [][]byte {
	if code {
		line, _, _ = strings.Cut(line, " // ")
		if len(line) < minLine || strings.HasPrefix(line, "//") || strings.HasPrefix(line, "package ") || strings.Contains(public, line) {
			return nil
		}
		return [][]byte{[]byte(line)}
	}
	name, answer, ok := strings.Cut(line, " = ")
	if !ok || !schedule.MatchString(answer) {
		return nil
	}
	return [][]byte{[]byte(name), []byte(answer)}
}

// lineWith is the number of the first line of text that has all the words, from 1; 0 is none.
func lineWith(text []byte, words [][]byte) int {
	for _, w := range words {
		if !bytes.Contains(text, w) {
			return 0
		}
	}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if !slices.ContainsFunc(words, func(w []byte) bool { return !whole(line, w) }) {
			return n
		}
	}
	return 0
}

// whole reports whether line has w, with neither a digit nor a colon or comma that goes on beside
// it.
func whole(line, w []byte) bool {
	for at := 0; ; {
		i := bytes.Index(line[at:], w)
		if i < 0 {
			return false
		}
		at += i + len(w)
		if part := "0123456789:,"; (at == len(line) || !strings.ContainsRune(part, rune(line[at]))) &&
			(at == len(w) || !strings.ContainsRune(part, rune(line[at-len(w)-1]))) {
			return true
		}
	}
}
