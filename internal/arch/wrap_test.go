package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is the width at which comments and prose are wrapped; a tab in code is four of them.
const columns = 100

// Comments and pages are wrapped at 100 columns. A table, a list that is set out in columns, a
// command and a word that is longer are as they are.
func TestWrapped(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (slices.Contains([]string{"testdata", "artifacts", "bin", "_kernel", "_grade"}, name) || strings.HasPrefix(name, ".") && len(name) > 2) {
			return filepath.SkipDir
		}
		var wide []string
		switch filepath.Ext(name) {
		case ".go":
			wide, err = wideComments(path)
		case ".md":
			wide, err = widePage(path)
		}
		for _, l := range wide {
			t.Errorf("%s: a line of %d columns, want at most %d: %s", path, width(l), columns, l)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWrappedFinds(t *testing.T) {
	long := strings.Repeat("word ", 20) + "end"
	path := filepath.Join(t.TempDir(), "page")
	for _, x := range []struct {
		lines func(path string) ([]string, error)
		text  string
		want  int
	}{
		{wideComments, "package x\n\n// " + long + "\n//\n//\t" + long + "\n//   " + long + "\n//go:generate " + long +
			"\nvar s = `// " + long + "`\n\nvar i int // " + long + "\n\n// " + strings.Repeat("x", 120) + "\n", 2},
		{widePage, long + "\n- " + long + "\n\n| " + long + " |\n\n```\n" + long + "\n```\n\n# " + long + "\n\n<p>" + long + "\n" +
			strings.Repeat("x", 120) + "\n", 2},
	} {
		if err := os.WriteFile(path, []byte(x.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if l, err := x.lines(path); err != nil || len(l) != x.want {
			t.Errorf("%v, %d lines %q of\n%s\nwant %d", err, len(l), l, x.text, x.want)
		}
	}
}

// setOut matches a comment line that is laid out by hand, or is read by a tool.
var setOut = regexp.MustCompile(`^//(\t|  |go:| *$)`)

// wideComments returns the lines of a Go file that are too wide for the comment in them.
func wideComments(path string) ([]string, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(src), "\n")
	var wide []string
	for _, g := range f.Comments {
		if strings.HasPrefix(g.Text(), "Output:") {
			continue // what an example prints
		}
		for _, c := range g.List {
			if l := lines[fset.Position(c.Pos()).Line-1]; width(l) > columns && !setOut.MatchString(c.Text) && breaks(c.Text) {
				wide = append(wide, l)
			}
		}
	}
	return wide, nil
}

// page matches the lines of a Markdown file that may not be broken: of a table, a heading, HTML.
var page = regexp.MustCompile(`^\s*[|#<>!]|^    `)

// widePage returns the lines of a page that are too wide.
func widePage(path string) ([]string, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var wide []string
	fenced := false
	for l := range strings.SplitSeq(string(src), "\n") {
		if strings.HasPrefix(strings.TrimSpace(l), "```") {
			fenced = !fenced
		}
		if !fenced && width(l) > columns && !page.MatchString(l) && breaks(l) {
			wide = append(wide, l)
		}
	}
	return wide, nil
}

// span matches a code span, which stays on one line.
var span = regexp.MustCompile("`[^`]*`")

// breaks says whether a line has words enough to be broken within the width.
func breaks(l string) bool {
	words := strings.Fields(span.ReplaceAllStringFunc(l, func(s string) string { return strings.ReplaceAll(s, " ", "_") }))
	return len(words) > 2 && !slices.ContainsFunc(words, func(w string) bool { return width(w) > columns-10 })
}

func width(l string) int {
	n := 0
	for _, c := range l {
		n++
		if c == '\t' {
			n += 3 - (n-1)%4
		}
	}
	if !utf8.ValidString(l) {
		return len(l)
	}
	return n
}
