package scenario

import (
	"strings"
	"testing"

	"btrlab/internal/fs"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
)

// TestLogScenarios: the scenarios of an fsync that writes a log break by wrong orders of that log,
// each with the sentence about what is lost, and keep their rule without, in few schedules:
// TestMatrix searches more.
func TestLogScenarios(t *testing.T) {
	for _, c := range []struct{ scenario, wrong, want string }{
		{"log-writer", "WRONG_LOG_BEFORE_DATA", "what an fsync promised is not on the device"},
		{"log-writer", "WRONG_LOG_NO_SUMS", "not clean: csum.missing"},
		{"log-truncate", "WRONG_LOG_BEFORE_DATA", "what an fsync promised is not on the device"},
		{"log-punch", "WRONG_LOG_NO_HOLES", "what an fsync promised is not on the device"},
		{"log-punch-block", "WRONG_LOG_PUNCH_UNMARKED", "what an fsync promised is not on the device"},
		{"log-commit", "WRONG_LOG_BEFORE_DATA", "what an fsync promised is not on the device"},
		{"log-group", "WRONG_LOG_SHARE_EARLY", "what an fsync promised is not on the device"},
		{"log-rename", "WRONG_LOG_TAKEN_NAMES+WRONG_LOG_NO_CONFLICTS", "file exists"},
		{"log-rename-chain", "WRONG_LOG_TAKEN_NAMES", "after fsync and a crash the first file has 0 names"},
		{"log-rename-victim", "WRONG_LOG_BEFORE_DATA", "what an fsync promised is not on the device"},
		{"log-pin", "WRONG_LOG_NAMES_UNPINNED", "the first file has 0 names"},
		{"log-commit-files", "WRONG_LOG_UNATTACHED", "what an fsync promised is not on the device"},
	} {
		s, err := Lookup(c.scenario)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range []string{"fsync-5.18", "fsync-5.18+" + c.wrong} {
			p, err := policy.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Run(s, &p, Options{Config: func(cfg *explore.Config) { cfg.Schedules = 80 }})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s under %s: %s, %d schedules", c.scenario, spec, r.Verdict, r.Schedules)
			if broken := r.Verdict == explore.Violated; broken != strings.Contains(spec, "WRONG") || broken && !strings.Contains(r.Violation.String(), c.want) {
				t.Errorf("%s under %s: have %s %s, want %q", c.scenario, spec, r.Verdict, r.Violation, c.want)
			}
		}
	}
}

// TestLostName: a rename that no sync has made durable is there or not, whole. Once the file that
// it has moved was synced, its name is the new one; once the file that it has replaced was, that
// one has none.
func TestLostName(t *testing.T) {
	r := &run{}
	r.first.start(FileName, new(fs.File), 0, 0, oracle.History{})
	r.second.start(secondName, new(fs.File), 0, 0, oracle.History{})
	r.names = []naming{{kind: OpRename, from: secondName, to: FileName}}
	a, b, all := &r.first, &r.second, r.versions()
	before, after := versionOf{FileName: a, secondName: b}, versionOf{FileName: b}
	for _, c := range []struct {
		have  versionOf
		since map[*subject]int
		want  string
	}{
		{before, nil, ""},
		{after, nil, ""},
		{versionOf{FileName: b, secondName: b}, nil, "the second file has 2 names"},
		{versionOf{secondName: b}, nil, "/file is gone"},
		{versionOf{FileName: a}, nil, "the second file has 0 names"},
		{after, map[*subject]int{b: 1}, ""},
		{before, map[*subject]int{b: 1}, "/file is the first file"},
		{before, map[*subject]int{a: 1}, "the first file has 1 names"},
		{before, map[*subject]int{a: 0, b: 0}, ""},
	} {
		for range 4 { // maps have no order
			if have := r.lostName(c.have, all, c.since); have != c.want {
				t.Errorf("names %v, durable since %v: have %q want %q", c.have, c.since, have, c.want)
			}
		}
	}
}
