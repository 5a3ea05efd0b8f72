package sandbox

import (
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"go/types"
	"slices"

	"btrlab/internal/study/grade"
)

// The same code is explored once in a class. It is the same if its tokens are, without comments and
// layout, and with local variables, constants and labels numbered in the order in which they come.
// Names of types, fields, functions and packages stay: a program can print or print by them.

// locals are the declarations of the local names in the files, by the position of each use.
func (c *checker) locals(files []*ast.File) map[token.Pos]token.Pos {
	at := map[token.Pos]token.Pos{}
	local := func(o types.Object) bool {
		switch v := o.(type) {
		case *types.Var:
			if v.IsField() {
				return false
			}
		case *types.Const, *types.Label:
		default:
			return false
		}
		return o.Parent() != nil && o.Parent() != types.Universe && (o.Pkg() == nil || o.Parent() != o.Pkg().Scope())
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSwitchStmt); ok {
				if a, ok := s.Assign.(*ast.AssignStmt); ok {
					// each clause has a variable of its own, declared here
					at[a.Lhs[0].Pos()] = a.Lhs[0].Pos()
				}
			}
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			o := c.info.Defs[id]
			if o == nil {
				o = c.info.Uses[id]
			}
			if o != nil && local(o) {
				at[id.Pos()] = o.Pos()
			}
			return true
		})
	}
	return at
}

// canon is a hash of what the files say to a compiler, by the rules above. It needs a package that
// the type checker has understood.
func (c *checker) canon(files []File, parsed []*ast.File) string {
	at := c.locals(parsed)
	numbers := map[token.Pos]int{}
	h := sha256.New()
	for i, f := range files {
		base := c.fset.File(parsed[i].FileStart)
		var s scanner.Scanner
		own := token.NewFileSet()
		file := own.AddFile("", own.Base(), len(f.Data))
		s.Init(file, f.Data, func(token.Position, string) {}, 0)
		optional := "" // a separator that says nothing before the end of a list
		for {
			pos, tok, lit := s.Scan()
			if tok == token.EOF {
				break
			}
			if tok != token.RBRACE && tok != token.RPAREN {
				fmt.Fprint(h, optional)
			}
			if optional = ""; tok == token.SEMICOLON || tok == token.COMMA {
				optional = tok.String() + "\n"
				continue
			}
			if tok == token.IDENT {
				if d, ok := at[base.Pos(file.Offset(pos))]; ok {
					if _, ok := numbers[d]; !ok {
						numbers[d] = len(numbers)
					}
					lit = fmt.Sprint(numbers[d])
				} else {
					lit = "=" + lit
				}
			}
			fmt.Fprintf(h, "%v %s\n", tok, lit)
		}
		fmt.Fprintln(h, "end of file")
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// Explored is what code of a class came to, by what it says, so that the same code is explored
// once.
type Explored struct{ rows map[string]exploredRows }

type exploredRows struct {
	of   string // the submission that was explored
	rows []grade.Row
}

// find is the rows of code that was explored, with a note in each whose they are; nil if there are
// none.
func (e *Explored) find(canon string) []grade.Row {
	if e == nil || canon == "" {
		return nil
	}
	x, ok := e.rows[canon]
	if !ok {
		return nil
	}
	rows := slices.Clone(x.rows)
	for i := range rows {
		rows[i].Shared = x.of
	}
	return rows
}

// keep keeps the rows of a submission's code.
func (e *Explored) keep(canon, of string, rows []grade.Row) {
	if e == nil || canon == "" {
		return
	}
	if e.rows == nil {
		e.rows = map[string]exploredRows{}
	}
	e.rows[canon] = exploredRows{of, slices.Clone(rows)}
}
