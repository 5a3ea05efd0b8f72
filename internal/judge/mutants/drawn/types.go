package drawn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listed is a package as go list says it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string // those that this system builds, without cgo
	ImportMap               map[string]string
	DepOnly                 bool
}

// list returns the packages of the given folders, and all that they import, with their types
// compiled.
func list(top string, dirs []string) ([]listed, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,ImportMap,DepOnly"}
	for _, d := range dirs {
		args = append(args, "./"+d)
	}
	c := exec.Command("go", args...)
	c.Dir = top
	var text bytes.Buffer
	c.Stderr = &text
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, text.Bytes())
	}
	var all []listed
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}

// source is a package with its types.
type source struct {
	names []string // of the files, from the top of the module
	texts [][]byte
	trees []*ast.File
	fset  *token.FileSet
	pkg   *types.Package
	info  *types.Info
}

// load reads a package; exports has the files with the types of those that it imports.
func (p *listed) load(top string, exports map[string]string) (*source, error) {
	s := &source{fset: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{}, Scopes: map[ast.Node]*types.Scope{}}}
	for _, f := range p.GoFiles {
		name := filepath.Join(p.Dir, f)
		src, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(top, name)
		if err != nil {
			return nil, err
		}
		tree, err := parser.ParseFile(s.fset, name, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.names, s.texts, s.trees = append(s.names, filepath.ToSlash(rel)), append(s.texts, src), append(s.trees, tree)
	}
	conf := types.Config{Importer: p.importer(s.fset, exports)}
	var err error
	s.pkg, err = conf.Check(p.ImportPath, s.fset, s.trees, s.info)
	return s, err
}

// importer gives the types of what the package imports, from the files of exports.
func (p *listed) importer(fset *token.FileSet, exports map[string]string) types.Importer {
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if to := p.ImportMap[path]; to != "" {
			path = to
		}
		return os.Open(exports[path])
	})
}

// typeText is a type as the file writes it; ok is false if it cannot name it.
func (f *finder) typeText(t types.Type) (text string, ok bool) {
	ok = true
	text = types.TypeString(t, func(p *types.Package) string {
		if p == f.src.pkg {
			return ""
		}
		for _, i := range f.tree.Imports {
			if i.Name == nil && strings.Trim(i.Path.Value, `"`) == p.Path() {
				return p.Name()
			}
		}
		ok = false
		return ""
	})
	return text, ok
}
