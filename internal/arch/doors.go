package arch

import (
	"go/ast"
	"go/token"
	"regexp"
	"sort"
	"strings"
)

// Door is a place where a room is given code that it does not import, so that a lower room can call
// an upper one: an exported interface, an exported field or variable of a function type, or an
// exported method Set... or On... that takes a function.
//
// No door is an option, which is a function field of a struct named Config, Options or Env, and an
// interface for what a lower room has, so that tests may have another: its doc says
// "*pkg.Type is one".
type Door struct {
	// "pkg.Interface", "pkg.Struct.Field", "pkg.Type.SetFunc" or "pkg.Var", pkg without its folders
	Name    string
	Room    string   // the package that has it
	Methods []string // of an interface, without those of embedded ones
	Below   string   // "pkg.Type" of a lower room that is one: then it is no door
	Pos     token.Pos
}

var (
	isOne  = regexp.MustCompile(`\*(\w+\.\w+)\s+is\s+one\b`)
	option = regexp.MustCompile(`(Config|Options|Env)$`)
)

// The rooms with doors: above the words, below the wings.
const (
	doorsFrom = 1
	doorsTo   = 7
)

// Doors lists the doors of pkgs by name.
func (r *Rules) Doors(pkgs []Package) []Door {
	var out []Door
	for _, p := range pkgs {
		if l := r.rooms[p.Name].level; l < doorsFrom || l > doorsTo || strings.HasPrefix(p.Name, "labs/") {
			continue
		}
		short := p.Name[strings.LastIndex(p.Name, "/")+1:]
		add := func(pos token.Pos, methods []string, below string, names ...string) {
			for _, n := range names {
				if !ast.IsExported(n) {
					return
				}
			}
			out = append(out, Door{Name: short + "." + strings.Join(names, "."), Room: p.Name, Methods: methods, Below: below, Pos: pos})
		}
		for _, f := range p.Files {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					setter(d, add)
				case *ast.GenDecl:
					for _, s := range d.Specs {
						spec(s, d.Doc.Text(), add)
					}
				}
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

type addDoor func(pos token.Pos, methods []string, below string, names ...string)

// setter adds a method like BDI.SetWake(func...).
func setter(d *ast.FuncDecl, add addDoor) {
	if d.Recv == nil || !strings.HasPrefix(d.Name.Name, "Set") && !strings.HasPrefix(d.Name.Name, "On") {
		return
	}
	for _, p := range d.Type.Params.List {
		if _, ok := p.Type.(*ast.FuncType); ok {
			add(d.Pos(), nil, "", typeName(d.Recv.List[0].Type), d.Name.Name)
			return
		}
	}
}

// typeName is the name of a receiver's or an embedded field's type, which is of its own package.
func typeName(x ast.Expr) string {
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.IndexListExpr:
			x = y.X
		case *ast.Ident:
			return y.Name
		default:
			return ""
		}
	}
}

func spec(s ast.Spec, doc string, add addDoor) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		if _, ok := s.Type.(*ast.FuncType); ok {
			for _, n := range s.Names {
				add(n.Pos(), nil, "", n.Name)
			}
		}
	case *ast.TypeSpec:
		switch x := s.Type.(type) {
		case *ast.InterfaceType:
			var methods []string
			for _, m := range x.Methods.List {
				if _, ok := m.Type.(*ast.BinaryExpr); ok {
					return // a constraint of type parameters
				}
				for _, n := range m.Names {
					methods = append(methods, n.Name)
				}
			}
			below := ""
			if m := isOne.FindStringSubmatch(doc + s.Doc.Text()); m != nil {
				below = m[1]
			}
			add(s.Pos(), methods, below, s.Name.Name)
		case *ast.StructType:
			if option.MatchString(s.Name.Name) {
				return
			}
			for _, f := range x.Fields.List {
				if _, ok := f.Type.(*ast.FuncType); ok {
					for _, n := range f.Names {
						add(n.Pos(), nil, "", s.Name.Name, n.Name)
					}
				}
			}
		}
	}
}

// Anonymous returns where a type assertion asks for an interface that has no name: a door that no
// list can have.
func (r *Rules) Anonymous(pkgs []Package) (out []token.Pos) {
	for _, p := range pkgs {
		if l := r.rooms[p.Name].level; l < doorsFrom || l > doorsTo {
			continue
		}
		for _, f := range p.Files {
			ast.Inspect(f, func(n ast.Node) bool {
				if a, ok := n.(*ast.TypeAssertExpr); ok {
					if x, ok := a.Type.(*ast.InterfaceType); ok && len(x.Methods.List) > 0 {
						out = append(out, a.Pos())
					}
				}
				return true
			})
		}
	}
	return out
}
