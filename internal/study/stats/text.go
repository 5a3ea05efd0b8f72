package stats

import "io"

// WriteText writes the run as fio --output-format=normal.
func (r *Run) WriteText(w io.Writer) error { panic("stats: not there yet") }
