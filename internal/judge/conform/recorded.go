package conform

import (
	"bufio"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// A recorded run of a kernel is a text, compressed by gzip: "# Linux 6.18.44", "# functions" if it
// shows their steps, "# lacks NAME" for each step that it does not show, and for each operation "==
// NAME" and a line for each step, "t" of the task or "e" of others, name and what it says. Where
// the kernel does not make the same steps each time, "== NAME LANE 2" and so on are the other
// sequences of a lane that were seen.
//
//go:embed recorded/*.gz
var recordedText embed.FS

// Recorded is the kernel's side of runs that were made before: it can be compared anywhere.
type Recorded struct {
	Release string
	// Functions says that the kernel showed the steps of functions as well as those of tracepoints.
	Functions bool

	// lacks are the steps that the kernel does not show, because it has no such tracepoint or
	// function.
	lacks map[string]bool

	name     string // of the texts, "6.18-functions"
	steps    map[place][]Event
	expected expectations // the differences from the engine
	like     *Recorded    // whose differences are expected, if not its own
}

// OpenRecorded gives the run of Linux KnownRelease, with the steps of functions.
func OpenRecorded() *Recorded {
	r, err := OpenRecordedKernel(KnownRelease)
	if err != nil {
		panic("conform: " + err.Error())
	}
	return r
}

// OpenRecordedKernel gives the recorded run of a version, as "5.10". Of several it is the one that
// shows the steps of functions.
func OpenRecordedKernel(version string) (best *Recorded, err error) {
	for _, r := range recordings() {
		if r.Version() == version && (best == nil || r.Functions) {
			best = r
		}
	}
	if best == nil {
		return nil, fmt.Errorf("bad kernel, have %s want a recorded one: %s", version, strings.Join(RecordedVersions(), ", "))
	}
	return best, nil
}

// RecordedVersions lists the kernels that are recorded, ascending. It reads none of the runs: the
// help of a command names them, and every start of the program makes all commands.
func RecordedVersions() (list []string) {
	for _, name := range recordedNames() {
		v, _, _ := strings.Cut(name, "-")
		list = append(list, v)
	}
	slices.SortFunc(list, compareVersions)
	return slices.Compact(list)
}

// recordedNames are the names of the recorded runs.
func recordedNames() (list []string) {
	entries, err := recordedText.ReadDir("recorded")
	if err != nil {
		panic("conform: " + err.Error())
	}
	for _, e := range entries {
		list = append(list, strings.TrimSuffix(e.Name(), ".txt.gz"))
	}
	return list
}

// Version is the first two numbers of the release: "6.18".
func (r *Recorded) Version() string { return version(r.Release) }

func version(release string) string {
	major, rest, _ := strings.Cut(release, ".")
	minor := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	return major + "." + minor
}

// Missing are the steps of the table that the recorded kernel does not show.
func (r *Recorded) Missing() []string { return slices.Sorted(maps.Keys(r.lacks)) }

// recordedLike gives the run of a kernel that is most like one that shows the steps of functions,
// or does not: that of its version, or else KnownRelease's.
func recordedLike(release string, functions bool) *Recorded {
	for _, want := range []string{version(release), KnownRelease} {
		for _, r := range recordings() {
			if r.Version() == want && r.Functions == functions {
				return r
			}
		}
	}
	panic("conform: no recorded run of Linux " + KnownRelease)
}

// recordings are all recorded runs, by ascending version.
var recordings = sync.OnceValue(func() (list []*Recorded) {
	for _, name := range recordedNames() {
		r, err := openRecording(name)
		if err != nil {
			panic("conform: " + err.Error())
		}
		list = append(list, r)
	}
	slices.SortStableFunc(list, func(a, b *Recorded) int { return compareVersions(a.Version(), b.Version()) })
	return list
})

// compareVersions orders "5.10" after "5.9".
func compareVersions(a, b string) int {
	number := func(s string) int {
		var major, minor int
		_, _ = fmt.Sscanf(s, "%d.%d", &major, &minor) // it is one of ours
		return major<<16 | minor
	}
	return number(a) - number(b)
}

// openRecording reads the two texts of a name. A run of which no differences are expected yet has
// none.
func openRecording(name string) (*Recorded, error) {
	f, err := recordedText.Open("recorded/" + name + ".txt.gz")
	if err != nil {
		return nil, err
	}
	r, err := ReadRecorded(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("recorded run %s: %w", name, err)
	}
	r.name = name
	text, err := expectedText.ReadFile("expected/" + name + ".txt")
	if err != nil {
		return r, nil // a new recording
	}
	r.expected, err = parseExpected(string(text))
	return r, err
}

// ReadRecorded reads a recorded run, compressed or not.
func ReadRecorded(in io.Reader) (*Recorded, error) {
	in, err := uncompressed(in)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	return parseRecorded(string(text))
}

// uncompressed reads a text that is compressed by gzip or not.
func uncompressed(in io.Reader) (io.Reader, error) {
	buf := bufio.NewReader(in)
	if magic, err := buf.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		return gzip.NewReader(buf)
	}
	return buf, nil
}

func parseRecorded(text string) (*Recorded, error) {
	r := &Recorded{steps: map[place][]Event{}, lacks: map[string]bool{}}
	var at place
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		first, rest, _ := strings.Cut(lines.Text(), " ")
		switch first {
		case "#":
			switch word, more, _ := strings.Cut(rest, " "); word {
			case "Linux":
				r.Release = more
			case "functions":
				r.Functions = true
			case "lacks":
				r.lacks[more] = true
			}
		case "==":
			var err error
			if at, err = parsePlace(rest); err != nil {
				return nil, err
			}
			r.steps[at] = nil
			if at.n == 1 {
				r.steps[place{at.op, Elsewhere, 1}] = nil
			}
		case "t", "e":
			p := place{at.op, Caller, at.n}
			if first == "e" {
				p.lane = Elsewhere
			}
			e, err := parseStep(rest)
			if err != nil {
				return nil, err
			}
			e.Lane = p.lane
			r.steps[p] = append(r.steps[p], e)
		}
	}
	if r.Release == "" {
		return nil, errors.New("bad recording, have no line \"# Linux VERSION\"")
	}
	return r, nil
}

// parseStep reads what Event.String gives.
func parseStep(s string) (Event, error) {
	name, about, _ := strings.Cut(s, " ")
	tp := byStep(name)
	if tp == nil {
		return Event{}, fmt.Errorf("step %q has an unknown name", s)
	}
	return Event{Group: tp.group, Name: name, About: about}, nil
}

// sequences are what the kernel was seen to do in a lane of an operation; none if the operation was
// not recorded.
func (r *Recorded) sequences(op string, l Lane) (list [][]Event) {
	for n := 1; ; n++ {
		s, ok := r.steps[place{op, l, n}]
		if !ok {
			return list
		}
		list = append(list, s)
	}
}

// first is the first sequence of each lane, one after the other.
func (r *Recorded) first(op *Op) (list []Event, err error) {
	for l := range lanes {
		all := r.sequences(op.Name, l)
		if len(all) == 0 {
			return nil, fmt.Errorf("%s is not in the recorded run of Linux %s", op.Name, r.Release)
		}
		list = append(list, all[0]...)
	}
	return list, nil
}

// Compare runs an operation on the engine under a policy; the kernel's side is the recorded one,
// its first sequence where there are several.
func (r *Recorded) Compare(op *Op, policy string) (*Result, error) {
	theirs, err := r.first(op)
	if err != nil {
		return nil, err
	}
	img, err := makeImage(op.size())
	if err != nil {
		return nil, err
	}
	ours, err := runEngine(img, op, policy)
	if err != nil {
		return nil, fmt.Errorf("%s: engine: %w", op.Name, err)
	}
	by := r
	if r.like != nil {
		like := *r.like
		like.lacks, by = r.lacks, &like
	}
	return by.compare(op, theirs, ours)
}

// Recorder collects the kernel's sides of several runs. The zero Recorder is empty.
type Recorder struct {
	seen map[place]*seen // by operation and lane; n is 0
}

// seen is the sequences of a lane, in the order in which they were seen first.
type seen struct {
	sequences [][]Event
	times     []int
}

// Add notes the kernel's side of a result.
func (r *Recorder) Add(x *Result) {
	var steps []Event
	for l := range lanes {
		for _, row := range x.Rows[l] {
			if row.Kernel != nil {
				steps = append(steps, *row.Kernel)
			}
		}
	}
	r.AddSteps(x.Op, steps)
}

// AddSteps notes what a kernel did in an operation.
func (r *Recorder) AddSteps(op *Op, all []Event) {
	if r.seen == nil {
		r.seen = map[place]*seen{}
	}
	for l := range lanes {
		p := place{op.Name, l, 0}
		s := r.seen[p]
		if s == nil {
			s = &seen{}
			r.seen[p] = s
		}
		steps := inLane(all, l)
		i := slices.IndexFunc(s.sequences, func(other []Event) bool { return slices.Equal(other, steps) })
		if i < 0 {
			i = len(s.sequences)
			s.sequences, s.times = append(s.sequences, steps), append(s.times, 0)
		}
		s.times[i]++
	}
}

// WriteKernel is Write with what k shows.
func (r *Recorder) WriteKernel(w io.Writer, k *Kernel) error {
	lacks := make([]string, 0, len(k.Missing()))
	for _, name := range k.Missing() {
		lacks = append(lacks, stepName(short(name)))
	}
	return r.Write(w, k.DebianRelease(), k.Refused() == nil, lacks)
}

// DebianRelease is the kernel's version. Of Debian's, whose uname -r stays "5.10.0", it is that of
// the package.
func (k *Kernel) DebianRelease() string {
	if b, err := os.ReadFile("/proc/version"); err == nil {
		if _, after, ok := strings.Cut(string(b), " Debian "); ok {
			release, _, _ := strings.Cut(after, " ")
			release, _, _ = strings.Cut(release, "-")
			return release
		}
	}
	return k.Release()
}

// Write writes what was noted as the text of a recorded run; the sequence that was seen most comes
// first. The release is that of uname, functions says whether the kernel shows their steps, and
// lacks are the steps that it does not show.
func (r *Recorder) Write(w io.Writer, release string, functions bool, lacks []string) error {
	if i := strings.IndexAny(release, "-+"); i >= 0 {
		release = release[:i]
	}
	x := &Recorded{Release: release, Functions: functions, lacks: map[string]bool{}, steps: map[place][]Event{}}
	for _, name := range lacks {
		x.lacks[name] = true
	}
	for at, s := range r.seen {
		order := make([]int, len(s.sequences))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return s.times[b] - s.times[a] })
		for n, i := range order {
			x.steps[place{at.op, at.lane, n + 1}] = s.sequences[i]
		}
	}
	return x.Write(w)
}

// Write writes the text that ReadRecorded reads: the operations in the order of Ops, and no others.
func (r *Recorded) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Linux %s\n", r.Release)
	if r.Functions {
		b.WriteString("# functions\n")
	}
	for _, name := range r.Missing() {
		fmt.Fprintf(&b, "# lacks %s\n", name)
	}
	sequence := func(l Lane, steps []Event) {
		for _, e := range steps {
			fmt.Fprintf(&b, "%.1s %s\n", l, e)
		}
	}
	for i := range Ops {
		op := &Ops[i]
		if !r.has(op) {
			continue
		}
		fmt.Fprintf(&b, "== %s\n", op.Name)
		for l := range lanes {
			sequence(l, r.steps[place{op.Name, l, 1}])
		}
		for l := range lanes {
			for n, steps := range r.sequences(op.Name, l) {
				if n > 0 {
					fmt.Fprintf(&b, "== %s\n", place{op.Name, l, n + 1})
					sequence(l, steps)
				}
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// has reports whether an operation was recorded.
func (r *Recorded) has(op *Op) bool {
	_, ok := r.steps[place{op.Name, Caller, 1}]
	return ok
}

// PutInto writes what was recorded to a file of recordings, whose name ends in .gz if it is
// compressed: old is its text, or nil. Of the same kernel old keeps the other operations.
func (r *Recorded) PutInto(old io.Reader, w io.Writer, compressed bool) error {
	if old != nil {
		x, err := ReadRecorded(old)
		if err != nil {
			return err
		}
		if err := x.Put(r); err != nil {
			return err
		}
		r = x
	}
	if !compressed {
		return r.Write(w)
	}
	z := gzip.NewWriter(w)
	return errors.Join(r.Write(z), z.Close())
}

// Put takes the operations of another recording of the same kernel over, in place of what r has of
// them. An error says in what the kernels differ.
func (r *Recorded) Put(from *Recorded) error {
	if r.Release != from.Release || r.Functions != from.Functions || !maps.Equal(r.lacks, from.lacks) {
		return fmt.Errorf("bad recording to add to, have Linux %s (functions %v, lacks %v) want %s (%v, %v)",
			r.Release, r.Functions, r.Missing(), from.Release, from.Functions, from.Missing())
	}
	for i := range Ops {
		op := &Ops[i]
		if !from.has(op) {
			continue
		}
		maps.DeleteFunc(r.steps, func(p place, _ []Event) bool { return p.op == op.Name })
		for p, steps := range from.steps {
			if p.op == op.Name {
				r.steps[p] = steps
			}
		}
	}
	return nil
}

// Expecting gives r, which was recorded just now, the differences that are expected of the recorded
// kernel that is most like it.
func (r *Recorded) Expecting() *Recorded {
	like := recordedLike(r.Release, r.Functions)
	x := *r
	x.like = like
	return &x
}
