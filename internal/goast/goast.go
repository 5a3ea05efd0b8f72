// Package goast asks the syntax tree of Go what code changes. The rules of the house (arch) and of
// student code (sandbox) are built on it.
package goast

import (
	"go/ast"
	"go/token"
)

// Inside is the expression that x is a part of: x.f of x.f[i]. Nil is none.
func Inside(x ast.Expr) ast.Expr {
	switch x := x.(type) {
	case *ast.ParenExpr:
		return x.X
	case *ast.StarExpr:
		return x.X
	case *ast.IndexExpr:
		return x.X
	case *ast.SliceExpr:
		return x.X
	case *ast.SelectorExpr:
		return x.X
	}
	return nil
}

// Root is the name that x is a part of: x of x.f[i]. Nil is none.
func Root(x ast.Expr) *ast.Ident {
	for ; x != nil; x = Inside(x) {
		if id, ok := x.(*ast.Ident); ok {
			return id
		}
	}
	return nil
}

// Changed calls f for each expression that the statement n gives another value. A definition
// changes nothing.
func Changed(n ast.Node, f func(x ast.Expr)) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, x := range n.Lhs {
			if n.Tok != token.DEFINE {
				f(x)
			}
		}
	case *ast.IncDecStmt:
		f(n.X)
	case *ast.RangeStmt:
		for _, x := range []ast.Expr{n.Key, n.Value} {
			if n.Tok == token.ASSIGN && x != nil {
				f(x)
			}
		}
	}
}
