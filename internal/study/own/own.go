// Package own makes a folder of the user's a policy that every verb knows by its name.
//
// A folder has toggles.txt, a policy as --policy takes it, or Go with functions of the write path
// (the same that the labs ask for), or both: then the functions stand in the place of what the
// toggles order. Toggles alone are a name for a set of switches; Read and Folder.Add are enough. Go
// is checked by the rules of the labs and built into a program that is this one with the functions
// in it (Build); there Compiled.Add makes them a policy, before anything else runs.
package own

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btrlab/internal/data/inode"
	"btrlab/internal/iopath"
	"btrlab/internal/module"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/sandbox"
	"btrlab/labs/kit"
)

// TogglesFile is the file of a folder with the switches of its policy.
const TogglesFile = "toggles.txt"

// Switches are those of a folder that has Go and no TogglesFile: a kernel before the patches, where
// the policy throttles its writers itself, and an fsync commits, as the steps of the kit do.
const Switches = "locked" + goSwitches

// goSwitches are those of every folder with New.
const goSwitches = "+BALANCE_OUTSIDE!FSYNC_LOG"

// Functions are what a policy may do by itself; nil leaves it to the switches.
type Functions struct {
	New   func() kit.Policy // New() *Policy: the locks of a file, in every operation
	Write kit.WaitPath      // Write: the order of the steps of a buffered write
	// NewRangeLock() *Lock is the range lock of a file, for WRITE_RANGE_LOCK.
	NewRangeLock func() kit.RangeLocker
	Extent       kit.NowaitPath                        // Extent: an extent of a NOWAIT direct write
	Sectors      func(t *kit.Task, w *kit.SectorWrite) // Sectors: a direct write of sectors
	Put          kit.LogPath                           // Put: a file extent that goes into the log
}

// lab are the functions as the file system takes them.
func (f *Functions) lab() (l iopath.Lab) {
	if f.New != nil {
		l.File = func() iopath.FilePolicy { return kit.PolicyRunner{Policy: f.New()} }
	}
	if f.Write != nil {
		l.Write = func(t *sched.Task, w iopath.WriteSteps) error { return kit.RunWaits(f.Write, t, w) }
	}
	if f.NewRangeLock != nil {
		l.RangeLock = func() inode.RangeLocker { return kit.Locker{RangeLocker: f.NewRangeLock()} }
	}
	if f.Extent != nil {
		l.Nowait = f.Extent.Run
	}
	if f.Sectors != nil {
		l.Sectors = func(t *sched.Task, w iopath.SectorSteps) { kit.RunSectors(f.Sectors, t, w) }
	}
	if f.Put != nil {
		l.Item = f.Put.Run
	}
	return l
}

// entry is a function of a folder's Go.
type entry struct {
	name  string // as it is declared, and the field of Functions
	rules func() sandbox.Rules
	// value is the field's value, of the package %s.
	value string
}

// entries are the functions that a folder may have.
var entries = []entry{
	{"New", func() sandbox.Rules { return judges.Policy{}.About().Code.Rules }, "func() kit.Policy { return %s.New() }"},
	{"Write", func() sandbox.Rules {
		return alone(judges.Waits{}, "func Write(t *kit.Task, w *kit.WaitedWrite) error")
	}, "%s.Write"},
	{"NewRangeLock", func() sandbox.Rules {
		return alone(judges.RangeLock{}, "func NewRangeLock() *RangeLock, which has Lock and Unlock (t *kit.Task, start, end uint64)")
	}, "func() kit.RangeLocker { return %s.NewRangeLock() }"},
	{"Extent", func() sandbox.Rules {
		return alone(judges.Nowait{}, "func Extent(t *kit.Task, x *kit.NowaitExtent) error")
	}, "%s.Extent"},
	{"Sectors", func() sandbox.Rules {
		return alone(judges.Sectors{}, "func Sectors(t *kit.Task, w *kit.SectorWrite)")
	}, "%s.Sectors"},
	{"Put", func() sandbox.Rules { return alone(judges.LogItem{}, "func Put(t *kit.Task, x *kit.LogItem) error") }, "%s.Put"},
}

// alone are the rules of a lab for its function by the name that it has in a folder, without the
// answers of the lab's second half. Want is its declaration.
func alone(l judges.Lab, want string) sandbox.Rules {
	r := l.About().Code.Rules
	r.Want = want
	return r
}

// allowed are the packages that a policy may import.
var allowed = []string{sandbox.KitPath, "cmp", "errors", "fmt", "math", "slices", "sort"}

// FolderError says what is wrong with a folder, a line each.
type FolderError struct {
	Dir   string
	Lines []string
}

func (e *FolderError) Error() string { return e.Dir + ": " + strings.Join(e.Lines, "; ") }

// Folder is a folder with a policy.
type Folder struct {
	Dir, Name string
	// Base is a policy as policy.Parse takes it; About is what the folder says of itself.
	Base, About string

	files   []sandbox.File // Go; none is a folder of toggles
	entries []*entry       // that the Go declares
}

// Compiled reports whether the folder has Go, and so must be built.
func (x *Folder) Compiled() bool { return len(x.files) > 0 }

// Read reads a folder. An error is a *FolderError, or the system's.
func Read(dir string) (*Folder, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	x := &Folder{Dir: dir, Name: filepath.Base(at)}
	wrong := func(format string, a ...any) (*Folder, error) {
		return nil, &FolderError{dir, []string{fmt.Sprintf(format, a...)}}
	}
	paths, err := sandbox.Sources(dir)
	if err != nil {
		return nil, err
	}
	var handed *sandbox.HandedError
	switch x.files, err = sandbox.ReadAll(paths); {
	case errors.As(err, &handed):
		return wrong("%v", handed)
	case err != nil:
		return nil, err
	}
	toggles, err := sandbox.Read(filepath.Join(dir, TogglesFile))
	switch {
	case errors.As(err, &handed):
		return wrong("%v", handed)
	case err == nil:
		if x.Base, x.About, err = parseToggles(toggles); err != nil {
			return wrong("%s: %v", TogglesFile, err)
		}
	case !os.IsNotExist(err):
		return nil, err
	case len(x.files) == 0:
		return wrong("have neither Go nor %s, want one: btrlab policy new makes such a folder", TogglesFile)
	default:
		x.Base = Switches
	}
	if err := x.declared(); err != nil {
		return nil, err
	}
	return x, nil
}

// parseToggles reads a TogglesFile: lines after # are about the policy, the other one is a policy
// as
// --policy takes it.
func parseToggles(text []byte) (spec, about string, err error) {
	sc := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		switch words, comment := strings.CutPrefix(line, "#"); {
		case line == "":
		case comment:
			about = strings.TrimSpace(about + " " + strings.TrimSpace(words))
		case spec != "":
			return "", "", fmt.Errorf("line %d: have a second policy, want one", n)
		default:
			if _, err := policy.Parse(line); err != nil {
				return "", "", fmt.Errorf("line %d: %w", n, err)
			}
			spec = line
		}
	}
	if sc.Err() == nil && spec == "" {
		return "", "", errors.New("have no policy, want one as --policy takes it: prewait+WRITE_RANGE_LOCK")
	}
	return spec, about, sc.Err()
}

// declared finds the entries of the Go and what it says of itself. What is no Go the check will
// say.
func (x *Folder) declared() error {
	if !x.Compiled() {
		return nil
	}
	fset := token.NewFileSet()
	found := map[string]bool{}
	for _, f := range x.files {
		file, err := parser.ParseFile(fset, f.Path, f.Data, parser.ParseComments)
		if err != nil {
			return &FolderError{x.Dir, []string{strings.ReplaceAll(err.Error(), filepath.Dir(f.Path)+string(filepath.Separator), "")}}
		}
		if file.Doc != nil {
			x.About = firstSentence(file.Doc.Text())
			if preset := fromTemplate(x.Name, x.About); preset != "" {
				x.About = fmt.Sprintf("begun from %s; the package comment does not say yet what it is about", preset)
			}
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				found[fn.Name.Name] = true
			}
		}
	}
	var names []string
	for i := range entries {
		names = append(names, entries[i].name)
		if found[entries[i].name] {
			x.entries = append(x.entries, &entries[i])
		}
	}
	if len(x.entries) == 0 {
		return &FolderError{x.Dir, []string{"have no function of a policy, want one of " + strings.Join(names, ", ")}}
	}
	return nil
}

// firstSentence is the first sentence of a package comment, without "Package name is" and the like.
func firstSentence(doc string) string {
	doc = strings.Join(strings.Fields(doc), " ")
	if rest, ok := strings.CutPrefix(doc, "Package "); ok {
		if _, after, ok := strings.Cut(rest, " is "); ok {
			doc = after
		}
	}
	s, _, _ := strings.Cut(doc, ". ")
	return strings.TrimSuffix(s, ".")
}

// Add makes a folder without Go a policy by its name.
func (x *Folder) Add() error { return add(x.Name, x.Base, x.About, &policy.Own{Dir: x.Dir}) }

func add(name, base, about string, own *policy.Own) error {
	p, err := policy.Parse(base)
	if err != nil {
		return err
	}
	own.Base, _, _ = strings.Cut(strings.ReplaceAll(base, "!", "+"), "+")
	p.Name, p.About, p.Own = name, about, own
	return policy.Add(p)
}

// check is what the rules of the labs do not allow in the folder's Go, a line each.
func (x *Folder) check(ctx context.Context, root string) (wrong []string, err error) {
	for _, e := range x.entries {
		r := e.rules()
		r.Entry, r.Allowed = e.name, allowed
		c, err := sandbox.Check(ctx, root, x.files, r)
		if err != nil {
			return nil, err
		}
		for _, line := range c.Bad {
			if !slices.Contains(wrong, line) {
				wrong = append(wrong, line)
			}
		}
	}
	return wrong, nil
}

// Compiled is a policy that was built into this program. It is what the text of Build makes.
type Compiled struct {
	Name, Base, About, Dir string
	Functions              Functions
}

// Add makes it a policy by its name.
func (c *Compiled) Add() error {
	base := c.Base
	if c.Functions.New != nil && !strings.Contains(base, "BALANCE_OUTSIDE") {
		base += "+BALANCE_OUTSIDE" // the policy throttles
	}
	return add(c.Name, base, c.About, &policy.Own{Dir: c.Dir, Lab: c.Functions.lab(), Classes: kit.Classes()})
}

// Build checks the Go of the folders and builds this program with it: a program whose main calls
// cli.MainWith. bin is its file, and remove deletes it. An error is a *FolderError, or about the
// tools.
func Build(ctx context.Context, root string, folders []*Folder) (bin string, remove func(), err error) {
	var packages []sandbox.Package
	for i, x := range folders {
		wrong, err := x.check(ctx, root)
		if err != nil {
			return "", func() {}, err
		}
		if len(wrong) > 0 {
			return "", func() {}, &FolderError{x.Dir, wrong}
		}
		packages = append(packages, sandbox.Package{Name: fmt.Sprintf("own%d", i), Files: x.files})
	}
	bin, remove, wrong, err := sandbox.Build(ctx, root, packages, func(paths []string) []byte { return program(folders, paths) })
	if err == nil && len(wrong) > 0 {
		dir := folders[0].Dir
		if len(folders) > 1 {
			dir = "the policies"
		}
		err = &FolderError{dir, wrong}
	}
	return bin, remove, err
}

// program is the text of a main for the folders, whose packages have the paths.
func program(folders []*Folder, paths []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "package main\n\nimport (\n\t\"os\"\n\n\t%q\n\t%q\n\t%q\n", module.Path+"/internal/cli", module.Path+"/internal/study/own", sandbox.KitPath)
	for i, path := range paths {
		fmt.Fprintf(&b, "\town%d %q\n", i, path)
	}
	b.WriteString(")\n\nvar _ kit.Policy\n\nfunc main() {\n\tos.Exit(cli.MainWith([]own.Compiled{\n")
	for i, x := range folders {
		fmt.Fprintf(&b, "\t\t{Name: %q, Base: %q, About: %q, Dir: %q, Functions: own.Functions{\n", x.Name, x.Base, x.About, x.Dir)
		for _, e := range x.entries {
			fmt.Fprintf(&b, "\t\t\t%s: %s,\n", e.name, fmt.Sprintf(e.value, fmt.Sprintf("own%d", i)))
		}
		b.WriteString("\t\t}},\n")
	}
	b.WriteString("\t}, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))\n}\n")
	return b.Bytes()
}
