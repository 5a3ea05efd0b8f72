package goast

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestChanged: each statement that changes something names it, by the variable that it is a part
// of; definitions change nothing.
func TestChanged(t *testing.T) {
	for body, want := range map[string]string{
		"x = 1":                               "x",
		"x.f[i], (*y).g[1:][0] = 1, 2":        "x y",
		"x.n++":                               "x",
		"a += 1":                              "a",
		"for a.k, b[0] = range l {}":          "a b",
		"for a = range l {}":                  "a",
		"x := 1; for k, v := range l {}":      "",
		"f().x = 1":                           "-",
		"var x = 1; _ = x; go f(); y.(T).z++": "_ -",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package p\nfunc g() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		ast.Inspect(f, func(n ast.Node) bool {
			Changed(n, func(x ast.Expr) {
				name := "-"
				if id := Root(x); id != nil {
					name = fmt.Sprint(id)
				}
				have = append(have, name)
			})
			return true
		})
		if got := strings.Join(have, " "); got != want {
			t.Errorf("%s: have %q want %q", body, got, want)
		}
	}
}
