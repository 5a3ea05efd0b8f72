package park

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
)

// The runs that were recorded: what Linux did when it was led through schedules, by version. Where
// there is no qemu and no kernel, they say it.
//
//go:embed recorded/*.json.gz
var recordedFiles embed.FS

// Recording is what a kernel did when it was led through schedules. Each of its runs is one that
// came out the same twice.
type Recording struct {
	Version string      `json:"version"` // "6.1"
	Release string      `json:"release"`
	Date    string      `json:"date"` // of the day, "2026-11-28"
	Runs    []*Replayed `json:"runs"`
}

// RecordedVersions lists the kernels that are recorded, oldest first.
var RecordedVersions = []string{"5.10", "6.1", "6.12", "6.18", "7.3"}

// Recorded opens the recording of a version.
func Recorded(version string) (*Recording, error) {
	b, err := recordedFiles.ReadFile("recorded/" + version + ".json.gz")
	if err != nil {
		return nil, fmt.Errorf("bad kernel, have %s want a recorded one: %s", version, strings.Join(RecordedVersions, ", "))
	}
	return ReadRecording(b)
}

// ReadRecording reads what Pack has written.
func ReadRecording(b []byte) (*Recording, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	r := &Recording{}
	if err := json.NewDecoder(z).Decode(r); err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	return r, nil
}

// Pack writes the recording as it is kept: compressed JSON.
func (r *Recording) Pack() ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(z).Encode(r); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Find is a run of the same order: that of a schedule of the scenario in which tasks of Linux are
// led to the same places one after the other. It is nil where none is recorded. Linux knows no
// policy: where the engine breaks, that of the run may be another one. Where it does not, the run's
// has the same name, for what the engine ends with hangs on it.
func (r *Recording) Find(s *scenario.Scenario, p *policy.Policy, schedule string) (*Replayed, error) {
	var want string
	for _, x := range r.Runs {
		if x.Scenario != s.Name || x.Policy != p.Name && x.Violation == "" {
			continue
		}
		if x.Policy == p.Name && x.Schedule == schedule {
			return x, nil
		}
		if want == "" {
			var err error
			if want, err = Order(s, p, schedule); err != nil {
				return nil, err
			}
		}
		own, err := policy.Parse(x.Policy)
		if err != nil {
			return nil, err
		}
		if have, err := Order(s, &own, x.Schedule); err != nil || have == want {
			as := *x
			as.As = fmt.Sprintf("'%s' under %s", schedule, p.Name)
			return &as, err
		}
	}
	return nil, nil
}

// Order says in one line to which places a schedule leads the tasks of Linux, one after the other:
// two schedules with the same are one to Linux.
func Order(s *scenario.Scenario, p *policy.Policy, schedule string) (string, error) {
	tr, err := scenario.Replay(s, p, schedule, false)
	if err != nil {
		return "", err
	}
	return OrderOf(tr, s), nil
}

// OrderOf is Order of an execution of the scenario.
func OrderOf(tr *scenario.Trace, s *scenario.Scenario) string {
	var b strings.Builder
	for _, x := range order(tr, s, func(string) bool { return true }) {
		fmt.Fprintf(&b, "%d:%s", x.Task, strings.Join(x.Places, ","))
		if x.Waits {
			b.WriteString(",waits")
		}
		b.WriteString(" ")
	}
	return b.String() + string(tr.Kind)
}

// Outcome is how a run came out.
type Outcome string

// Where the engine comes to an end, Linux refuses the order, has the same end or another one. Where
// the engine breaks, Linux refuses the order, breaks or keeps what it promises.
const (
	Same    Outcome = "same"
	Other   Outcome = "other"
	Refused Outcome = "refused"
	Broken  Outcome = "breaks"
	Kept    Outcome = "keeps"
)

// Outcome says how the run came out.
func (x *Replayed) Outcome() Outcome {
	switch {
	case x.Refused != "":
		return Refused
	case x.Violation != "" && x.Breaks():
		return Broken
	case x.Violation != "":
		return Kept
	case x.Breaks():
		return Same
	}
	return Other
}

// Agrees reports whether two runs of a schedule came out the same: in one word, with the same end,
// and where Linux refuses the order, with the same task in the same function.
func (x *Replayed) Agrees(y *Replayed) bool {
	return x.Outcome() == y.Outcome() && x.Linux.Size == y.Linux.Size && slices.Equal(x.Linux.Bytes, y.Linux.Bytes) &&
		slices.Equal(x.Linux.Errors, y.Linux.Errors) && x.Refused == y.Refused
}
