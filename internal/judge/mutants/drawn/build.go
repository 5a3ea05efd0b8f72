package drawn

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Env is the variable that says which fault is on, by its number in the build. With
// EnvReached set too, sites that are reached append their numbers to the file it names.
const (
	Env        = "BTRLAB_FAULT"
	EnvReached = "BTRLAB_FAULT_REACHED"
)

// switches is the file that every changed package gets.
const switches = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	faultOn, _   = strconv.Atoi(os.Getenv("` + Env + `"))
	faultReached = os.Getenv("` + EnvReached + `")
	faultMu      sync.Mutex
	faultSeen    = map[int]bool{}
)

func faultIs(n int) bool {
	if faultReached != "" {
		faultReach(n)
	}
	return n == faultOn
}

func faultReach(n int) {
	faultMu.Lock()
	defer faultMu.Unlock()
	if faultSeen[n] {
		return
	}
	faultSeen[n] = true
	if f, err := os.OpenFile(faultReached, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err == nil {
		f.WriteString(strconv.Itoa(n) + "\n")
		f.Close()
	}
}

func faultPick[T any](n int, a, b T) T {
	if faultIs(n) {
		return b
	}
	return a
}
`

// Binary is a compiled test binary.
type Binary struct {
	Pkg  string // as go test takes it, ./internal/fs
	Path string
	dir  string // in which its tests run
}

// Dir is the package's folder, from the top of the module.
func (b *Binary) Dir() string { return strings.TrimPrefix(b.Pkg, "./") }

// Build plants the first n of the sites that build, numbers those and returns them, and the overlay
// that has them, for Link. dir gets all files; the tree at top is not changed.
func Build(dir, top string, sites []*Site, n int) ([]*Site, string, error) {
	sites = slices.Clone(sites)
	for {
		use := sites[:min(n, len(sites))]
		lines, overlay, err := plant(dir, top, use)
		if err != nil {
			return nil, "", err
		}
		bad, err := compile(top, overlay, use, lines)
		if err != nil || len(bad) == 0 {
			return use, overlay, err
		}
		sites = slices.DeleteFunc(sites, func(s *Site) bool { return bad[s] })
	}
}

// Link compiles the test binaries of pkgs, with what the overlay of Build has planted: as many with
// one command as have names of their own, so that they share what it compiles, and the processors.
func Link(dir, top, overlay string, pkgs []string) ([]Binary, error) {
	var bins []Binary
	for n := 0; len(pkgs) > 0; n++ {
		to := filepath.Join(dir, "bin"+strconv.Itoa(n)+"."+strconv.Itoa(len(pkgs)))
		if err := os.MkdirAll(to, 0o755); err != nil {
			return nil, err
		}
		args := []string{"test", "-c", "-vet=off", "-overlay", overlay, "-o", to + string(filepath.Separator)}
		names := map[string]bool{}
		var later []string
		for _, pkg := range pkgs {
			name := path.Base(pkg)
			if names[name] {
				later = append(later, pkg)
				continue
			}
			names[name] = true
			args = append(args, pkg)
			bins = append(bins, Binary{Pkg: pkg, Path: filepath.Join(to, name+".test"), dir: filepath.Join(top, pkg)})
		}
		c := exec.Command("go", args...)
		c.Dir = top
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s do not build: %w\n%s", strings.Join(pkgs, " "), err, out)
		}
		pkgs = later
	}
	return bins, nil
}

// span is the lines of a changed file that a site has.
type span struct {
	from, to int
	site     *Site
}

// plant writes the changed files, and the overlay that puts them in the place of the others. It
// returns the lines of the sites, by the name of the changed file, and the overlay's name.
func plant(dir, top string, sites []*Site) (map[string][]span, string, error) {
	replace := map[string]string{}
	lines := map[string][]span{}
	files := map[string][]*Site{}
	for i, s := range sites {
		s.nth = i + 1
		files[s.File] = append(files[s.File], s)
	}
	for file, in := range files {
		src, err := os.ReadFile(filepath.Join(top, file))
		if err != nil {
			return nil, "", err
		}
		slices.SortFunc(in, func(a, b *Site) int { return a.start - b.start })
		base := strings.ReplaceAll(file, "/", "_")
		var b strings.Builder
		at, line := 0, 1
		put := func(text string) { b.WriteString(text); line += strings.Count(text, "\n") }
		for _, s := range in {
			put(string(src[at:s.start]))
			from := line
			put(s.text(s.nth))
			lines[base] = append(lines[base], span{from, line, s})
			at = s.end
		}
		put(string(src[at:]))
		changed := filepath.Join(dir, base)
		if err := os.WriteFile(changed, []byte(b.String()), 0o644); err != nil {
			return nil, "", err
		}
		replace[filepath.Join(top, file)] = changed
		pkg := regexp.MustCompile(`(?m)^package (\w+)`).FindSubmatch(src)
		extra := filepath.Join(dir, strings.ReplaceAll(in[0].Dir(), "/", "_")+"_switches.go")
		if err := os.WriteFile(extra, fmt.Appendf(nil, switches, pkg[1]), 0o644); err != nil {
			return nil, "", err
		}
		replace[filepath.Join(top, in[0].Dir(), "zz_switches.go")] = extra
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return lines, name, os.WriteFile(name, text, 0o644)
}

// compile builds the changed packages and returns the sites that the compiler does not take.
func compile(top, overlay string, sites []*Site, lines map[string][]span) (map[*Site]bool, error) {
	args := []string{"build", "-gcflags=-e", "-overlay", overlay}
	for _, s := range sites {
		if pkg := "./" + s.Dir(); !slices.Contains(args, pkg) {
			args = append(args, pkg)
		}
	}
	c := exec.Command("go", args...)
	c.Dir = top
	out, err := c.CombinedOutput()
	if err == nil {
		return nil, nil
	}
	bad := map[*Site]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: `).FindAllSubmatch(out, -1) {
		line, _ := strconv.Atoi(string(m[2]))
		for _, s := range blame(lines[filepath.Base(string(m[1]))], line) {
			bad[s] = true
		}
	}
	if len(bad) == 0 {
		return nil, fmt.Errorf("the changed packages do not build: %w\n%s", err, out)
	}
	return bad, nil
}

// blame returns the sites that an error at the given line comes from: those of the line or, when it
// has none, all of the function that it is in. A break in an endless loop, say, leaves a function
// without its return, and the compiler names the closing brace. spans are those of one file, in
// order.
func blame(spans []span, line int) []*Site {
	var at, in []*Site
	fn := 0
	for _, s := range spans {
		if s.from <= line && line <= s.to {
			at = append(at, s.site)
		}
		if s.from <= line {
			fn = s.site.fn
		}
	}
	if len(at) > 0 {
		return at
	}
	for _, s := range spans {
		if s.site.fn == fn {
			in = append(in, s.site)
		}
	}
	return in
}
