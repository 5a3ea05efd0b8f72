package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocLinks: every `path` of ours in the documents is there, and `path:/regexp/` matches a line of it.
func TestDocLinks(t *testing.T) {
	root := filepath.Join("..", "..")
	quoted := regexp.MustCompile("`((?:internal|cmd|labs|notebooks|testdata|\\.ci)/[^`\\s]*)`")
	seen := 0
	docs := []string{"README.md", "ARCHITECTURE.md", "labs/README.md"}
	more, err := filepath.Glob(filepath.Join(root, "labs", "*", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	notes, err := filepath.Glob(filepath.Join(root, "labs", "*", "instructor", "NOTES.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range append(more, notes...) {
		rel, err := filepath.Rel(root, doc)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, rel)
	}
	for _, doc := range docs {
		text, err := os.ReadFile(filepath.Join(root, doc))
		if err != nil {
			t.Error(err)
			continue
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				seen++
				path, expr, hasExpr := strings.Cut(m[1], ":/")
				body, err := os.ReadFile(filepath.Join(root, path))
				if _, serr := os.Stat(filepath.Join(root, path)); serr != nil {
					t.Errorf("%s:%d: %s is not there", doc, i+1, path)
					continue
				}
				if !hasExpr {
					continue
				}
				re, rerr := regexp.Compile("(?m)" + strings.TrimSuffix(expr, "/"))
				if err != nil || rerr != nil || !re.Match(body) {
					t.Errorf("%s:%d: no line of %s matches %s (%v, %v)", doc, i+1, path, expr, err, rerr)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d links found, want the documents to point at the code", seen)
	}
}
