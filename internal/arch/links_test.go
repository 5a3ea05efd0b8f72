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
	for _, pattern := range []string{"*.md", "labs/*.md", "labs/*/*.md", "labs/*/instructor/*.md", "labs/*/instructor/*/*.md", "notebooks/*.md"} {
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

// TestDocLinks: every `path` of ours in the documents is there, and `path:/regexp/` matches a line
// of it.
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

// TestReference: a citation "labs/reference 1.3" of a section, "9.2 #18" of a row and "1.1 c" of a
// step, in code and documents, names one that is there. So does every name of a document.
func TestReference(t *testing.T) {
	root := filepath.Join("..", "..")
	there := map[string]bool{}
	heading := regexp.MustCompile(`^#+ (\d+(?:\.\d+)?) `)
	step := regexp.MustCompile(`^- \*\*([a-z])\*\* `)
	row := regexp.MustCompile(`^\| (\d+) \|`)
	for _, doc := range documents(t) {
		if !strings.HasPrefix(doc, "labs/reference/") {
			continue
		}
		section := ""
		for line := range strings.Lines(readFile(t, filepath.Join(root, doc))) {
			if m := heading.FindStringSubmatch(line); m != nil {
				section = m[1]
				if there[section] {
					t.Errorf("%s: section %s is there twice", doc, section)
				}
				there[section] = true
			} else if m := step.FindStringSubmatch(line); m != nil {
				there[section+" "+m[1]] = true
			} else if m := row.FindStringSubmatch(line); m != nil {
				there[section+" #"+m[1]] = true
			}
		}
	}
	files := documents(t)
	for _, dir := range []string{"cmd", "internal", "labs", "notebooks"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if d != nil && d.Name() == "_grade" { // where other tests build what they grade
				return filepath.SkipDir
			}
			if err == nil && strings.HasSuffix(path, ".go") && filepath.Base(path) != "links_test.go" {
				files = append(files, strings.TrimPrefix(filepath.ToSlash(path), "../../"))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	named := map[string]bool{}
	for _, doc := range documents(t) {
		named[filepath.Base(doc)] = true
	}
	document := regexp.MustCompile(`[\w./-]*\w\.md\b`)
	// One citation is one or more sections, each with rows or steps: "labs/reference 1.1 c, d, 5.2
	// and 9.2 #18".
	cite := regexp.MustCompile(`labs/reference (\d[\d.]*(?:(?:,? and|,)? (?:#?\d[\d.]*|[a-z]\b))*)`)
	seen := 0
	for _, file := range files {
		// A citation may go on in the next line of a comment.
		text := regexp.MustCompile(`\n\s*(?://|#|>)? ?`).ReplaceAllString(readFile(t, filepath.Join(root, file)), " ")
		for _, m := range cite.FindAllStringSubmatch(text, -1) {
			seen++
			section := ""
			for _, word := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ' ' || r == ',' }) {
				word = strings.TrimRight(word, ".")
				switch {
				case word == "and":
					continue
				case word[0] == '#' || word[0] >= 'a':
					word = section + " " + word
				default:
					section = word
				}
				if !there[word] {
					t.Errorf("%s cites labs/reference %s, which is not there", file, word)
				}
			}
		}
		for _, m := range document.FindAllString(text, -1) {
			if !named[filepath.Base(m)] {
				t.Errorf("%s cites %s, which is not in the repository", file, m)
			}
		}
	}
	if seen < 40 {
		t.Errorf("%d citations found, want the code to cite the reference", seen)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
