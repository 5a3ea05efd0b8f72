package nb

import (
	"fmt"
	"strings"

	"btrlab/internal/judge/park"
)

// Led is what a kernel did when it was led through a schedule.
type Led struct {
	Release string // of the kernel
	Outcome string // same or other, breaks or keeps, or refused
	Refused string // what a task waits in, if the order was refused

	run *park.Replayed
}

// InLinux is what a kernel did, as "6.1", when it was led through a schedule of a scenario, as it
// was recorded: no kernel is booted here. A schedule that was not recorded is an error.
func InLinux(version, name, schedule, spec string) (*Led, error) {
	s, p, err := lookup(name, spec)
	if err != nil {
		return nil, err
	}
	r, err := park.Recorded(version)
	if err != nil {
		return nil, err
	}
	x, err := r.Find(s, p, schedule)
	if err != nil {
		return nil, err
	}
	if x == nil {
		return nil, fmt.Errorf("kernel %s was not recorded in schedule '%s' of %s under %s; btrlab replay --kernel leads one through it", version, schedule, name, spec)
	}
	return &Led{Release: x.Release, Outcome: string(x.Outcome()), Refused: x.Refused, run: x}, nil
}

// Table has a row for each part of the schedule: the task, where the engine has it stand, and where
// it stands in Linux.
func (l *Led) Table() Table {
	x := l.run
	t := Table{Caption: fmt.Sprintf("%s '%s' under %s: %s", x.Scenario, x.Schedule, x.Policy, l.Outcome), Head: []string{"task", "the engine", "Linux " + x.Release}}
	for i := range x.Steps {
		engine, linux := x.Steps[i].Texts()
		t.Rows = append(t.Rows, []string{fmt.Sprint(x.Steps[i].Task), engine, linux})
	}
	end := func(what, engine, linux string) {
		if engine != "" || linux != "" {
			t.Rows = append(t.Rows, []string{what, engine, linux})
		}
	}
	end("breaks", x.Violation, strings.Join(x.Broken, "; "))
	end("refused", "", x.Refused)
	if x.Refused == "" && x.Violation == "" {
		end("size", fmt.Sprint(x.Engine.Size), fmt.Sprint(x.Linux.Size))
		end("differs", "", strings.Join(x.Differences, "; "))
	}
	return t
}

// LinuxExhibits has a row for each bug of the museum that kernels were led into, and a column for
// each kernel: breaks, keeps, or refused.
func LinuxExhibits() (Table, error) {
	t := Table{Caption: "Bugs of the museum in five kernels", Head: append([]string{"number", "what happens"}, park.RecordedVersions...)}
	for i := range park.Exhibits {
		e := &park.Exhibits[i]
		s, p, err := e.Asks()
		if err != nil {
			return t, err
		}
		row := []string{fmt.Sprint(e.Number), e.Museum().Title}
		for _, v := range park.RecordedVersions {
			r, err := park.Recorded(v)
			if err != nil {
				return t, err
			}
			x, err := r.Find(s, p, e.Schedule)
			if err != nil {
				return t, err
			}
			cell := "-"
			if x != nil {
				cell = string(x.Outcome())
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}
