package errno

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOther: the numbers and words for systems other than Linux are Linux's. That file is not built
// here, so its source is read.
func TestOther(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "errno_other.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	numbers, words := map[string]int{}, map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if l, ok := first(n.Values).(*ast.BasicLit); ok {
				numbers[n.Names[0].Name], err = strconv.Atoi(l.Value)
			}
		case *ast.KeyValueExpr:
			words[n.Key.(*ast.Ident).Name], err = strconv.Unquote(n.Value.(*ast.BasicLit).Value)
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	f, err = parser.ParseFile(token.NewFileSet(), "errno_linux.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	here := 0
	for _, d := range f.Decls {
		for _, s := range d.(*ast.GenDecl).Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				here++
				if _, ok := numbers[v.Names[0].Name]; !ok {
					t.Errorf("errno_other.go has no %s", v.Names[0].Name)
				}
			}
		}
	}
	if here < 20 || len(numbers) != here || len(words) != here {
		t.Errorf("have %d numbers and %d texts, want %d of each", len(numbers), len(words), here)
	}
	for name, no := range numbers {
		if got := unix.ErrnoName(syscall.Errno(no)); got != name && !(name == "EOPNOTSUPP" && got == "ENOTSUP") && !(name == "EUCLEAN" && got == "EFSCORRUPTED") {
			t.Errorf("%s = %d, which is %s", name, no, got)
		}
		if want := syscall.Errno(no).Error(); words[name] != want {
			t.Errorf("%s = %d has text %q, want %q", name, no, words[name], want)
		}
	}
}

func first(l []ast.Expr) ast.Expr {
	if len(l) == 0 {
		return nil
	}
	return l[0]
}
