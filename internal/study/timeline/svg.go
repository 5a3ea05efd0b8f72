package timeline

import (
	"io"
	"slices"
	"strings"

	"btrlab/internal/draw"
	"btrlab/internal/study/scenario"
)

// WriteSVG writes tr as one picture: the lanes of WriteHTML, with a row for each of steps, or
// without any for those that change the state of the file, begin or end an operation, or preempt.
// The culprit always has one. Lanes, columns of the state and locks that no row needs are left out,
// so that the letters can be large. The same trace gives the same bytes.
func WriteSVG(w io.Writer, tr *scenario.Trace, steps []int) error {
	d := newDrawing(tr, func(i int) bool {
		if len(steps) > 0 {
			return slices.Contains(steps, i)
		}
		s := &tr.Steps[i]
		return len(s.Notes) > 0 || s.Preempts || i > 0 && !slices.Equal(s.State, tr.Steps[i-1].State)
	})
	height := headHeight + len(d.rows)*rowHeight + 4
	verdict := tr.Kept()
	if d.culprit >= 0 {
		verdict = tr.Violation.Violated()
	}
	var b draw.Writer
	b.Add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, d.width, height, d.width, height)
	b.Add(`<title>%s, policy %s, schedule %s</title><desc>%s</desc>`, tr.Scenario, tr.Policy, tr.Schedule, verdict)
	b.Add("<style>%s</style>", draw.HTML(strings.TrimSpace(draw.Light(lanesCSS))))
	b.Add(`<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
		`<rect width="7" height="7" fill="#fff"/><line x1="0" y1="0" x2="0" y2="7" stroke="#888" stroke-width="2"/></pattern></defs>`)
	b.Add(`<rect width="%d" height="%d" fill="#fff"/>`, d.width, height)
	d.head(&b)
	b.Add(`<g transform="translate(0 %d)">`, headHeight)
	d.lanesAndSteps(&b, 0, len(d.rows))
	b.Add(`</g></svg>`)
	_, err := io.WriteString(w, b.String())
	return err
}
