package arch

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A wrong order of the museum is in a plan, which its operation asks, or a step that a file
// museum.go puts in the place of the right one: no other file of the engine asks a policy whether
// it is on.
func TestWrongOrdersAreTheMuseums(t *testing.T) {
	asks, ofPlan := regexp.MustCompile(`policy\.Wrong[A-Z]`), regexp.MustCompile(`\b(pl|plan)\.Wrong\(policy\.Wrong[A-Z]`)
	found := 0
	for _, area := range []string{"lock", "blockdev", "meta", "data", "iopath", "fs", "uring", "aio"} {
		for _, depth := range []string{"*.go", "*/*.go"} {
			files, err := filepath.Glob(filepath.Join("..", area, depth))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				text := readFile(t, f)
				l := asks.FindAllString(text, -1)
				switch {
				case strings.HasSuffix(f, "_test.go"):
				case filepath.Base(f) == "museum.go":
					found += len(l)
				case len(l) > len(ofPlan.FindAllString(text, -1)):
					t.Errorf("%s asks for %v, want that in the museum.go of its package, or of a plan", f, l)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("%d wrong orders found in the files museum.go, want at least 10", found)
	}
}
