package grade

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sources lists the Go files of dir that are the student's solution: no tests.
func sources(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var l []string
	for _, e := range entries {
		if n := e.Name(); strings.HasSuffix(n, ".go") && !strings.HasSuffix(n, "_test.go") && e.Type().IsRegular() {
			l = append(l, filepath.Join(dir, n))
		}
	}
	if len(l) == 0 {
		return nil, fmt.Errorf("%s has no Go file", dir)
	}
	return l, nil
}

// Check reads the student's files and returns what the lab does not allow, a line each, and the package's name.
//
// Imports: only those in allowed, so no sync, sync/atomic, time, unsafe or os; what waits must wait where the explorer sees it. For
// the same reason no go statement, channel or select. No variable of the package, which would outlive an execution of the
// explorer, no init function, and no directive to the compiler or linker.
func Check(files, allowed []string) (pkg string, bad []string) {
	fset := token.NewFileSet()
	say := func(pos token.Pos, format string, a ...any) {
		p := fset.Position(pos)
		bad = append(bad, fmt.Sprintf("%s:%d: %s", filepath.Base(p.Filename), p.Line, fmt.Sprintf(format, a...)))
	}
	for _, name := range files {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			bad = append(bad, strings.ReplaceAll(err.Error(), filepath.Dir(name)+string(filepath.Separator), ""))
			continue
		}
		if pkg = f.Name.Name; pkg == "main" {
			say(f.Name.Pos(), "package main, want a package that can be imported")
		}
		for _, i := range f.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			if !slices.Contains(allowed, path) {
				say(i.Pos(), "imports %q, want only %s", path, strings.Join(allowed, ", "))
			}
			if i.Name != nil && (i.Name.Name == "." || i.Name.Name == "_") {
				say(i.Pos(), "imports %q as %s", path, i.Name.Name)
			}
		}
		for _, g := range f.Comments {
			for _, c := range g.List {
				if strings.HasPrefix(c.Text, "//go:") || strings.HasPrefix(c.Text, "//line") || strings.HasPrefix(c.Text, "//export") {
					say(c.Pos(), "has the directive %s", strings.Fields(c.Text)[0])
				}
			}
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					say(d.Pos(), "has a variable of the package: keep state in the lock")
				}
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					say(d.Pos(), "has an init function")
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				say(n.Pos(), "has a go statement")
			case *ast.SelectStmt:
				say(n.Pos(), "has a select")
			case *ast.ChanType:
				say(n.Pos(), "has a channel")
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "recover" {
					say(n.Pos(), "has a recover: the explorer ends executions by a panic")
				}
			}
			return true
		})
	}
	return pkg, bad
}
