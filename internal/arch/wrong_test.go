package arch

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A wrong order of the museum is a plan, or a step that a file museum.go puts in the place of the
// right one: no other file of the engine asks whether it is on.
func TestWrongOrdersAreTheMuseums(t *testing.T) {
	asks := regexp.MustCompile(`policy\.Wrong[A-Z]`)
	found := 0
	for _, area := range []string{"lock", "blockdev", "meta", "data", "iopath", "fs", "uring", "aio"} {
		for _, depth := range []string{"*.go", "*/*.go"} {
			files, err := filepath.Glob(filepath.Join("..", area, depth))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				l := asks.FindAllString(readFile(t, f), -1)
				switch {
				case strings.HasSuffix(f, "_test.go"):
				case filepath.Base(f) == "museum.go":
					found += len(l)
				case len(l) > 0:
					t.Errorf("%s asks for %v, want that in the museum.go of its package, or a plan", f, l)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("%d wrong orders found in the files museum.go, want at least 10", found)
	}
}
