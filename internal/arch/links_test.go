package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the Markdown files of the repository, by their path in it.
func documents(t *testing.T) []string {
	t.Helper()
	var docs []string
	for _, pattern := range []string{"*.md", "labs/*.md", "labs/*/*.md", "labs/*/instructor/*.md", "notebooks/*.md"} {
		names, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			docs = append(docs, strings.TrimPrefix(filepath.ToSlash(name), "../../"))
		}
	}
	if !slices.Contains(docs, "README.md") || !slices.Contains(docs, "labs/reference/README.md") {
		t.Fatalf("have documents %v, want README.md and labs/reference/README.md among them", docs)
	}
	return docs
}

// TestDocLinks: every `path` of ours in the documents is there, and `path:/regexp/` matches a line of it.
func TestDocLinks(t *testing.T) {
	root := filepath.Join("..", "..")
	quoted := regexp.MustCompile("`((?:internal|cmd|labs|notebooks|testdata|\\.ci)/[^`\\s:]*(?::/[^`]*/)?)`")
	seen := 0
	docs := documents(t)
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
	if seen < 100 {
		t.Errorf("%d links found, want the documents to point at the code", seen)
	}
}
