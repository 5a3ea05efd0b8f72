package grade

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"btrlab/internal/iopath"
	"btrlab/internal/sched"
	"btrlab/labs/kit"
)

// filePolicy makes an iopath.FilePolicy of a student's policy.
type filePolicy struct{ run kit.PolicyRunner }

var _ iopath.FilePolicy = filePolicy{}

func (p filePolicy) Write(t *sched.Task, w iopath.WriteSteps) error   { return p.run.Write(t, w) }
func (p filePolicy) Read(t *sched.Task, r iopath.ReadSteps)           { p.run.Read(t, r) }
func (p filePolicy) Truncate(t *sched.Task, x iopath.TruncateSteps)   { p.run.Truncate(t, x) }
func (p filePolicy) Fallocate(t *sched.Task, x iopath.FallocateSteps) { p.run.Fallocate(t, x) }
func (p filePolicy) Fsync(t *sched.Task, x iopath.FsyncSteps)         { p.run.Fsync(t, x) }

// writePolicy is a policy of writes alone.
type writePolicy func(t *sched.Task, w iopath.WriteSteps) error

func (p writePolicy) Write(t *sched.Task, w iopath.WriteSteps) error { return p(t, w) }

// writesBy makes each file's policy of write.
func writesBy(write writePolicy) func() iopath.WritePolicy {
	return func() iopath.WritePolicy { return write }
}

// filePolicy makes the student's policy of each file as the file system takes it: of writes in labs
// 3 and 6, of all operations in lab 12; nil is none.
func (s *Student) filePolicy() func() iopath.WritePolicy {
	switch {
	case s.Policy != nil:
		return func() iopath.WritePolicy { return filePolicy{kit.PolicyRunner{Policy: s.Policy(), Watch: s.watch}} }
	case s.Locking.Write != nil:
		return writesBy(s.Locking.write)
	case s.Waits != nil:
		return writesBy(func(t *sched.Task, w iopath.WriteSteps) error { return kit.RunWaits(s.Waits, t, w) })
	}
	return nil
}

// ownBase is the policy of a file system with a policy of the student's: what does not go by the
// steps of the kit follows it. Dirty throttling is the student's, and so is not in a batch.
const ownBase = "locked+BALANCE_OUTSIDE" + commits

// ownSchedules bounds each pass of each search of lab 12, so that all of them together take less
// than a minute.
const ownSchedules = 200

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

// policyWorkloads are lab 12's: every scenario of the matrix that goes by the steps of the kit,
// then what the policy costs.
func policyWorkloads() []workload {
	var l []workload
	for i := range families {
		f := &families[i]
		for _, name := range f.scenarios {
			s := *must(name)
			if len(s.Switch) > 0 { // where the student's own locks are, tasks are switched as well
				s.Switch = slices.Concat(s.Switch, kit.Classes())
			}
			l = append(l, workload{name: name, asks: s.About, family: &f.family, policy: ownBase, scenario: &s, limit: ownSchedules})
		}
		for k, name := range f.far {
			i := slices.IndexFunc(l, func(w workload) bool { return w.name == name })
			w := l[i]
			w.name = "far-" + name
			w.scenario = w.scenario.Far(w.name, jobs[(i+k)%2].size-w.scenario.File.Size)
			w.asks = w.scenario.About
			l = append(l, w)
		}
	}
	for i := range jobs {
		j := &jobs[i]
		l = append(l, workload{name: j.name, asks: j.asks(), points: j.points, measure: j.measure})
	}
	return l
}

// The student's own text: the sections that it has, and how much each must say at least, in
// characters.
var textSections = []string{"Idea", "Invariants", "What it is good for", "What it costs", "What I could not show"}

const (
	textRowName = "text"
	textPoints  = 10
	minSection  = 200
)

var comment = regexp.MustCompile(`(?s)<!--.*?-->`)

// sections are the parts of a report by their headings of the second level, without comments.
func sections(text string) map[string]string {
	m := map[string]string{}
	name := ""
	for line := range strings.Lines(comment.ReplaceAllString(text, "")) {
		if h, ok := strings.CutPrefix(line, "## "); ok {
			name = strings.TrimSpace(h)
			continue
		}
		m[name] += line
	}
	for k, v := range m {
		m[k] = strings.TrimSpace(v)
	}
	return m
}

// textRow asks whether the student's text is there; what it says is for the teacher to judge.
func textRow(path string) Row {
	r := Row{Name: textRowName, Asks: "your own report has its sections; the teacher reads them and gives the points", Teacher: textPoints}
	b, err := readHanded(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.Result = "no REPORT.md in the folder"
		return r
	case err != nil:
		r.Result = err.Error()
		return r
	}
	have := sections(string(b))
	var short []string
	for _, name := range textSections {
		if len(have[name]) < minSection {
			short = append(short, fmt.Sprintf("%q has %d characters", name, len(have[name])))
		}
	}
	if len(short) > 0 {
		r.Result = fmt.Sprintf("want at least %d characters in each section: %s", minSection, strings.Join(short, ", "))
		return r
	}
	r.Pass, r.Result = true, fmt.Sprintf("%d sections; up to %d points more are the teacher's, who reads them", len(textSections), textPoints)
	return r
}
