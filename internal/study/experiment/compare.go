package experiment

import (
	"io"

	"btrlab/internal/sched"
)

func compare(t *sched.Task, lab Lab, opt Options) (*Result, error) {
	panic("experiment: not there yet")
}

func (r *Result) writeText(w io.Writer) error { panic("experiment: not there yet") }
