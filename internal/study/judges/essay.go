package judges

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
)

// Essay is a text of the student's own beside the code: the sections that it has, how much each
// must say at least, in characters, and the points that the teacher gives.
type Essay struct {
	File     string
	Sections []string
	least    int
	Points   float64
}

// EssayRow is the name of its row.
const EssayRow = "text"

var comment = regexp.MustCompile(`(?s)<!--.*?-->`)

// Parts are the parts of a report by their headings of the second level, without comments.
func Parts(text string) map[string]string {
	parts := map[string]*strings.Builder{}
	name := ""
	for line := range strings.Lines(comment.ReplaceAllString(text, "")) {
		if h, ok := strings.CutPrefix(line, "## "); ok {
			name = strings.TrimSpace(h)
			continue
		}
		if parts[name] == nil {
			parts[name] = &strings.Builder{}
		}
		parts[name].WriteString(line)
	}
	m := map[string]string{}
	for k, b := range parts {
		m[k] = strings.TrimSpace(b.String())
	}
	return m
}

// Row asks whether the text is there, in the folder of a submission; what it says is for the
// teacher to judge.
func (e *Essay) Row(dir string) grade.Row {
	r := grade.Row{Name: EssayRow, Asks: "your own report has its sections; the teacher reads them and gives the points", Teacher: e.Points}
	b, err := sandbox.Read(filepath.Join(dir, e.File))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.Result = "no " + e.File + " in the folder"
		return r
	case err != nil:
		r.Result = err.Error()
		return r
	}
	have := Parts(string(b))
	var short []string
	for _, name := range e.Sections {
		if len(have[name]) < e.least {
			short = append(short, fmt.Sprintf("%q has %d characters", name, len(have[name])))
		}
	}
	if len(short) > 0 {
		r.Result = fmt.Sprintf("want at least %d characters in each section: %s", e.least, strings.Join(short, ", "))
		return r
	}
	r.Pass, r.Result = true, fmt.Sprintf("%d sections; up to %g points more are the teacher's, who reads them", len(e.Sections), e.Points)
	return r
}
