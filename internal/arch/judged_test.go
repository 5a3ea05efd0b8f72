package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A test that asks package need for another judge is one that make interop runs: its package and
// its name are in the Makefile. Else nothing would ever run it.
func TestJudged(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^JUDGED := (.*)$`).FindSubmatch(text)
	dirs := regexp.MustCompile(`(?m)^INTEROP := ((?:.*\\\n)*.*)$`).FindSubmatch(text)
	whole := regexp.MustCompile(`(?m)^\tBTRLAB_INTEROP=1 .* -skip "\S+" .* (\./internal/\S+)$`).FindSubmatch(text)
	if names == nil || dirs == nil || whole == nil {
		t.Fatal("the Makefile has no JUDGED, no INTEROP, or no packages whose tests run but for some")
	}
	judged := regexp.MustCompile(string(names[1]))
	found := 0
	err = filepath.WalkDir("../../internal", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		pkg := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		for _, name := range asking(t, path) {
			found++
			switch {
			case inPackages(pkg, string(whole[1])):
			case !inPackages(pkg, string(dirs[1])):
				t.Errorf("%s: %s wants another judge, and make interop does not have the package", pkg, name)
			case !judged.MatchString(name):
				t.Errorf("%s: %s wants another judge, and JUDGED of the Makefile does not match it", pkg, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 60 {
		t.Errorf("%d tests want another judge, want at least 60: the search is broken", found)
	}
}

func inPackages(pkg, list string) bool {
	for _, p := range strings.Fields(strings.ReplaceAll(list, "\\", " ")) {
		p = strings.TrimPrefix(p, "./")
		if base, below := strings.CutSuffix(p, "/..."); pkg == p || below && strings.HasPrefix(pkg, base+"/") {
			return true
		}
	}
	return false
}

// asking are the tests of a folder that call a function of need which may skip, by themselves or
// through functions of their package.
func asking(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string][]string{} // function -> what it names
	asks := map[string]bool{}
	for _, f := range files {
		file, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok {
						switch x.Name + "." + n.Sel.Name {
						case "need.All", "need.Browser", "need.Without", "need.LeftOut", "interop.Linux", "interop.Numbers":
							asks[fn.Name.Name] = true
						}
					}
				case *ast.Ident:
					calls[fn.Name.Name] = append(calls[fn.Name.Name], n.Name)
				}
				return true
			})
		}
	}
	for grew := true; grew; {
		grew = false
		for f, list := range calls {
			for _, c := range list {
				if asks[c] && !asks[f] {
					asks[f], grew = true, true
				}
			}
		}
	}
	for f := range asks {
		if strings.HasPrefix(f, "Test") {
			names = append(names, f)
		}
	}
	return names
}
