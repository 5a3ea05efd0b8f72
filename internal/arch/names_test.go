package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A seed is asked for by what it is about: its number stands in package seeds, and in the words of
// people.
func TestSeedsByName(t *testing.T) {
	literal := regexp.MustCompile(`"00[0-9]"`)
	found := 0
	err := filepath.WalkDir("../../internal", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		for i, l := range strings.Split(readFile(t, path), "\n") {
			code, _, _ := strings.Cut(l, "//")
			if !literal.MatchString(code) {
				continue
			}
			if strings.HasSuffix(filepath.ToSlash(filepath.Dir(path)), "internal/measure/seeds") {
				found++
				continue
			}
			t.Errorf("%s:%d: %s: a seed by its number, want a name of package seeds", path, i+1, strings.TrimSpace(l))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 3 {
		t.Errorf("package seeds has %d numbers, want at least 3: the search is broken", found)
	}
}
