package own

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"btrlab/internal/policy"
	"btrlab/internal/prose"
)

//go:embed templates
var templates embed.FS

// Presets are the presets that a template may begin with.
func Presets() []string { return policy.Names()[:len(policy.Presets)] }

func part(name string) string {
	b, err := templates.ReadFile("templates/" + name + ".txt")
	if err != nil {
		return ""
	}
	return string(b)
}

// notInNames is what a package's name must not have.
var notInNames = regexp.MustCompile(`[^a-z0-9]`)

// packageOf is the package's name of a policy.
func packageOf(name string) string {
	pkg := notInNames.ReplaceAllString(strings.ToLower(name), "")
	if pkg == "" || pkg[0] >= '0' && pkg[0] <= '9' || pkg == "kit" {
		pkg = "own" + pkg
	}
	return pkg
}

// head is the first sentence of a template's package comment.
func head(name, preset string) string {
	p := policy.MustParse(preset)
	return fmt.Sprintf("Package %s is policy %s (%s), as the steps of a policy of one's own.", packageOf(name), p.Name, p.About)
}

// fromTemplate is the preset whose template begins with about, empty if none does: then somebody
// has said what the policy is.
func fromTemplate(name, about string) string {
	for _, preset := range Presets() {
		if about == firstSentence(head(name, preset)+" ") {
			return preset
		}
	}
	return ""
}

// Template is Go of a policy of the given name that does what the preset does, and
// compiles. The error says which presets there are.
func Template(name, preset string) ([]byte, error) {
	write := part(preset)
	if write == "" {
		return nil, fmt.Errorf("bad preset, have %q want one of %s", preset, prose.List(Presets()))
	}
	rest := part("rest-" + preset)
	if rest == "" {
		rest = part("rest")
	}
	pkg := packageOf(name)
	doc := prose.Fill(fmt.Sprintf("%s Change it.\n\n"+
		"btrlab policy test explores it in every scenario, cuts the power, compares it with every preset and writes a page. "+
		"The flag --policy-dir, with its folder, gives it to the other verbs by its name, %s.\n\n"+
		"What an operation may do is in package kit: go doc ./labs/kit Policy.", head(name, preset), name), 97)
	var b strings.Builder
	for line := range strings.Lines(doc) {
		b.WriteString(strings.TrimRight("// "+line, " \n") + "\n")
	}
	b.WriteString(strings.Replace(part("head"), "PACKAGE", pkg, 1))
	return []byte(b.String() + write + rest + part("foot")), nil
}

// Make makes a folder with a policy: Go that begins as the preset, with the preset's switches for
// what the Go does not do, or if toggles is set a TogglesFile with that. What is there stays. An
// error is about the arguments, or an *os.PathError.
func Make(dir, preset, toggles string) error {
	at, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	name := filepath.Base(at)
	if err := policy.Nameable(name); err != nil {
		return err
	}
	if toggles != "" {
		if _, err := policy.Parse(toggles); err != nil {
			return err
		}
		return write(dir, TogglesFile, "# What this policy is about, in a line.\n"+toggles+"\n")
	}
	code, err := Template(name, preset)
	if err != nil {
		return err
	}
	if err := write(dir, "policy.go", string(code)); err != nil {
		return err
	}
	return write(dir, TogglesFile, "# Direct I/O, clones and what else policy.go does not do. The Go throttles writers itself, and its fsync commits.\n"+
		preset+goSwitches+"\n")
}

// write makes a file, and its folder, that are not there.
func write(dir, name, text string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
