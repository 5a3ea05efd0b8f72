// Package report draws comparisons as one HTML page that needs nothing else: no network, no script.
package report

import (
	"btrlab/internal/draw"
	"btrlab/internal/draw/chart"
	"btrlab/internal/measure/experiment"
)

// Meta is what the page says about how it was made.
type Meta struct {
	Title   string `json:"title"`
	Command string `json:"command"` // the command line that made it
	// name and value: processor, memory, kernel, Go, ...; nil: Machine()
	Machine [][2]string `json:"machine"`
	// Before is what the page says before the comparisons; a record has it not.
	Before draw.HTML `json:"-"`
}

// WaitsPNG draws what the writers of every policy waited for, as on the page; nil when nobody
// waited.
func WaitsPNG(r *experiment.Result) ([]byte, error) {
	return waitFigure(r, r.TopWaits(len(fills)), chart.Width)
}
