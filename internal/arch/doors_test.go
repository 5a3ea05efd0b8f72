package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDoors holds the list of doors in ARCHITECTURE.md against the code.
func TestDoors(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	for _, err := range checkDoors(readRules(t), fset, house(t, fset), string(text)) {
		t.Error(err)
	}
}

var (
	doorRow = regexp.MustCompile("(?m)^\\| `([a-z]+\\.[A-Za-z.]+)` \\| [^|]+ \\| ([^|]+) \\|$")
	quoted  = regexp.MustCompile("`([^`]+)`")
)

// checkDoors compares the rows of the section "Doors" with the doors of pkgs.
func checkDoors(r *Rules, fset *token.FileSet, pkgs []Package, text string) (out []string) {
	_, text, _ = strings.Cut(text, "\n## Doors\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rows := map[string]string{}
	for _, m := range doorRow.FindAllStringSubmatch(text, -1) {
		if _, ok := rows[m[1]]; ok {
			out = append(out, fmt.Sprintf("door %s is listed twice", m[1]))
		}
		rows[m[1]] = m[2]
	}
	for _, at := range r.Anonymous(pkgs) {
		out = append(out, fmt.Sprintf("%s: an assertion to an interface without a name is a door that is not listed", fset.Position(at)))
	}
	floors := map[string]int{}
	for _, p := range pkgs {
		floors[p.Name[strings.LastIndex(p.Name, "/")+1:]] = r.rooms[p.Name].level
	}
	uses := usesOf(pkgs)
	for _, d := range r.Doors(pkgs) {
		if d.Below != "" {
			pkg, _, _ := strings.Cut(d.Below, ".")
			why := uses.fills(d.Below, d)
			if why == "" && floors[pkg] > r.rooms[d.Room].level {
				why = "is of a higher room"
			}
			if why != "" {
				out = append(out, fmt.Sprintf("%s: %s says that %s is one, which %s", fset.Position(d.Pos), d.Name, d.Below, why))
			}
			continue
		}
		fillers, ok := rows[d.Name]
		delete(rows, d.Name)
		if !ok {
			out = append(out, fmt.Sprintf("%s: door %s of %s is not listed", fset.Position(d.Pos), d.Name, d.Room))
			continue
		}
		names := quoted.FindAllStringSubmatch(fillers, -1)
		if len(names) == 0 && !strings.Contains(fillers, "tests") {
			out = append(out, fmt.Sprintf("door %s names nobody who fills it", d.Name))
		}
		for _, n := range names {
			if why := uses.fills(n[1], d); why != "" {
				out = append(out, fmt.Sprintf("door %s: %s %s", d.Name, n[1], why))
			}
		}
	}
	for name := range rows {
		out = append(out, fmt.Sprintf("door %s is listed and is not there", name))
	}
	slices.Sort(out)
	return out
}

// use indexes the packages for checkDoors, by their last names: methods of their types, and
// every name after a dot or before a colon.
type use struct {
	methods map[string]map[string]bool // "pkg.Type" -> its own
	embeds  map[string]map[string]bool // "pkg.Type" -> "pkg.Type" of each embedded field
	names   map[string]map[string]bool // "pkg"
}

// has reports whether a type has the method, its own or an embedded one.
func (u use) has(typ, method string) bool {
	if u.methods[typ][method] {
		return true
	}
	for e := range u.embeds[typ] {
		if u.has(e, method) {
			return true
		}
	}
	return false
}

func usesOf(pkgs []Package) use {
	u := use{map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]map[string]bool{}}
	add := func(m map[string]map[string]bool, key, name string) {
		if m[key] == nil {
			m[key] = map[string]bool{}
		}
		m[key][name] = true
	}
	for _, p := range pkgs {
		short := p.Name[strings.LastIndex(p.Name, "/")+1:]
		for _, f := range p.Files {
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Recv != nil {
						add(u.methods, short+"."+typeName(n.Recv.List[0].Type), n.Name.Name)
					}
				case *ast.TypeSpec:
					if x, ok := n.Type.(*ast.StructType); ok {
						for _, f := range x.Fields.List {
							if e := typeName(f.Type); len(f.Names) == 0 && e != "" {
								add(u.embeds, short+"."+n.Name.Name, short+"."+e)
							}
						}
					}
				case *ast.SelectorExpr:
					add(u.names, short, n.Sel.Name)
				case *ast.KeyValueExpr:
					if x, ok := n.Key.(*ast.Ident); ok {
						add(u.names, short, x.Name)
					}
				}
				return true
			})
		}
	}
	return u
}

// fills says why filler does not fill d; "" if it does. A type has the methods of an interface; a
// room that fills a function uses its name.
func (u use) fills(filler string, d Door) string {
	if !strings.Contains(filler, ".") {
		if last := d.Name[strings.LastIndex(d.Name, ".")+1:]; u.names[filler] == nil {
			return "is no room"
		} else if len(d.Methods) == 0 && !u.names[filler][last] {
			return "does not use " + last
		}
		return ""
	}
	for _, m := range d.Methods {
		if !u.has(filler, m) {
			return "has no method " + m
		}
	}
	if u.methods[filler] == nil && u.embeds[filler] == nil {
		return "is no type with methods"
	}
	return ""
}

// TestDoorsFinds plants one mistake of each kind.
func TestDoorsFinds(t *testing.T) {
	r, err := Parse("room 1 low\nroom 7 high\nroom 9 wing")
	if err != nil {
		t.Fatal(err)
	}
	src := map[string]string{
		"low": `package low
type Work interface{ Do(int) }
// Less has a method less. *low.thing is one.
type Less interface{ Little() }
type thing struct{}
func (*thing) Little() {}
type WorkOptions struct{ Now func() }
type number interface{ ~int }
type hidden interface{ Do() }
type Source struct{ Wake func(); name func() }
var Make func() Work
func (c *Source) SetWake(f func()) {}
func (c *Source) Each(f func()) {}`,
		"high": `package high
type worker struct{ *doer }
type doer struct{}
func (*doer) Do(int) {}
func f(c *low.Source) { c.Wake = nil; c.SetWake(nil); low.Make = nil }`,
		"wing": "package wing\ntype Door interface{ Do() }",
	}
	fset := token.NewFileSet()
	var pkgs []Package
	for name, text := range src {
		p, err := ParseFiles(fset, name, []string{name + ".go"}, map[string]string{name + ".go": text})
		if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	const head = "x\n## Doors\n\n| door | what | who |\n|---|---|---|\n"
	right := []string{"| `low.Work` | x | `high.worker` |", "| `low.Source.Wake` | x | `high` |", "| `low.Make` | x | `high` |", "| `low.Source.SetWake` | x | `high`, later |"}
	row := func(i int, text string) []string {
		rows := slices.Clone(right)
		rows[i] = text
		return rows
	}
	for _, tt := range []struct {
		name string
		rows []string
		want string
	}{
		{"right", right, ""},
		{"missing", right[1:], "low.go:2:6: door low.Work of low is not listed"},
		{"gone", append(slices.Clone(right), "| `low.Old` | x | `high` |"), "door low.Old is listed and is not there"},
		{"twice", append(slices.Clone(right), right[0]), "door low.Work is listed twice"},
		{"no method", row(0, "| `low.Work` | x | `low.Source` |"), "door low.Work: low.Source has no method Do"},
		{"no type", row(0, "| `low.Work` | x | `high.nobody` |"), "door low.Work: high.nobody has no method Do"},
		{"not used", row(1, "| `low.Source.Wake` | x | `wing` |"), "door low.Source.Wake: wing is no room"},
		{"nobody", row(1, "| `low.Source.Wake` | x | somebody |"), "door low.Source.Wake names nobody who fills it"},
	} {
		got := strings.Join(checkDoors(r, fset, pkgs, head+strings.Join(tt.rows, "\n")+"\n"), "\n")
		if got != tt.want {
			t.Errorf("%s: have %q want %q", tt.name, got, tt.want)
		}
	}
}

// An interface that says who is one is believed only if that is so, on a lower floor; an interface
// without a name is refused.
func TestDoorsBelow(t *testing.T) {
	r, err := Parse("room 1 low\nroom 7 high")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ low, want string }{
		{"// A is B's; *low.yes is one.\ntype A interface{ Do() }", ""},
		{"// A is B's; *low.no is one.\ntype A interface{ Do() }", "low.go:5:6: low.A says that low.no is one, which has no method Do"},
		{"// A is B's; *high.yes is one.\ntype A interface{ Do() }", "low.go:5:6: low.A says that high.yes is one, which is of a higher room"},
		{"func f(x any) { _, _ = x.(any) }", ""},
		{"func f(x any) { _ = x.(interface{ Do() }) }", "low.go:4:21: an assertion to an interface without a name is a door that is not listed"},
	} {
		fset := token.NewFileSet()
		var pkgs []Package
		for name, text := range map[string]string{
			"low":  "package low\ntype yes struct{}; func (*yes) Do() {}\ntype no struct{}; func (*no) Not() {}\n" + tt.low,
			"high": "package high\ntype yes struct{}; func (*yes) Do() {}",
		} {
			p, err := ParseFiles(fset, name, []string{name + ".go"}, map[string]string{name + ".go": text})
			if err != nil {
				t.Fatal(err)
			}
			pkgs = append(pkgs, p)
		}
		if got := strings.Join(checkDoors(r, fset, pkgs, ""), "\n"); got != tt.want {
			t.Errorf("%s\nhave %q want %q", tt.low, got, tt.want)
		}
	}
}
