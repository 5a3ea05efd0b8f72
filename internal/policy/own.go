package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Own is what a policy of somebody's own has beside its switches.
type Own struct {
	Dir  string // its folder
	Base string // the preset that its switches begin with
	// Lab is the iopath.Lab with its functions, which the file system calls in the place of what
	// the switches order; nil is a policy that is switches only.
	Lab any
	// Classes are the lock classes that its functions may use: where the explorer switches tasks,
	// beside the classes of a scenario.
	Classes []string
}

// added are the policies of somebody's own: at most a few, before anything else runs.
var added []Policy

// Nameable is an error if no policy of somebody's own may have the name.
func Nameable(name string) error {
	switch {
	case len(name) > 40 || name != strings.Map(inNames, name) || strings.Trim(name, "-._") != name || name == "":
		return fmt.Errorf("bad name of a policy, have %q want up to 40 letters, digits, dots, hyphens and underscores", name)
	case slices.ContainsFunc(All(), func(q Policy) bool { return q.Name == name }):
		return fmt.Errorf("bad name of a policy, have %q want another: there is one of that name", name)
	}
	return nil
}

// inNames drops what a name may not have: + and ! end a name in a specification.
func inNames(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r) {
		return r
	}
	return -1
}

// Add makes p a policy that Parse, All and Names know by its name, until the process ends. It is
// called before policies are parsed, by one task. The error is Nameable's.
func Add(p Policy) error {
	if err := Nameable(p.Name); err != nil {
		return err
	}
	added = append(added, p)
	return nil
}
