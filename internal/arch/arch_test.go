package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func readRules(t *testing.T) *Rules {
	t.Helper()
	text, err := os.ReadFile("rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// house parses every package of the module, without tests.
func house(t *testing.T, fset *token.FileSet) []Package {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,IgnoredGoFiles", "btrlab/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var pkgs []Package
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var l struct {
			ImportPath, Dir         string
			GoFiles, IgnoredGoFiles []string
		}
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var files []string
		for _, f := range append(l.GoFiles, l.IgnoredGoFiles...) {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			path := filepath.Join(l.Dir, f)
			if rel, err := filepath.Rel(wd, path); err == nil {
				path = rel
			}
			files = append(files, path)
		}
		if len(files) == 0 {
			continue // tests only
		}
		p, err := ParseFiles(fset, strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, "btrlab/"), "internal/"), files, nil)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 5 {
		t.Fatalf("go list gave %d packages, want the whole house", len(pkgs))
	}
	return pkgs
}

// TestHouse holds every package of the module against rules.txt.
func TestHouse(t *testing.T) {
	r := readRules(t)
	fset := token.NewFileSet()
	pkgs := house(t, fset)
	for _, v := range r.Check(fset, pkgs) {
		t.Error(v)
	}
}

// TestCheckFinds proves the checker on wrong code: one planted violation of each kind, and its
// place.
func TestCheckFinds(t *testing.T) {
	const rules = `
room 0 words
room 0 state
room 1 low
room 1 side : low
room 2 high
room 3 judge
room 3 door
stdonly 0
pure words
forbid judge : high # the judge does not live with the accused
module example.org/paint : door
module example.org/ink : words # stdonly, but for this
ban bypass low high : import:sync syntax:go syntax:chan syntax:select use:time.Now # use sched
allow bypass high : use:time.Now # the one hook
ban pages low : select:Pages # it knows no pages
ban print low : use:fmt.Println builtin:println # only cli prints
ban globals state : var:* set:* # state belongs to an object
allow globals state : var:names var:limit # read only
ban text low : text:Error text:Where use:fmt.Sscanf # errors and findings have fields
`
	r, err := Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		pkgs map[string]string
		want []string // "file:line:column: start of the text"
	}{
		{"clean", map[string]string{
			"low":  "package low\nimport \"time\"\nvar D time.Duration",
			"side": "package side\nimport _ \"btrlab/internal/low\"",
			"high": "package high\nimport \"time\"\nvar N = time.Now",
		}, nil},
		{"upward", map[string]string{"low": "package low\nimport _ \"btrlab/internal/high\""},
			[]string{"low.go:2:8: low, level 1, imports high, level 2"}},
		{"sibling", map[string]string{"low": "package low\nimport _ \"btrlab/internal/side\""},
			[]string{"low.go:2:8: low imports its sibling side"}},
		{"no room", map[string]string{"attic": "package attic"}, []string{"attic.go:1:1: package attic has no room"}},
		{"through a friend", map[string]string{
			"judge": "package judge\nimport _ \"btrlab/internal/side\"",
			"side":  "package side\nimport _ \"btrlab/internal/high\"",
		}, []string{"judge.go:2:8: judge imports side, which imports high", "side.go:2:8: side, level 1"}},
		{"pure", map[string]string{"words": "package words\nimport _ \"os/exec\""}, []string{"words.go:2:8: words is pure"}},
		{"stdonly", map[string]string{"words": "package words\nimport _ \"example.org/x\""},
			[]string{"words.go:2:8: words, level 0, imports example.org/x"}},
		{"granted module", map[string]string{"words": "package words\nimport _ \"example.org/ink\""}, nil},
		{"module", map[string]string{"high": "package high\nimport _ \"example.org/paint/oil\""},
			[]string{"high.go:2:8: high imports example.org/paint/oil, which is for door"}},
		{"sync", map[string]string{"low": "package low\nimport (\n\t\"sync\"\n\t\"sync/atomic\"\n)\nvar M sync.Mutex\nvar A atomic.Int32"},
			[]string{"low.go:3:2: low has import:sync"}},
		{"clock", map[string]string{"low": "package low\nimport tm \"time\"\nvar X = tm.Now()"},
			[]string{"low.go:3:9: low has use:time.Now"}},
		{"shadow", map[string]string{"low": "package low\nimport \"time\"\ntype c struct{}\nfunc (c) Now() {}\nvar D time.Duration\nfunc f() { time := c{}; time.Now() }"}, nil},
		{"syntax", map[string]string{"high": "package high\nfunc f() {\n\tvar c chan int\n\tgo f()\n\tselect {}\n\tc <- 1\n\t<-c\n}"},
			[]string{"high.go:3:8: high has syntax:chan", "high.go:4:2: high has syntax:go", "high.go:5:2: high has syntax:select",
				"high.go:6:2: high has syntax:chan", "high.go:7:2: high has syntax:chan"}},
		{"select", map[string]string{"low": "package low\ntype f struct{ Pages int }\nfunc g(x f) { x.Pages++ }"},
			[]string{"low.go:3:15: low has select:Pages"}},
		{"globals", map[string]string{"state": "package state\nvar n int\nvar names = []string{\"a\"}\nvar limit = 3\nvar _ = n\nconst k = 1\n" +
			"func f() (names int) {\n\tnames = 4\n\tlimit++\n\tvar here = 1\n\there = 2\n\treturn\n}\nfunc g() { names[0] = \"b\" }\nfunc h(n int) { n = 1 }"},
			[]string{"state.go:2:5: state has var:n: state belongs to an object", "state.go:9:2: state has set:limit", "state.go:14:12: state has set:names"}},
		{"made once", map[string]string{"state": "package state\nimport (\n\t\"btrlab/internal/lock/lockdep\"\n\t\"errors\"\n)\nvar c = lockdep.NewClass(\"c\")\nvar (\n\tErr = errors.New(\"e\")\n\tx = new(int)\n)"},
			[]string{"state.go:9:2: state has var:x"}},
		{"text", map[string]string{"low": "package low\nimport (\n\t\"fmt\"\n\tstr \"strings\"\n)\nfunc f(err error, g finding) {\n\t_ = str.Contains(err.Error(), \"busy\")\n" +
			"\t_ = err.Error() == \"EOF\"\n\tswitch err.Error() {\n\t}\n\tfmt.Sscanf(g.Want, \"rfer %d\", &g.n)\n\t_, _, _ = str.Cut(\"at \"+g.Where(), \"=\")\n" +
			"\t_ = str.Split(err.Error(), \"\\n\")\n\t_ = str.Contains(g.Error, err.Error2())\n\t_ = str.ToUpper(err.Error())\n\t_ = g.Where\n}"},
			[]string{"low.go:7:19: low has text:Error: errors and findings", "low.go:8:6: low has text:Error", "low.go:9:9: low has text:Error",
				"low.go:11:2: low has use:fmt.Sscanf", "low.go:12:26: low has text:Where"}},
		{"print", map[string]string{"low": "package low\nimport \"fmt\"\nfunc f() {\n\tfmt.Println()\n\tprintln()\n}"},
			[]string{"low.go:4:2: low has use:fmt.Println", "low.go:5:2: low has builtin:println"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fset := token.NewFileSet()
			var pkgs []Package
			for name, src := range tt.pkgs {
				p, err := ParseFiles(fset, name, []string{name + ".go"}, map[string]string{name + ".go": src})
				if err != nil {
					t.Fatal(err)
				}
				pkgs = append(pkgs, p)
			}
			got := r.Check(fset, pkgs)
			if len(got) != len(tt.want) {
				t.Fatalf("have %v want %v", got, tt.want)
			}
			for i, v := range got {
				if !strings.HasPrefix(v.String(), tt.want[i]) {
					t.Errorf("have %q want prefix %q", v, tt.want[i])
				}
			}
		})
	}
}

// TestParseRefuses: a rule that is not understood is an error, not a rule that never fires.
func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"room x y", "room 1 a\nroom 1 a", "room 1 a : b", "forbid a : b", "ban x y", "ban x y : import:sync",
		"allow none a : import:sync # why", "allow a", "rooms 1 a",
	} {
		if _, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) gave no error", text)
		}
	}
}
