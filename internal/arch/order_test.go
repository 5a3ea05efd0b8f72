package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	_ "btrlab/internal/cli" // registers the program's classes
	"btrlab/internal/lock/lockdep"
	_ "btrlab/labs/kit"
)

// Every row of the lock order is a class of the program, and every class of the program has a row:
// a row without a class would be a rule about nothing.
func TestOrderIsOfTheProgram(t *testing.T) {
	registered := map[string]*lockdep.Class{}
	for _, c := range lockdep.Classes() {
		registered[c.Name] = c
	}
	for i, r := range lockdep.Order {
		c := registered[r.Name]
		switch {
		case c == nil:
			t.Errorf("lock order: no package registers %s", r.Name)
		case c.Rank != r.Rank || c.Kind != r.Kind:
			t.Errorf("class %s: have rank %d kind %d, want rank %d kind %d", r.Name, c.Rank, c.Kind, r.Rank, r.Kind)
		case r.Nested == "":
			t.Errorf("lock order: %s does not say which code takes it", r.Name)
		case i > 0 && r.Rank != 0 && r.Rank < lockdep.Order[i-1].Rank:
			t.Errorf("lock order: %s, rank %d, stands after %s, rank %d", r.Name, r.Rank, lockdep.Order[i-1].Name, lockdep.Order[i-1].Rank)
		}
		delete(registered, r.Name)
	}
	for name := range registered {
		t.Errorf("class %s has no row in the lock order", name)
	}
}

// Every "Lock order:" of a package comment and that of ARCHITECTURE.md is a tree of classes that
// the ranks allow.
func TestOrderTrees(t *testing.T) {
	root := filepath.Join("..", "..")
	trees := 0
	check := func(path, text string, line int) {
		n, bad := orderTree(text)
		if n > 0 {
			trees++
		}
		for _, b := range bad {
			t.Errorf("%s:%d: lock order: %s", path, line, b)
		}
	}
	for _, dir := range []string{"internal", "labs"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			lines := strings.Split(string(src), "\n")
			for i, l := range lines {
				if !strings.HasPrefix(l, "// Lock order") {
					continue
				}
				var b strings.Builder
				for _, c := range lines[i:] {
					c, ok := strings.CutPrefix(c, "//")
					if !ok {
						break
					}
					b.WriteString(strings.TrimPrefix(c, " ") + "\n")
				}
				check(strings.TrimPrefix(path, root+"/"), b.String(), i+1)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	doc, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Lock order\n")
	_, tree, _ := strings.Cut(section, "\n```\n")
	tree, _, _ = strings.Cut(tree, "\n```")
	check("ARCHITECTURE.md", "Lock order:\n\n\t"+strings.ReplaceAll(tree, "\n", "\n\t"), 1)
	if trees < 15 {
		t.Errorf("%d trees found, want those of the packages and of ARCHITECTURE.md", trees)
	}
}

// asPackage is the other form of a lock order: "Lock order: as package setsize."
var asPackage = regexp.MustCompile(`^Lock order: (as package [a-z]+|the table in order\.go)\.`)

// orderTree checks the text from a "Lock order" on and returns how many lines its tree has. A tree
// follows a line that ends in a colon. A line of it is "classes note": names with spaces or commas
// between them, or a prefix such as tree_*, indented by two columns more than the line that they
// nest under. A line with more than 24 columns of indentation goes on with the note above.
func orderTree(text string) (n int, bad []string) {
	head, rest, _ := strings.Cut(text, "\n")
	if !strings.HasSuffix(head, ":") {
		if !asPackage.MatchString(head) {
			bad = append(bad, fmt.Sprintf("%q is no tree and names no package", head))
		}
		return 0, bad
	}
	type level struct {
		depth    int
		min, max int
		names    []string
	}
	var up []level
	for l := range strings.SplitSeq(strings.TrimLeft(rest, "\n"), "\n") {
		l, ok := strings.CutPrefix(l, "\t")
		if !ok {
			break
		}
		names := strings.TrimLeft(l, " ")
		depth := len(l) - len(names)
		if depth > 24 || names == "" {
			continue
		}
		n++
		names, _, _ = strings.Cut(names, "  ")
		this := level{depth: depth, names: strings.FieldsFunc(names, func(r rune) bool { return r == ' ' || r == ',' })}
		for i, name := range this.names {
			lo, hi := ranks(name)
			if hi == 0 {
				bad = append(bad, fmt.Sprintf("no class %s", name))
				continue
			}
			if i == 0 || lo < this.min {
				this.min = lo
			}
			this.max = max(this.max, hi)
		}
		for len(up) > 0 && up[len(up)-1].depth >= depth {
			up = up[:len(up)-1]
		}
		if len(up) > 0 {
			if p := up[len(up)-1]; p.max >= this.min && !slices.Equal(p.names, this.names) {
				bad = append(bad, fmt.Sprintf("%v, rank %d, under %v, rank %d", this.names, this.min, p.names, p.max))
			}
		}
		up = append(up, this)
	}
	if n == 0 {
		bad = append(bad, "no tree after it")
	}
	return n, bad
}

// ranks is the lowest and the highest rank of a class, or of the classes of a prefix.
func ranks(name string) (lo, hi int) {
	prefix, many := strings.CutSuffix(name, "*")
	for _, r := range lockdep.Order {
		if r.Name == name || many && strings.HasPrefix(r.Name, prefix) && r.Rank < rankSpin {
			if hi == 0 {
				lo = r.Rank
			}
			hi = r.Rank
		}
	}
	return lo, hi
}

// rankSpin is beyond the classes that tree_* means: the locks of tree blocks, not those of their
// cache.
const rankSpin = 150

// The checker finds what is wrong in a tree, and nothing in one that is right.
func TestOrderTreeFinds(t *testing.T) {
	for _, c := range []struct {
		text, want string
	}{
		{"Lock order:\n\n\ti_rwsem   a file\n\t  range_lock\n\t    page, extent   two\n\t                         more of it\n\t  dio_wait\n\nand text", ""},
		{"Lock order:\n\n\ttree_*   root to leaf\n\t  tree_*   right neighbour\n\t    chunk_mutex", ""},
		{"Lock order: as package setsize.", ""},
		{"Lock order:\n\n\tpage\n\t  i_rwsem", "[i_rwsem], rank 30, under [page], rank 70"},
		{"Lock order:\n\n\tspace_ticket\n\t  balance_dirty\n\t    fault_in", "[fault_in], rank 55, under [balance_dirty], rank 55"},
		{"Lock order:\n\n\ti_rwsem\n\t  snapshot", "no class snapshot"},
		{"Lock order:\n\n\ti_rwsem\n\t  range_lock, page\n\t    extent\n\t  dio_locked\n\t    dio_wait", "[dio_wait], rank 40, under [dio_locked], rank 58"},
		{"Lock order: the mutex is a leaf.", "no tree and names no package"},
		{"Lock order:\n\ntext", "no tree after it"},
	} {
		_, bad := orderTree(c.text)
		if got := strings.Join(bad, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%q: have %q, want %q", c.text, got, c.want)
		}
	}
}
