package judges

import (
	"slices"

	"btrlab/internal/iopath"
	"btrlab/internal/module"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/labs/kit"
)

// Policy is lab 12: a policy of one's own.
type Policy struct {
	New func() kit.Policy
	// Profile, if set, gets the waits of what is measured.
	Profile LockProfile
}

// About says what the lab is.
func (Policy) About() *About {
	return &About{N: 12, Folder: "12-capstone", Title: "A policy of one's own", Minutes: 240, File: "policy.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath, "cmp", "fmt", "math", "slices", "sort"}, Entry: "New", Shared: true,
			Want: "func New() *Policy, which has Write, Read, Truncate, Fallocate and Fsync (t *kit.Task, and a pointer to the kit's type of the operation)"},
			"judges.Policy{New: func() kit.Policy { return student.New() }, Profile: profile.NewLocks()}",
			sandbox.KitPath, module.Path+"/internal/measure/profile"),
		Essay: &Essay{File: "REPORT.md", Points: 10, least: 200,
			Sections: []string{"Idea", "Invariants", "What it is good for", "What it costs", "What I could not show"}}}
}

// lab is the student's policy as the file system takes it. watch, if set, is put between its
// operations and their locks.
func (l Policy) lab(watch func(iopath.FileSteps) iopath.FileSteps) iopath.Lab {
	return iopath.Lab{File: func() iopath.FilePolicy { return kit.PolicyRunner{Policy: l.New(), Watch: watch} }}
}

// labBase is the policy of a file system with a policy of the student's: what does not go by the
// steps of the kit follows it. Dirty throttling is the student's, and so is not in a batch.
const labBase = "locked+BALANCE_OUTSIDE" + commits

// labSchedules bounds each pass of each search of lab 12, so that all of them together take less
// than a minute.
const labSchedules = 200

// families are the rows of lab 12's scenarios. Every scenario of the matrix whose operations go by
// the steps of the kit is in one.
var families = []struct {
	family
	scenarios []string
	far       []string // those that are tried as well in files as big as the measured ones
}{
	{family{"truncate", "writers, readers and writeback with a truncate: what was cut is gone, and i_size stays", 10}, []string{
		"truncate-race", "truncate-into", "truncate-above", "truncate-grow", "two-writers-truncate", "truncate-rewrite",
		"long-write-truncate", "truncate-writeback", "grow-writeback", "truncate-fsync"}, []string{"truncate-race", "two-writers-truncate"}},
	{family{"writers", "two writers: no write is mixed into another, and none gets lost at the end of the file", 10}, []string{
		"two-writers-same", "two-writers-nested", "two-writers-overlap", "two-writers-disjoint", "two-writers-page", "two-writers-eof",
		"writer-eof-inside", "two-writers-extend", "two-appends", "page-and-extent"}, []string{"two-writers-same", "two-appends"}},
	{family{"direct", "direct reads and writes, which keep the rules of Linux 4.17, beside yours", 6}, []string{
		"direct-reader", "direct-buffered", "direct-readahead", "direct-truncate", "direct-read-truncate", "direct-punch", "direct-grow", "direct-fsync",
		"direct-dsync"}, []string{"direct-truncate", "direct-buffered"}},
	{family{"holes", "holes and allocations beside writers and writeback", 6}, []string{
		"writer-punch", "long-write-punch", "writer-fallocate", "punch-writeback", "prealloc-punch"}, []string{"long-write-punch"}},
	{family{"readers", "a reader sees each page as it was before a write or after it", 4}, []string{
		"writer-reader", "reader-writeback", "mmap-source", "short-copy"}, []string{"writer-reader"}},
	{family{"writeback", "writeback of what is being overwritten: the device gets stable pages", 6}, []string{
		"stable-pages", "ordered-retry", "page-state-wait", "nocow-rewrite", "append-writeback", "nocow-snapshot", "snapshot-writeback"}, []string{"stable-pages"}},
	{family{"fsync", "what fsync has promised is there after a power cut", 4}, []string{
		"fsync-writer", "fsync-writeback", "page-state-fsync", "nocow-fsync"}, []string{"fsync-writer"}},
	{family{"space", "space and dirty pages run short: nobody waits for ever, nothing leaks", 4}, []string{
		"enospc", "balance-dirty", "range-and-space"}, []string{"range-and-space"}},
}

// Workloads are every scenario of the matrix that goes by the steps of the kit,
// then what the policy costs.
func (l Policy) Workloads() []Workload {
	var rows []Workload
	for i := range families {
		f := &families[i]
		for _, name := range f.scenarios {
			s := withLocks(name)
			rows = append(rows, Workload{name: name, asks: s.About, family: &f.family, policy: labBase, scenario: s, limit: labSchedules})
		}
		for k, name := range f.far {
			i := slices.IndexFunc(rows, func(w Workload) bool { return w.name == name })
			w := rows[i]
			w.name = "far-" + name
			w.scenario = w.scenario.Far(w.name, jobs[(i+k)%2].size-w.scenario.File.Size)
			w.asks = w.scenario.About
			rows = append(rows, w)
		}
	}
	for i := range jobs {
		j := &jobs[i]
		rows = append(rows, Workload{name: j.name, asks: j.asks(), points: j.points, measure: func(clean bool, r *grade.Row) error { return j.measure(l, clean, r) }})
	}
	return with(l.lab(nil), rows)
}
