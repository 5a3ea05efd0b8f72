package park

import (
	"fmt"
	"slices"

	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
)

// Exhibit is a bug of the museum that a kernel of a distribution has, or had.
type Exhibit struct {
	// Number is that of scenario.Museum, which says the scenario and the policy with the bug.
	Number int
	// Schedule is the shortest one that the bug breaks and that Linux can be led through: no worker
	// of it has to be parked.
	Schedule string
	// Broken are the kernels that do what the exhibit says, oldest first. The others do not.
	Broken []string
}

// Exhibits are those that were led through Linux 5.10 to 7.3.
var Exhibits = []Exhibit{
	{15, "", []string{"5.10"}},
	{28, "", []string{"5.10"}},
	{44, "10:1,12:0", []string{"5.10"}},
	{41, "8:1", []string{"6.1", "6.12", "6.18", "7.3"}},
	{43, "8:1", []string{"6.1", "6.12", "6.18", "7.3"}},
	// 6.18 reserves for one page after the other, so the write is short and waits for nothing; 7.3
	// has large folios.
	{49, "", []string{"6.1", "6.12", "7.3"}},
	{50, "4:1", []string{"6.1", "6.12", "7.3"}},
	{51, "8:1", []string{"6.1", "6.12", "6.18", "7.3"}},
}

// Museum is the exhibit as the museum has it.
func (e *Exhibit) Museum() *scenario.Exhibit {
	i := slices.IndexFunc(scenario.Museum, func(x scenario.Exhibit) bool { return x.Number == e.Number })
	return &scenario.Museum[i]
}

// Asks is the scenario of the exhibit, and the policy with the bug.
func (e *Exhibit) Asks() (*scenario.Scenario, *policy.Policy, error) {
	x := e.Museum()
	s, err := scenario.Lookup(x.Scenario)
	if err != nil {
		return nil, nil, err
	}
	p, err := policy.Parse(x.Broken)
	if err != nil {
		return nil, nil, fmt.Errorf("exhibit %d: %w", e.Number, err)
	}
	return s, &p, nil
}

// Breaks reports whether Linux did what the engine did, where the engine breaks: it has come
// through the same steps, and a request sleeps, tasks wait for each other, an operation has the
// same wrong error, or the file is as wrong.
func (x *Replayed) Breaks() bool {
	if x.Violation != "" {
		return len(x.Broken) > 0
	}
	return x.Refused == "" && len(x.Differences) == 0
}

// Stuck reports whether the machine's tasks wait for each other: it is to be closed.
func (x *Replayed) Stuck() bool { return x.Linux.Errors == nil }
