package report

import (
	"io"

	"btrlab/internal/study/experiment"
)

func write(w io.Writer, meta Meta, results []*experiment.Result) error {
	panic("report: not there yet")
}
