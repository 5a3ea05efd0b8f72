package course

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/study/sandbox"
)

// sources reads the files of a text of submissions, "== LAB/NAME" before each.
func sources(t *testing.T, file string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, part := range strings.Split("\n"+string(b), "\n== ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		all[name] = text + "\n"
	}
	return all
}

// printed makes the prints of submissions, without what the starters have. A submission that the
// check refuses is none.
func printed(t *testing.T, sources map[string]string) map[string]print {
	t.Helper()
	bases, all := map[int]print{}, map[string]print{}
	for name, text := range sources {
		n, err := strconv.Atoi(name[:2])
		if err != nil {
			t.Fatal(err)
		}
		l, dir := lab(t, n), t.TempDir()
		put(t, dir, l.File, text)
		c, err := sandbox.Check(t.Context(), root(t), []sandbox.File{{Path: l.File, Data: []byte(text)}}, l.Code.Rules)
		if err != nil || len(c.Bad) > 0 {
			t.Errorf("%s: %q %v", name, c.Bad, err)
		}
		if _, ok := bases[n]; !ok {
			if bases[n], err = l.print(t.Context(), root(t), l.Dir(root(t))); err != nil {
				t.Fatal(err)
			}
		}
		p, err := l.print(t.Context(), root(t), dir)
		if err != nil || len(p.forms) == 0 {
			t.Errorf("%s: %d forms, %v", name, len(p.forms), err)
		}
		p.without(bases[n])
		all[name] = p
	}
	return all
}

// solutions are the texts of the instructor's solutions of the labs with one file, by LAB/NAME.
func solutions(t *testing.T, labs ...int) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, n := range labs {
		l := lab(t, n)
		dirs, err := filepath.Glob(filepath.Join(l.Dir(root(t)), "instructor", "_solution*"))
		if err != nil || len(dirs) == 0 {
			t.Fatal(dirs, err)
		}
		for _, dir := range dirs {
			b, err := os.ReadFile(filepath.Join(dir, l.File))
			if err != nil {
				t.Fatal(err)
			}
			all[fmt.Sprintf("%02d/%s", n, filepath.Base(dir))] = string(b)
		}
	}
	return all
}

// TestStolen: one solution in twenty disguises is named as alike with the original in each.
func TestStolen(t *testing.T) {
	stolen := sources(t, "instructor_stolen.txt")
	if len(stolen) < 21 {
		t.Errorf("%d disguises, want 20", len(stolen))
	}
	all := printed(t, stolen)
	of := printed(t, solutions(t, 2, 5, 13, 16))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		original := of[name[:2]+"/_solution"]
		if _, missed := strings.CutSuffix(name, "?"); missed {
			if n := likeness(all[name], original); n >= alike {
				t.Errorf("%s: likeness %.2f: it is found now", name, n)
			}
			continue
		}
		t.Logf("%-32s %.2f, by its text %.2f", name, within(all[name].forms, original.forms), common(all[name].tokens, original.tokens))
		if n := likeness(all[name], original); n < alike {
			t.Errorf("%s: likeness %.2f, want at least %.2f", name, n, alike)
		}
	}
}

// TestHonest: of solutions that were written each for itself no two are named as alike.
func TestHonest(t *testing.T) {
	honest := sources(t, "instructor_honest.txt")
	maps.Copy(honest, solutions(t, 5, 12, 13))
	all := printed(t, honest)
	pairs, most := 0, 0.0
	names := slices.Sorted(maps.Keys(all))
	for i, a := range names {
		for _, b := range names[:i] {
			if a[:2] != b[:2] {
				continue
			}
			pairs++
			n := likeness(all[a], all[b])
			most = max(most, n)
			t.Logf("%s, %s: %.2f", b, a, n)
			if n >= alike {
				t.Errorf("%s and %s: likeness %.2f, want less than %.2f", b, a, n, alike)
			}
		}
	}
	if pairs < 30 {
		t.Errorf("%d pairs, want at least 30", pairs)
	}
	t.Logf("%d pairs, at most %.2f alike", pairs, most)
}
