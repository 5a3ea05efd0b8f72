package mutants

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/judge/mutants/drawn"
)

// fault is one block of the catalogue.
type fault struct {
	id, file, pkg, test, why, equivalent, old, new string
}

// room is the package that the fault is planted in.
func (f *fault) room() string { return strings.TrimPrefix(path.Dir(f.file), "internal/") }

// plant is the text of the file with the fault in it.
func (f *fault) plant(src []byte) []byte {
	return bytes.Replace(src, []byte(f.old), []byte(f.new), 1)
}

// parse reads the blocks of one file of the catalogue.
func parse(text string) ([]*fault, error) {
	var faults []*fault
	var f *fault
	var fields map[string]*string
	var open string // the text that goes on: old or new
	for i, line := range strings.SplitAfter(text, "\n") {
		bare := strings.TrimRight(line, "\n")
		name, value, isField := strings.Cut(bare, ": ")
		switch {
		case open != "" && bare == ">>":
			open = ""
		case open != "":
			*fields[open] += line
		case strings.HasPrefix(bare, "== "):
			f = &fault{id: bare[3:]}
			faults = append(faults, f)
			fields = map[string]*string{"file": &f.file, "pkg": &f.pkg, "test": &f.test, "why": &f.why, "equivalent": &f.equivalent,
				"old": &f.old, "new": &f.new}
		case bare == "" || strings.HasPrefix(bare, "#"):
		case f != nil && (bare == "old<<" || bare == "new<<"):
			open = bare[:3]
		case isField && fields[name] != nil && *fields[name] == "" && name != "old" && name != "new":
			*fields[name] = strings.TrimSpace(value)
		default:
			return nil, fmt.Errorf("line %d: bad line, have %q want a field, old<<, new<< or == id", i+1, bare)
		}
	}
	if open != "" {
		return nil, fmt.Errorf("fault %s: %s<< has no >>", f.id, open)
	}
	return faults, nil
}

func catalogue(t *testing.T) []*fault {
	t.Helper()
	files, err := filepath.Glob("testdata/catalogue/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no catalogue: %v", err)
	}
	var all []*fault
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		faults, err := parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, faults...)
	}
	return all
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The catalogue keeps up with the code: every fault has its fields, an id of its own, a text that
// stands once in its file and one that parses in its place, and names tests that exist. A handout
// leaves some of those out.
func TestCatalogue(t *testing.T) {
	top := root(t)
	_, err := os.Stat(filepath.Join(top, "HANDOUT"))
	whole := err != nil
	ids := map[string]bool{}
	tests := map[string][]string{}
	for _, f := range catalogue(t) {
		if f.id == "" || f.file == "" || f.pkg == "" || f.why == "" || f.old == "" || f.old == f.new {
			t.Errorf("fault %q: a field is missing: %+v", f.id, *f)
			continue
		}
		if ids[f.id] {
			t.Errorf("fault %s: two have this id", f.id)
		}
		ids[f.id] = true
		src, err := os.ReadFile(filepath.Join(top, f.file))
		if err != nil {
			t.Errorf("fault %s: %v", f.id, err)
			continue
		}
		if n := bytes.Count(src, []byte(f.old)); n != 1 {
			t.Errorf("fault %s: its text stands in %s %d times, want once:\n%s", f.id, f.file, n, f.old)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), f.file, f.plant(src), parser.SkipObjectResolution); err != nil {
			t.Errorf("fault %s: %v", f.id, err)
		}
		for _, pkg := range strings.Fields(f.pkg) {
			if tests[pkg] == nil {
				tests[pkg] = testsOf(t, filepath.Join(top, pkg))
			}
		}
		if err := f.names(tests); err != nil && whole {
			t.Errorf("fault %s: %v", f.id, err)
		}
	}
}

// Every fault has types with its package, as far as this system builds it: one that names what has
// gone does not build, and is noticed by nobody.
func TestCatalogueTypes(t *testing.T) {
	top := root(t)
	faults := catalogue(t)
	var dirs []string
	for _, f := range faults {
		dirs = append(dirs, path.Dir(f.file))
	}
	slices.Sort(dirs)
	c, err := drawn.NewChecker(top, slices.Compact(dirs))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, f := range faults {
		src, err := os.ReadFile(filepath.Join(top, f.file))
		if err != nil || !c.Builds(f.file) {
			continue // TestCatalogue says so, or another system builds it
		}
		checked++
		if err := c.Check(f.file, f.plant(src)); err != nil {
			t.Errorf("fault %s: %v", f.id, err)
		}
	}
	if _, err := os.Stat(filepath.Join(top, "HANDOUT")); err != nil && checked < len(faults)*9/10 {
		t.Errorf("%d of %d faults were checked", checked, len(faults))
	}
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)\w*)\(`)

func testsOf(t *testing.T, dir string) []string {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(src, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// names reports a package of the fault without tests, and a part of its test field that matches no
// test of any of them.
func (f *fault) names(tests map[string][]string) error {
	var all []string
	for _, pkg := range strings.Fields(f.pkg) {
		if len(tests[pkg]) == 0 {
			return fmt.Errorf("package %s has no tests", pkg)
		}
		all = append(all, tests[pkg]...)
	}
	for _, part := range alternatives(f.test) {
		first, _, _ := strings.Cut(part, "/")
		e, err := regexp.Compile(first)
		if err != nil {
			return err
		}
		found := false
		for _, name := range all {
			found = found || e.MatchString(name)
		}
		if !found {
			return fmt.Errorf("no test of %s matches %s", f.pkg, part)
		}
	}
	return nil
}

// alternatives splits an expression of go test -run at the bars that stand outside of parentheses
// and brackets, as go test does.
func alternatives(expr string) []string {
	if expr == "" {
		return nil
	}
	var parts []string
	depth, from := 0, 0
	for i := 0; i < len(expr); i++ {
		switch expr[i] {
		case '\\':
			i++
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '|':
			if depth == 0 {
				parts = append(parts, expr[from:i])
				from = i + 1
			}
		}
	}
	return append(parts, expr[from:])
}

// A line that no reader of the catalogue would miss is an error: a misspelt field would plant
// something else.
func TestParse(t *testing.T) {
	const good = "# a comment\n== one\nfile: a.go\npkg: ./a\nwhy: w: x\nold<<\n== not an id\n>>\nnew<<\n>>\n\n== two\nequivalent: never read\n"
	faults, err := parse(good)
	if err != nil || len(faults) != 2 {
		t.Fatalf("%d faults, %v", len(faults), err)
	}
	want := fault{id: "one", file: "a.go", pkg: "./a", why: "w: x", old: "== not an id\n"}
	if *faults[0] != want || faults[1].equivalent != "never read" {
		t.Errorf("have %+v %+v", *faults[0], *faults[1])
	}
	for _, bad := range []string{"file: a.go\n", "== a\nfiel: a.go\n", "== a\nwhy: one\nwhy: two\n", "== a\nold: x\n", "== a\nold<<\nx\n", "== a\nx\n"} {
		if faults, err := parse(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, faults)
		}
	}
}

func TestNames(t *testing.T) {
	tests := map[string][]string{"./a": {"TestOne", "TestTwo"}, "./b": {"TestThree"}, "./c": {}}
	for _, c := range []struct {
		pkg, test string
		ok        bool
	}{
		{"./a", "", true}, {"./a ./b", "TestThree", true}, {"./a", "One|Two/x|y", false}, {"./a", "One|Test(Two|Three)/x", true},
		{"./a", "Three", false}, {"./a ./c", "", false}, {"./a", "One|", true}, {"./a", "(", false}, {"./a", `One\|Two`, false}, {"./a", "[|]One", false},
	} {
		f := fault{pkg: c.pkg, test: c.test}
		if err := f.names(tests); (err == nil) != c.ok {
			t.Errorf("pkg %q, test %q: %v", c.pkg, c.test, err)
		}
	}
}
