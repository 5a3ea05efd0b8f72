package drawn

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"slices"
)

// Checker says whether packages still have types when a file of theirs is another one. Not for
// concurrent use.
type Checker struct {
	top     string
	exports map[string]string
	dirs    map[string]*listed
	read    map[string]*unchanged
}

// unchanged is a package as it stands: its files, and what it imports.
type unchanged struct {
	fset     *token.FileSet
	trees    map[string]*ast.File
	importer types.Importer
}

// NewChecker reads what the packages of the folders import, from the top of the module.
func NewChecker(top string, dirs []string) (*Checker, error) {
	all, err := list(top, dirs)
	if err != nil {
		return nil, err
	}
	c := &Checker{top: top, exports: map[string]string{}, dirs: map[string]*listed{}, read: map[string]*unchanged{}}
	for i := range all {
		p := &all[i]
		c.exports[p.ImportPath] = p.Export
		if rel, err := filepath.Rel(top, p.Dir); err == nil && !p.DepOnly {
			c.dirs[filepath.ToSlash(rel)] = p
		}
	}
	return c, nil
}

// Builds reports whether this system builds the file.
func (c *Checker) Builds(file string) bool {
	p := c.dirs[path.Dir(file)]
	return p != nil && slices.Contains(p.GoFiles, path.Base(file))
}

// Check gives the first error of the types of a package, one of whose files has another text.
func (c *Checker) Check(file string, text []byte) error {
	dir := path.Dir(file)
	p, u := c.dirs[dir], c.read[dir]
	if p == nil {
		return fmt.Errorf("%s is in no package that was asked for", file)
	}
	if u == nil {
		u = &unchanged{fset: token.NewFileSet(), trees: map[string]*ast.File{}}
		u.importer = p.importer(u.fset, c.exports)
		for _, f := range p.GoFiles {
			tree, err := parser.ParseFile(u.fset, filepath.Join(p.Dir, f), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			u.trees[f] = tree
		}
		c.read[dir] = u
	}
	changed, err := parser.ParseFile(u.fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	trees := []*ast.File{changed}
	for f, tree := range u.trees {
		if f != path.Base(file) {
			trees = append(trees, tree)
		}
	}
	conf := types.Config{Importer: u.importer}
	_, err = conf.Check(p.ImportPath, u.fset, trees, nil)
	return err
}
