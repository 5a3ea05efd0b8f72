package scenario

import (
	"testing"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
)

// The scenarios of names, attributes, shared extents and quotas are kept, and each notices that the
// operation which it is about is wrong: the catalogue of faults plants what makes them fail here.
func TestOperations(t *testing.T) {
	for _, c := range []struct{ scenario, policy string }{
		{"reflink-source", "unlocked"},
		{"reflink-source", "range-lock"},
		{"reflink-write", "unlocked"},
		{"reflink-truncate", "locked"},
		{"reflink-fsync", "fsync-5.18"},
		{"reflink-snapshot", "locked"},
		{"link-fsync", "fsync-5.18"},
		{"unlink-fsync", "fsync-5.18"},
		{"unlink-write", "locked"},
		{"rename-over-write", "modern"},
		{"chmod-fsync", "fsync-5.18"},
		{"setxattr-fsync", "fsync-5.18"},
		{"setxattr-snapshot", "locked"},
		{"quota-limit", "modern"},
		{"direct-append", "locked"},
	} {
		s, err := Lookup(c.scenario)
		must(t, err)
		r, err := Run(s, policy.MustParse(c.policy), Options{Config: func(x *explore.Config) { x.Schedules = 120 }})
		must(t, err)
		if r.Verdict == explore.Violated {
			t.Errorf("%s under %s: %s, schedule %q", c.scenario, c.policy, r.Violation, r.Schedule)
		}
	}
}

// An attribute has a value that is not replaced: by a set that began after it had returned, and
// that is durable if the power was cut. Two sets that overlap may leave either.
func TestExplained(t *testing.T) {
	chmod := func(value string, start, end int64) set { return set{OpChmod, value, start, end} }
	two, overlap := []set{chmod("600", 1, 2), chmod("640", 3, 4)}, []set{chmod("600", 1, 4), chmod("640", 3, 5)}
	open := []set{chmod("600", 1, 2), chmod("640", 3, oracle.Never)}
	at := func(start, end int64) []oracle.Sync { return []oracle.Sync{{Start: start, End: end}} }
	for _, c := range []struct {
		sets  []set
		have  string
		syncs []oracle.Sync
		at    int64
		want  bool
	}{
		{two, "640", nil, 9, true},
		{two, "600", nil, 9, false},
		{two, "644", nil, 9, false},
		{two, "777", nil, 9, false},
		{overlap, "600", nil, 9, true},
		{overlap, "640", nil, 9, true},
		{overlap, "644", nil, 9, false},
		{two, "600", at(3, 4), 4, true},  // the second had not returned when the fsync began
		{two, "640", at(3, 4), 4, true},  // it may be there nevertheless
		{two, "644", at(3, 4), 4, false}, // the first is durable
		{two, "644", at(1, 2), 2, true},
		{two, "640", at(1, 2), 2, false}, // it began after the power cut
		{open, "600", at(5, 6), 6, true},
		{open, "640", at(5, 6), 6, true},
	} {
		if have := explained(c.sets, OpChmod, "644", c.have, c.syncs, c.at); have != c.want {
			t.Errorf("%v, durable by %v at %d: %q explained %v want %v", c.sets, c.syncs, c.at, c.have, have, c.want)
		}
	}
}

// The versions of names: a link adds one, an unlink takes one away, a rename does both.
func TestVersions(t *testing.T) {
	r := &run{}
	r.first.start(FileName, nil, 0, 0, oracle.History{})
	a := &r.first
	r.names = []naming{{kind: OpLink, from: "/file", to: "/third"}, {kind: OpUnlink, from: "/file"}, {kind: OpRename, from: "/third", to: "/fourth"}}
	want := []versionOf{{"/file": a}, {"/file": a, "/third": a}, {"/third": a}, {"/fourth": a}}
	have := r.versions()
	if len(have) != len(want) {
		t.Fatalf("%d versions, want %d", len(have), len(want))
	}
	for i := range want {
		if len(have[i]) != len(want[i]) {
			t.Errorf("version %d has the names %v, want %v", i, have[i], want[i])
		}
		for name := range want[i] {
			if have[i][name] != a {
				t.Errorf("version %d lacks %s", i, name)
			}
		}
	}
}

// A reflink is entered into the history of its source as what it has read there: without it no rule
// is broken by a reflink that got a part of a write.
func TestReflinkIsRead(t *testing.T) {
	s, err := Lookup("reflink-source")
	must(t, err)
	reads := 0
	n := s.WithEnd(func(h *oracle.History) error {
		for _, o := range h.Ops {
			if o.Kind == oracle.Read && len(o.See) > 0 && (o.See[0].From == 2 || o.See[0].From == oracle.Initial) {
				reads++
			}
		}
		return nil
	})
	_, err = Run(n, policy.MustParse("locked"), Options{Config: func(x *explore.Config) { x.Schedules = 40 }})
	must(t, err)
	if reads == 0 {
		t.Error("no reflink has read its source")
	}
}
