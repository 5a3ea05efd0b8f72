package handout

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"btrlab/internal/study/course"
)

// An autograder is what Gradescope takes as a zip: setup.sh, which it runs once, run_autograder,
// which it runs for each submission, and beside them the part of a handout that grading one lab
// needs: the packages of the grader and of the program that is built of a submission, the lab's
// folder, and in vendor the packages of other modules, so that nothing is fetched when a submission
// is graded.

//go:embed autograder/setup.sh
var setupText string

//go:embed autograder/run_autograder
var runText string

// AutograderOptions are the choices of a teacher.
type AutograderOptions struct {
	// go1.N.linux-ARCH.tar.gz; nil is downloaded by setup.sh where the image has no Go
	Go      []byte
	Student string        // see course.Autograder
	Limit   time.Duration // see course.Options
}

// goSums are the SHA-256 of the archives of Go that setup.sh may download, by version and
// architecture of Linux, as they are published beside them.
var goSums = map[string]map[string]string{
	"1.26.0": {
		"amd64": "aac1b08a0fb0c4e0a7c1555beb7b59180b05dfc5a3d62e40e9de90cd42f88235",
		"arm64": "bd03b743eb6eb4193ea3c3fd3956546bf0e3ca5b7076c8226334afe6b75704cd",
	},
}

const autograderCommand = "./cmd/btrlab-autograder"

// Autograder is the files of the autograder of a lab, by path, of the handout files of the clone at
// root. The packages are those of the working tree, whose files must be committed.
func Autograder(root string, l *course.Lab, files []File, o AutograderOptions) ([]File, error) {
	needs := l.Needs()
	list, err := packages(root, append([]string{autograderCommand}, needs...))
	if err != nil {
		return nil, err
	}
	handed := map[string]File{}
	for _, f := range files {
		handed[f.Path] = f
	}
	var out []File
	for _, p := range list {
		if p.Module == nil || !p.Module.Main {
			continue
		}
		rel, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		for _, name := range p.files() {
			name = path.Join(filepath.ToSlash(rel), name)
			f, ok := handed[name]
			if !ok {
				return nil, fmt.Errorf("%s is not in the last commit, or not handed out: the autograder needs it", name)
			}
			out = append(out, f)
		}
	}
	for _, f := range files {
		if dir := "labs/" + l.Folder + "/"; strings.HasPrefix(f.Path, dir) || f.Path == "go.mod" || f.Path == "LICENSE" {
			out = append(out, f)
		}
	}
	vendored, err := vendor(root, list)
	if err != nil {
		return nil, err
	}
	out = append(out, vendored...)
	mod, err := goMod(root)
	if err != nil {
		return nil, err
	}
	sums := goSums[mod.Go]
	if sums == nil && o.Go == nil {
		return nil, fmt.Errorf("go.mod wants Go %s, and the sum of its archive is not known here: take one along with --go", mod.Go)
	}
	flags := fmt.Sprintf("-limit %v", o.Limit)
	if o.Student != "" {
		flags += " -student " + o.Student
	}
	fill := strings.NewReplacer("@GO@", mod.Go, "@SUM@", fmt.Sprintf("%x", sha256.Sum256(o.Go)), "@AMD64@", sums["amd64"], "@ARM64@", sums["arm64"], "@NEEDS@", strings.Join(needs, " "), "@FLAGS@", fmt.Sprintf("%s %d", flags, l.N))
	out = append(out, File{"setup.sh", true, []byte(fill.Replace(setupText))}, File{"run_autograder", true, []byte(fill.Replace(runText))})
	if o.Go != nil {
		out = append(out, File{Path: "go.tar.gz", Data: o.Go})
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(out, func(a, b File) bool { return a.Path == b.Path }), nil
}

// goPackage has go list's fields of a package.
type goPackage struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct {
		Path, Version, Dir, GoVersion string
		Main                          bool
	}
	GoFiles, IgnoredGoFiles, SFiles, HFiles, EmbedFiles []string
}

// files are those that a build on any system may need.
func (p *goPackage) files() []string {
	return slices.DeleteFunc(slices.Concat(p.GoFiles, p.IgnoredGoFiles, p.SFiles, p.HFiles, p.EmbedFiles), func(name string) bool {
		return strings.HasSuffix(name, "_test.go")
	})
}

// packages lists the packages and all that they import, but for the standard library, as they are
// on Linux.
func packages(root string, paths []string) ([]*goPackage, error) {
	c := goTool(root, append([]string{"list", "-deps", "-json=ImportPath,Dir,Standard,Module,GoFiles,IgnoredGoFiles,SFiles,HFiles,EmbedFiles"}, paths...)...)
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	b, err := output(c)
	if err != nil {
		return nil, err
	}
	var list []*goPackage
	for d := json.NewDecoder(bytes.NewReader(b)); d.More(); {
		p := &goPackage{}
		if err := d.Decode(p); err != nil {
			return nil, err
		}
		if !p.Standard {
			list = append(list, p)
		}
	}
	return list, nil
}

// goModule has go mod edit's fields of go.mod.
type goModule struct {
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct{}
}

func goMod(root string) (*goModule, error) {
	b, err := output(goTool(root, "mod", "edit", "-json"))
	if err != nil {
		return nil, err
	}
	m := &goModule{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, err
	}
	if len(m.Replace) > 0 {
		return nil, errors.New("go.mod replaces a module: the autograder cannot take it along")
	}
	return m, nil
}

// vendor is the folder of that name with the packages of other modules in list, and their licences.
//
// The go command wants every module that go.mod requires in modules.txt, but only packages that are
// imported.
func vendor(root string, list []*goPackage) ([]File, error) {
	mod, err := goMod(root)
	if err != nil {
		return nil, err
	}
	of := map[string][]*goPackage{}
	for _, p := range list {
		if p.Module != nil && !p.Module.Main {
			of[p.Module.Path] = append(of[p.Module.Path], p)
		}
	}
	var out []File
	var index bytes.Buffer
	slices.SortFunc(mod.Require, func(a, b struct{ Path, Version string }) int { return strings.Compare(a.Path, b.Path) })
	for _, r := range mod.Require {
		fmt.Fprintf(&index, "# %s %s\n", r.Path, r.Version)
		used := of[r.Path]
		if len(used) == 0 {
			fmt.Fprintln(&index, "## explicit")
			continue
		}
		m := used[0].Module
		fmt.Fprintf(&index, "## explicit; go %s\n", m.GoVersion)
		// LICENSE, LICENCE, COPYING
		licences, err := filepath.Glob(filepath.Join(m.Dir, "[LC][IO][CP][EY]*"))
		if err != nil {
			return nil, err
		}
		for _, f := range licences {
			if out, err = add(out, path.Join("vendor", m.Path, filepath.Base(f)), f); err != nil {
				return nil, err
			}
		}
		for _, p := range used {
			fmt.Fprintln(&index, p.ImportPath)
			for _, name := range p.files() {
				if out, err = add(out, path.Join("vendor", p.ImportPath, name), filepath.Join(p.Dir, name)); err != nil {
					return nil, err
				}
			}
		}
	}
	return append(out, File{Path: "vendor/modules.txt", Data: index.Bytes()}), nil
}

// add reads a file of the host. A folder is left out.
func add(l []File, name, host string) ([]File, error) {
	if st, err := os.Stat(host); err != nil || st.IsDir() {
		return l, err
	}
	b, err := os.ReadFile(host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w; want the modules of go.mod downloaded: go mod download", name, err)
	}
	return append(l, File{Path: name, Data: b}), err
}

func goTool(root string, args ...string) *exec.Cmd {
	c := exec.Command("go", args...)
	c.Dir = root
	return c
}

// output returns the output of a command; its standard error is in the error.
func output(c *exec.Cmd) ([]byte, error) {
	var wrong bytes.Buffer
	c.Stderr = &wrong
	b, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(c.Args[:2], " "), err, strings.TrimSpace(wrong.String()))
	}
	return b, nil
}
