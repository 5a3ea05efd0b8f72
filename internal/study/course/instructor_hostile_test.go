package course

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/testing/need"
)

// hostile is a submission of testdata/instructor_hostile.txt.
type hostile struct {
	lab     int
	name    string
	most    float64
	want    string
	refused bool // by the check, without a build
	files   map[string]string
}

// hostiles reads the submissions.
func hostiles(t *testing.T) (all []hostile) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "instructor_hostile.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split("\n"+string(b), "\n== ")[1:] {
		head, text, _ := strings.Cut(part, "\n")
		words := strings.SplitN(head, " ", 3)
		lab, name, _ := strings.Cut(words[0], "/")
		h := hostile{want: words[2], files: map[string]string{}}
		h.name, h.refused = strings.CutSuffix(name, "!")
		if h.lab, err = strconv.Atoi(lab); err != nil {
			t.Fatal(err)
		}
		if h.most, err = strconv.ParseFloat(words[1], 64); err != nil {
			t.Fatal(err)
		}
		h.read(t, text)
		all = append(all, h)
	}
	return all
}

// read makes the files of the text of a submission.
func (h *hostile) read(t *testing.T, text string) {
	t.Helper()
	l := lab(t, h.lab)
	edits, files, _ := strings.Cut("\n"+text, "\n-- ")
	if strings.Contains(edits, "\n<<<\n") {
		b, err := os.ReadFile(filepath.Join(l.Dir(root(t)), "instructor", "_solution", l.File))
		if err != nil {
			t.Fatal(err)
		}
		src := string(b)
		for _, e := range strings.Split(edits, "<<<\n")[1:] {
			e, _, _ = strings.Cut(e, "\n>>>")
			old, new, ok := strings.Cut(e, "\n===\n")
			if !ok || strings.Count(src, old) != 1 {
				t.Fatalf("%02d/%s: the solution has %d of %q", h.lab, h.name, strings.Count(src, old), old)
			}
			src = strings.Replace(src, old, new, 1)
		}
		h.files[l.File] = src
	}
	if files == "" {
		return
	}
	for _, f := range strings.Split(files, "\n-- ") {
		name, text, _ := strings.Cut(f, " --\n")
		h.files[name] = text + "\n"
	}
}

// failed is the result of the first row that fails, with its name.
func failed(r *Report) string {
	for _, x := range r.Rows {
		if !x.Pass {
			return x.Result
		}
	}
	return ""
}

// TestHostile: submissions that were written to have points for nothing have none, or those for
// what is right in them. Most are refused by the check, or have no code; the others are built and
// run by make labs.
func TestHostile(t *testing.T) {
	all := hostiles(t)
	if len(all) < 40 {
		t.Errorf("%d submissions, want at least 40", len(all))
	}
	labs := map[int]bool{}
	for _, h := range all {
		labs[h.lab] = true
		t.Run(fmt.Sprintf("%02d/%s", h.lab, h.name), func(t *testing.T) {
			l := lab(t, h.lab)
			if !h.refused && l.Code != nil && os.Getenv("BTRLAB_LABS") == "" {
				t.Skip("make labs runs it")
			}
			need.Long(t)
			t.Parallel()
			dir := t.TempDir()
			for name, text := range h.files {
				put(t, dir, name, text)
			}
			r, err := Grade(t.Context(), root(t), l, Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if why := failed(r); r.Pass || r.Score > h.most || !regexp.MustCompile(h.want).MatchString(why) || h.refused && r.Rows[0].Name != "check" {
				t.Errorf("%g points, want at most %g; %q, want %q\n%s", r.Score, h.most, why, h.want, text(r))
			}
			t.Logf("%g points: %.200s", r.Score, failed(r))
		})
	}
	for _, l := range Labs {
		if !labs[l.N] {
			t.Errorf("no hostile submission to lab %d", l.N)
		}
	}
}
