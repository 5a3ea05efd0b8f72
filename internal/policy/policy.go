// Package policy says, as data, which locks an operation on a file takes and in which order it
// takes its steps. It is pure: an operation, facts about the inode and a Policy go in, a Plan comes
// out; the packages that carry out system calls ask for a plan and follow it.
//
// A Policy is a set of switches. Each is one published change, kept or refused, or a wrong order of
// the museum, and its Toggle says its source, the kernel function it changes and what shows its
// effect. A preset is a set of toggles with a name (Presets): an era of the kernel, or a proposal
// of the thread of seed 002.
//
// toggles.go has the switches and the one table that describes them, presets.go the sets with
// names, steps.go the orders of steps, space.go the modes of a reservation, plan.go what follows
// for an operation, contract.go what follows for its callers.
//
// Model: labs/reference 1 to 5, 7 and 11. Not among the toggles: CLEAN_DIRTY at the lock step,
// where kernels before 4.19 took a page's dirty mark off before the copy that may come short.
package policy

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"btrlab/internal/prose"
)

// Set is a set of switches; the zero value is empty.
type Set [2]uint64

// Of is the set of the given switches.
func Of(on ...Switch) (s Set) {
	for _, x := range on {
		s.Put(x, true)
	}
	return s
}

// Has reports whether x is in the set.
func (s *Set) Has(x Switch) bool { return s[x/64]>>(x%64)&1 != 0 }

// Wrong reports whether the wrong order x is in the set.
func (s *Set) Wrong(x Wrong) bool { return s.Has(Switch(x)) }

// Put takes x into the set or out of it.
func (s *Set) Put(x Switch, on bool) {
	s[x/64] &^= 1 << (x % 64)
	if on {
		s[x/64] |= 1 << (x % 64)
	}
}

// Or is the set of what is in either.
func (s Set) Or(o Set) Set { return Set{s[0] | o[0], s[1] | o[1]} }

// Without is the set without what is in o.
func (s Set) Without(o Set) Set { return Set{s[0] &^ o[0], s[1] &^ o[1]} }

// All yields the switches of the set in their order.
func (s *Set) All() iter.Seq[Switch] {
	return func(yield func(Switch) bool) {
		for x := range switches {
			if s.Has(x) && !yield(x) {
				return
			}
		}
	}
}

// Policy is a named set of switches. The zero value is the kernel of 2018 before seed 002 with no
// name.
type Policy struct {
	Name string
	// About is one line for people.
	About string
	Set

	// SetsizeSteps, unless it is zero, is the order of the steps of a shrinking setsize, whatever
	// SetsizeDrainFirst says. It has no toggle: labs/04-truncate-race fills it.
	SetsizeSteps SetsizeOrder
	// WriteSteps, unless it is zero, is the order of the steps of a write's batch, whatever the
	// toggles of dirty throttling say. It has no toggle: it is for labs.
	WriteSteps WriteOrder

	// Own is what a policy of somebody's own has beside its switches, nil for the others.
	Own *Own
}

// Parse reads a specification: the name of a preset, of Presets, NowaitPresets, UnalignedPresets or
// FsyncPresets, or of a policy that was Added, then any number of "+TOGGLE" and "!TOGGLE", which
// switch a toggle on and off: "unlocked+SETSIZE_DRAIN_FIRST". The result's Name is spec.
func Parse(spec string) (Policy, error) {
	name, rest := cutToggle(spec)
	all := All()
	i := slices.IndexFunc(all, func(p Policy) bool { return p.Name == name })
	if i < 0 {
		known := namesOf(all)
		if n := prose.Nearest(name, known); n != "" {
			return Policy{}, fmt.Errorf("unknown policy %q (did you mean %q?)", name, n)
		}
		return Policy{}, fmt.Errorf("unknown policy %q, want one of %s, or another of 'btrlab policy list'", name, strings.Join(Names(), ", "))
	}
	p := all[i]
	for rest != "" {
		on := rest[0] == '+'
		name, rest = cutToggle(rest[1:])
		x, ok := Find(name)
		if !ok {
			if n := nearest(name); n != "" {
				return p, fmt.Errorf("unknown toggle %q in policy %q (did you mean %q?)", name, spec, n)
			}
			return p, fmt.Errorf("unknown toggle %q in policy %q, btrlab policy list --all shows all", name, spec)
		}
		p.Put(x, on)
	}
	p.Name = spec
	return p, nil
}

// cutToggle cuts s before its first + or !.
func cutToggle(s string) (name, rest string) {
	if i := strings.IndexAny(s, "+!"); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// Toggle is the row of x in the table.
func (x Switch) Toggle() *Toggle { return &toggles[x] }

func (x Switch) String() string { return toggles[x].Name }

func (x Wrong) String() string { return Switch(x).String() }

// Wrong reports whether x is a wrong order.
func (x Switch) Wrong() bool { return x >= firstWrong }

// Switches yields the toggles, then the wrong orders.
func Switches() iter.Seq[Switch] {
	return func(yield func(Switch) bool) {
		for x := range switches {
			if !yield(x) {
				return
			}
		}
	}
}

// Find returns the switch with the name.
func Find(name string) (x Switch, ok bool) {
	i := slices.IndexFunc(toggles[:], func(t Toggle) bool { return t.Name == name })
	return Switch(max(i, 0)), i >= 0
}

// nearest is the name of the switch that name is most likely a slip of, "" when there is none.
func nearest(name string) string {
	var names []string
	for x := range switches {
		names = append(names, x.String())
	}
	return prose.Nearest(name, names)
}

// MustParse is Parse for specifications in code.
func MustParse(spec string) *Policy {
	p, err := Parse(spec)
	if err != nil {
		panic("policy: " + err.Error())
	}
	return &p
}

// On lists the names of the switches that are on.
func (p *Policy) On() (on []string) {
	for x := range p.All() {
		on = append(on, x.String())
	}
	return on
}

// Novalidate reports whether lockdep names an order of p in its first schedule. The file system
// takes extent ranges out of lockdep's checks then, so that the explorer can show the deadlock
// itself.
func (p *Policy) Novalidate() bool {
	return p.Wrong(WrongReserveUnderRange) || p.Wrong(WrongExtentBeforePage) || p.Wrong(WrongDirectReserveLate)
}
