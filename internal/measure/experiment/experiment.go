// Package experiment compares locking policies: the same job, on the same file of the same image,
// under one policy after the other, in alternating rounds, and after every round every block is
// read back and judged.
package experiment

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"sync/atomic"

	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
)

// Rig is what Compare works on: an image with a test file. Its methods are called by one task.
type Rig interface {
	// Prepare makes the test file, NOCOW and preallocated, size bytes long, and leaves the image
	// closed.
	Prepare(t *sched.Task, size int64) error
	// Open opens the image under a policy.
	Open(t *sched.Task, policy string) (Session, error)
	// Check checks the image, which is not open, and says in a line each what it found.
	Check(t *sched.Task) (findings []string, err error)
}

// RawOpener is a Rig that can open the image past its latency model. Compare fills the file and
// reads it back so: neither is measured.
type RawOpener interface {
	OpenRaw(t *sched.Task, policy string) (Session, error)
}

// Session is an open image.
type Session interface {
	// File is the test file.
	File() fio.Target
	// Close makes everything durable and closes the image.
	Close(t *sched.Task) error
}

// Parts is a Session whose file is several, of one size, one after the other: each task of the job
// has one of its own.
type Parts interface {
	Parts() []fio.Target
}

// ErrUnchecked is Rig.Check's answer when there is nobody to check what is under the rig.
var ErrUnchecked = errors.New("not checked")

// Nowaiter is a Session that tries requests without waiting first: it knows how many, and how many
// of them answered EAGAIN.
type Nowaiter interface {
	Again() (again, tried uint64)
}

// Other is a row that is not a policy of the engine: the job, with the options of Set changed, on a
// rig of its own.
type Other struct {
	Name  string
	About string // for people
	Rig   Rig
	Open  string // what Rig.Open is given in the place of a policy; empty is Name
	Set   [][2]string
}

// Defaults of Options: six policies take less than a minute with them.
const (
	DefaultRounds   = 3
	DefaultRuntime  = 1000 // ms
	DefaultRamp     = 0.3  // ramp_time, as a part of the run time
	DefaultFileSize = 256 << 20
)

// Variant is a row of the engine: the job with some options changed, under a policy.
type Variant struct {
	Name   string
	About  string // for people; empty for a row that is only a policy
	Policy string
	Set    [][2]string // options of the job, as JobFile.Set takes them
	// Published is the iops that were published, PublishedMiB the MiB of a second where those were;
	// 0: none.
	Published, PublishedMiB float64
}

// PairRatio is how the iops of one row are to those of another, by round.
type PairRatio struct {
	Row string `json:"row"`
	To  string `json:"to"`
	stats.Versus
	// Published is the ratio of the published figures, if both were.
	Published float64 `json:"published,omitempty"`
}

// Options says what to compare.
type Options struct {
	// Job is the job file, already scaled (JobFile.Set). All its tasks run on the test file,
	// whatever filename it names. Block sizes must be multiples of 512 bytes.
	Job      *fio.JobFile
	Policies []string
	// Variants are the rows instead of Policies, if there are any. Baseline is the name of the row
	// that ratios are to, and Pairs are further ratios to show: a row's name and the name of the
	// row it is compared with.
	Variants []Variant
	Baseline string
	Pairs    [][2]string
	Rounds   int
	// Others are the rows after the policies. Two of them may share a rig.
	Others []Other
	// Files, if it is not 0, is how many files there are: one for each task of the job, which names
	// none. Their sessions are Parts.
	Files int
	// Device and Model name what is under the image, for the report.
	Device, Model string
	// NoPayload says that the rig keeps no file data: nothing is stamped and nothing read back.
	NoPayload bool
	// Progress, if set, is called about every 100 ms.
	Progress func(Progress)
	// Began and Ended, if set, are told when the tasks of a run begin and when they have ended.
	Began func(row string, round int, now int64)
	Ended func(now int64)
	// Stop, if set, ends the comparison early and cleanly when it becomes true; the result holds
	// what was done.
	Stop *atomic.Bool
}

// Progress is how far a comparison is.
type Progress struct {
	Round, Rounds int    // from 1
	Policy        string // the one that runs now
	Step          string // prepare, run, read back, check
	IOs           uint64 // of this run
	Fraction      float64
}

// Clat summarizes completion latencies, in nanoseconds.
type Clat struct {
	Mean float64 `json:"mean"`
	P50  int64   `json:"p50"`
	P99  int64   `json:"p99"`
	P999 int64   `json:"p999"`
	Max  int64   `json:"max"`
}

// Row is what one policy did.
type Row struct {
	Policy string `json:"policy"`
	// IOPS is the median over the rounds.
	IOPS float64 `json:"iops"`
	// Versus is its iops by the baseline's: of "locked", or of the first policy when locked is not
	// compared.
	stats.Versus
	Clat Clat `json:"clat_ns"`
	// Waits is, by lock class, the share of the writers' time spent waiting for it. Nil is not
	// known: the running kernel tells nothing of its locks.
	Waits map[string]float64 `json:"waits"`
	// Content is "ok", or Unverified, or what the blocks read back are.
	Content string `json:"content"`
	// Check is "clean", or Unchecked, or the findings.
	Check string `json:"check"`
	// Again is the share of requests that answered EAGAIN, of those that were tried without
	// waiting; nil when none was.
	Again *float64 `json:"eagain_share,omitempty"`
	// Nowait is what the requests cost that were tried without waiting, over all rounds; nil when
	// none was.
	Nowait *stats.Nowait `json:"nowait,omitempty"`
	// Log is what the fsyncs cost that went to a log, over all rounds; nil when none did.
	Log *stats.Log `json:"log,omitempty"`
	// Ring is which way the requests of the rings went, over all rounds; nil for other engines.
	Ring *stats.Ring `json:"ring,omitempty"`

	// Published is the iops that were published for the row, if any were.
	Published float64 `json:"published_iops,omitempty"`
	// PublishedMiB is the MiB of a second that were published for the row, where those were.
	PublishedMiB float64 `json:"published_mib_per_sec,omitempty"`
	// About says what the row is, where its name does not.
	About string `json:"about,omitempty"`

	// Hist holds the completion latencies of all rounds.
	Hist *stats.Hist `json:"-"`
	// RoundIOPS is the iops of each round.
	RoundIOPS []float64 `json:"-"`
	// Rounds is what benchstat is told of each round.
	Rounds []Round `json:"-"`
}

// Round is one run of a row.
type Round struct {
	IOs  uint64
	IOPS float64
	P99  int64 // of the completion latency, in ns
}

// Result is a comparison.
type Result struct {
	Job     string  `json:"job"`
	Device  string  `json:"device"`
	Model   string  `json:"model"`
	Runtime float64 `json:"runtime"` // seconds of each run
	Rounds  int     `json:"rounds"`
	Rows    []*Row  `json:"rows"`

	Baseline string `json:"-"`
	// Virtual says that the clock was virtual: no other work of the machine is in the figures.
	Virtual bool `json:"-"`
	// Parameters are the job's options, for people.
	Parameters []stats.Option `json:"-"`

	// Pairs are the ratios that Options.Pairs asked for.
	Pairs []PairRatio `json:"pairs,omitempty"`
	// Pass is how many times the first row's runs moved all of the files, on average; 0 for a job
	// that takes places as they come.
	Pass float64 `json:"passes,omitempty"`
}

// WriteJSON writes the result as one JSON object.
func (r *Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Unverified is Row.Content when the rig keeps no file data.
const Unverified = "not verified"

// Unchecked is Row.Check when the rig's Check says ErrUnchecked.
const Unchecked = "not checked"

// OK reports whether every round of every policy read back right, if it was read back, and checked
// clean.
func (r *Result) OK() bool {
	for _, row := range r.Rows {
		if row.Content != "ok" && row.Content != Unverified || row.Check != "clean" && row.Check != Unchecked {
			return false
		}
	}
	return true
}

// Compare runs the comparison. An image or a content that is wrong is a result, not an error; the
// error is for what kept the experiment from being made.
func Compare(t *sched.Task, rig Rig, opt Options) (*Result, error) { return compare(t, rig, opt) }

// WriteBenchstat writes a line for each round, as go test prints a benchmark: benchstat with -col
// /policy compares the rows.
func (r *Result) WriteBenchstat(w io.Writer, cpus int) error {
	for _, row := range r.Rows {
		for _, x := range row.Rounds {
			keys := []string{"job=" + r.Job, "model=" + cmp.Or(r.Model, "none"), "policy=" + row.Policy}
			if err := stats.BenchLine(w, "Compare", keys, cpus, x.IOs, x.IOPS, x.P99); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteText writes the table.
func (r *Result) WriteText(w io.Writer) error { return r.writeText(w) }
