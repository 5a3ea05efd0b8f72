package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"strings"
	"testing"
)

// Lines of a function, from "func" to its closing brace.
const (
	mostLines = 100 // no function has more
	longLines = 80  // and few have more than this
	mostLong  = 10
)

// tables are the functions whose lines are rows: to cut one is to have two lists of one kind.
var tables = map[string]string{
	"judge/conform.known": "a row for each difference that is known; a function because its patterns are compiled when they are asked for",
}

// TestFunctionSizes: what is longer than a screen or two is read by nobody. A function that grows
// over a limit is cut where a part of it has a name; one that has none is a line in tables.
func TestFunctionSizes(t *testing.T) {
	fset := token.NewFileSet()
	var long []string
	tables := maps.Clone(tables)
	for _, p := range house(t, fset) {
		if strings.HasPrefix(p.Name, "testing/") {
			continue // for tests only
		}
		for _, f := range longFunctions(fset, p, longLines) {
			if tables[f.name] != "" {
				delete(tables, f.name)
				continue
			}
			if f.lines > mostLines {
				t.Errorf("%s has %d lines, want at most %d", f.name, f.lines, mostLines)
			}
			long = append(long, fmt.Sprintf("%s (%d)", f.name, f.lines))
		}
	}
	if len(long) > mostLong {
		t.Errorf("%d functions have more than %d lines, want at most %d:\n%s", len(long), longLines, mostLong, strings.Join(long, "\n"))
	}
	for name := range tables {
		t.Errorf("%s is in tables, and is not longer than %d lines", name, longLines)
	}
}

type function struct {
	name  string // "progs/check.checkRefs"
	lines int
}

// longFunctions lists the functions of a package with more than limit lines.
func longFunctions(fset *token.FileSet, p Package, limit int) (list []function) {
	add := func(name string, n ast.Node) {
		if lines := fset.Position(n.End()).Line - fset.Position(n.Pos()).Line + 1; lines > limit {
			list = append(list, function{p.Name + "." + name, lines})
		}
	}
	for _, f := range p.Files {
		for _, d := range f.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok {
				add(fd.Name.Name, fd)
				continue
			}
			for _, s := range d.(*ast.GenDecl).Specs {
				v, ok := s.(*ast.ValueSpec)
				if !ok {
					continue
				}
				ast.Inspect(v, func(n ast.Node) bool {
					l, ok := n.(*ast.FuncLit)
					if ok {
						add(v.Names[0].Name, l)
					}
					return !ok
				})
			}
		}
	}
	return list
}

func TestFunctionSizesFinds(t *testing.T) {
	body := func(lines int) string { return "{\n" + strings.Repeat("\tx++\n", lines-2) + "}\n" }
	src := map[string]string{"a.go": "package a\n\nvar x int\n\n// f has words above it,\n// which do not count.\nfunc f() " + body(81) + "\nfunc (t T) g() " + body(80) +
		"\nvar h = func() " + body(101) + "\ntype T int\n"}
	fset := token.NewFileSet()
	p, err := ParseFiles(fset, "a", []string{"a.go"}, src)
	if err != nil {
		t.Fatal(err)
	}
	have := fmt.Sprint(longFunctions(fset, p, 80))
	if want := "[{a.f 81} {a.h 101}]"; have != want {
		t.Errorf("have %s want %s", have, want)
	}
}
