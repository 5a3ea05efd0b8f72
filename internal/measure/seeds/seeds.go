// Package seeds has the published experiments that btrlab repeats, each as a file: what was posted
// (the fio job, the rows and their figures) and how btrlab runs it, beside other policies (compare)
// and in virtual time at its published size (reproduce).
package seeds

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/policy"
)

// Percentiles are those that fio prints and the seeds publish.
var Percentiles = []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99}

// Seed is a published experiment: one job, of which each row changes options and policy.
type Seed struct {
	Name  string // "001"
	Title string // of the report of a comparison
	Job   string // the fio job as it was posted: the file seed-NAME.fio
	// MiB says that MiB/s were published and not iops: the figure by which rows are fitted and
	// compared.
	MiB bool
	// Files, if it is not 0, is the number of COW files, one for each writer, instead of one NOCOW
	// file.
	Files int
	// AnyPolicy says that the job can be run under any policy of buffered writes: in a notebook.
	AnyPolicy bool
	// Rows are those that were published, and further ones that reproduce adds.
	Rows []Row
	// Ratio is of the figure of the first row to that of the second, by their names.
	Ratio   [2]string
	Compare Compare
	Study   Study
}

// Row is a row of a published experiment and how it is simulated.
type Row struct {
	Name   string
	Policy string
	Set    [][2]string // options of the job
	// Files and Size, if they are not 0, are this row's instead of the seed's.
	Files int
	Size  int64
	// Over names the row before the change; empty for all but those after it, where each job has
	// two rows.
	Over string
	// Fits names the knobs that are fitted to the row; none for a row that is predicted.
	Fits []string
	// Chose names what was chosen in the calibration so that the row comes out, from a surface.
	Chose string
	// Ablates names the row that this one is without one change, which About names. Published is
	// empty then.
	Ablates string
	About   string
	// Vary changes the calibration for this row, if set.
	Vary      func(c *Calibration)
	Published Figures
}

// Role says how the calibration uses the row: "calibrated on", "predicted" or "ablation".
func (r *Row) Role() string {
	switch {
	case len(r.Fits) > 0 || r.Chose != "":
		return "calibrated on"
	case r.Ablates != "":
		return "ablation"
	}
	return "predicted"
}

// Figures are fio's of one run, as far as they were published. Times are in microseconds.
type Figures struct {
	IOPS float64 `json:"iops,omitempty"`
	*Latency
	ClatMean float64 `json:"clat_mean_us,omitempty"`
	SlatMean float64 `json:"slat_mean_us,omitempty"` // simulated only
	Read     float64 `json:"read_mib_per_sec,omitempty"`
	Write    float64 `json:"write_mib_per_sec,omitempty"`
	// DrainMs is how long after the end of the job the last request came back: fio's run time, less
	// the time that was asked for, in milliseconds.
	DrainMs float64 `json:"drain_ms,omitempty"`
}

// Latency is the distribution of a run's latencies, in microseconds.
type Latency struct {
	Min   float64 `json:"lat_min_us"`
	Mean  float64 `json:"lat_mean_us"`
	Stdev float64 `json:"lat_stdev_us"`
	Max   float64 `json:"lat_max_us"`
	// Clat is by Percentiles.
	Clat []float64 `json:"clat_percentiles_us"`
}

// Percentile is the completion latency at q, one of Percentiles.
func (l *Latency) Percentile(q float64) float64 { return l.Clat[slices.Index(Percentiles, q)] }

// Compare says how the rows of an experiment are run side by side.
type Compare struct {
	// About is a paragraph of compare's help.
	About string
	// Rows are compared; without any it is every preset of the policies. Baseline is the
	// row that ratios are to, and Pairs are the ratios that were published or aimed at.
	Rows     []Compared
	Baseline string
	Pairs    [][2]string
	// Ablation are further rows: the baseline's successor without one of its patches each.
	Ablation []experiment.Variant
	// Linux are the rows of the running kernel.
	Linux []experiment.Other
	// Model is the latency model that the job needs to show anything; empty is none.
	Model string
	// Cached says that the job is meant to stay in the page cache: nothing is written back while it
	// runs, unless --dirty-limit says so.
	Cached bool
	// Size is the bytes of all files unless --size says more; 0 is the default.
	Size int64
}

// Compared is a row of a comparison. With Of it has the policy, the options and the published
// figure of that row of the experiment.
type Compared struct {
	Name, About string
	Of          string
	Policy      string
	Set         [][2]string // further options; nothing was published of a row that has some
}

// Study says how reproduce runs the experiment in virtual time. Some rows fit knobs of the
// calibration, in their order; the others are predicted.
type Study struct {
	// About is a paragraph of reproduce's help.
	About string
	// Size is that of all files, in bytes; Seconds are those of a run, 0 until each job has written
	// its file.
	Size    int64
	Seconds float64
	// Ramp is the part of the run before what is measured, in seconds of the published run; a
	// shorter run has the same share of it.
	Ramp float64
	// Written says that the files were written before the job; otherwise they are preallocated
	// only, or sparse if they are COW.
	Written bool
	// Room is the bytes of the image beside the files that a job fills with old versions until a
	// commit frees them.
	Room int64
	// Commit is the age at which a transaction is committed; 0 is never.
	Commit time.Duration
	// CacheLimit is fs.Options: what the machine's memory holds of clean pages, as far as it does
	// not matter; 0 is all of them.
	CacheLimit  int64
	Calibration Calibration
	// NoEngines says that the calibration was fitted without the costs of libaio and of its events.
	NoEngines bool
	// Request is the mean size of the job's requests, in bytes, as fio made them.
	Request float64
	// Surface, if set, is what reproduce --surface looks at.
	Surface *Surface
	// FitSeconds and FitWarm are the length of each run of a fit; 0 leaves them to the caller.
	FitSeconds, FitWarm float64
	// Fitted says what was fitted to which row; empty where Rests does.
	Fitted string
	// Rests says what the predictions follow from.
	Rests func(c *Calibration) string
}

// Surface says how the ratio of an experiment hangs on two choices that its publication leaves
// open. At each point the first row's knob is fitted again, so that all points agree with what was
// published before the change, and only the gain differs.
type Surface struct {
	// About is a paragraph of the page.
	About string
	// Seconds of virtual time of each run, and Size of all files; 0 is the study's.
	Seconds float64
	Size    int64
	// X and Y are the axes; each line of the table is of one Y. Panels are further choices without
	// a size, the first of which is drawn; nil is one.
	X, Y   Axis
	Panels []Panel
	// Known are devices, or counts, that have a place on the axis X.
	Known []Place
}

// Axis is a choice of a surface, as values and what they change.
type Axis struct {
	Name   string // with its unit: "share of the time that grows with size, %"
	Values []float64
	Set    func(c *Calibration, v float64)
}

// Panel is one of the surfaces of an experiment.
type Panel struct {
	Name string
	Set  func(c *Calibration)
}

// Place is where something that is known lies on the axis X.
type Place struct {
	Name string
	X    float64
	From string // where that is known from
}

// The experiments, by name. Each file of a seed adds its own.
var all []*Seed

//go:embed *.fio
var jobs embed.FS

// add enters s into the table, with its job.
func add(s Seed) *Seed {
	job, err := jobs.ReadFile("seed-" + s.Name + ".fio")
	if err != nil {
		panic(err)
	}
	s.Job = string(job)
	all = append(all, &s)
	slices.SortFunc(all, func(a, b *Seed) int { return strings.Compare(a.Name, b.Name) })
	return &s
}

// All are the published experiments, by name.
func All() []*Seed { return all }

// The names of those that other rooms ask for by what they are about.
const (
	NowaitDirect = "000"
	Overwrite    = "002" // of one file by eight writers, in the page cache
	Fsync        = "003"
)

// Default is the experiment that is meant where none is named.
const Default = Overwrite

// Get returns the experiment of that name; nil if there is none.
func Get(name string) *Seed {
	if i := slices.IndexFunc(all, func(s *Seed) bool { return s.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// Names are the names of the experiments.
func Names() (names []string) {
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

// With names the experiments of which f is true: "seed 002", "seeds 001, 002 and 003".
func With(f func(s *Seed) bool) string {
	var names []string
	for _, s := range all {
		if f(s) {
			names = append(names, s.Name)
		}
	}
	n := len(names) - 1
	if n == 0 {
		return "seed " + names[0]
	}
	return "seeds " + strings.Join(names[:n], ", ") + " and " + names[n]
}

// Paragraphs are those that about finds in the experiments, the default's first.
func Paragraphs(about func(s *Seed) string) string {
	list := []string{about(Get(Default))}
	for _, s := range all {
		if s.Name != Default {
			list = append(list, about(s))
		}
	}
	return strings.Join(list, "\n\n")
}

// RowNames are the names of the rows, in their order.
func (s *Seed) RowNames() (names []string) {
	for i := range s.Rows {
		names = append(names, s.Rows[i].Name)
	}
	return names
}

// Row is the row of that name.
func (s *Seed) Row(name string) *Row {
	i := slices.IndexFunc(s.Rows, func(r Row) bool { return r.Name == name })
	return &s.Rows[i]
}

// Figure is the one by which rows are fitted and compared.
func (s *Seed) Figure(f *Figures) float64 {
	if s.MiB {
		return f.Read + f.Write
	}
	return f.IOPS
}

// Unit is that of Figure.
func (s *Seed) Unit() string {
	if s.MiB {
		return "MiB/s"
	}
	return "iops"
}

// Variants are the rows of a comparison.
func (s *Seed) Variants() (list []experiment.Variant) {
	for _, c := range s.Compare.Rows {
		v := experiment.Variant{Name: c.Name, About: c.About, Policy: c.Policy, Set: c.Set}
		if c.Of != "" {
			row := s.Row(c.Of)
			v.Policy, v.Set = row.Policy, slices.Concat(row.Set, c.Set)
			switch {
			case len(c.Set) > 0:
			case s.MiB:
				v.PublishedMiB = s.Figure(&row.Published)
			default:
				v.Published = s.Figure(&row.Published)
			}
		}
		list = append(list, v)
	}
	return list
}

// patches are the toggles of a series of patches, by the beginning of their source, in its order.
func patches(source string) (names []string) {
	for x := range policy.Switches() {
		if t := x.Toggle(); strings.HasPrefix(t.Source, source) {
			names = append(names, t.Name)
		}
	}
	return names
}

// without are rows for reproduce: the row after, of the policy, without each of the patches. They
// are named by letter and number, from first on.
func without(after, policy, letter string, first int, patches []string) (rows []Row) {
	for i, p := range patches {
		rows = append(rows, Row{Name: fmt.Sprintf("no %s%d", letter, first+i), About: after + " without " + p, Policy: policy + "!" + p, Ablates: after})
	}
	return rows
}

// ablation are such rows for compare.
func ablation(rows []Row) (list []experiment.Variant) {
	for _, r := range rows {
		list = append(list, experiment.Variant{Name: r.Name, About: r.About, Policy: r.Policy})
	}
	return list
}

// says is Study.Rests of an experiment whose prediction rests on the same whatever the calibration.
func says(text string) func(*Calibration) string { return func(*Calibration) string { return text } }
