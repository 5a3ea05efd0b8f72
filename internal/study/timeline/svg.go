package timeline

import (
	"io"
	"slices"

	"btrlab/internal/study/scenario"
)

// svgStyle gives the same classes the light colours of page.html: a picture has no page
// around it.
const svgStyle = `text { font: 11px "DejaVu Sans Mono", "Liberation Mono", Menlo, Consolas, monospace; fill: #111; }
.headbox { fill: #e9e9e9; stroke: #111; stroke-width: .5; } .head text { font-weight: 700; }
.lane { stroke: #999; } .hit { fill: none; } .box { fill: #f4f8ff; stroke: #555; stroke-width: .8; }
.num { fill: #555; } .same { fill: #767676; } .new { font-weight: 700; }
.bar rect { fill: #d5dde8; stroke: #223; } .bar text { font-size: 9px; font-weight: 700; }
.wait { fill: url(#hatch); stroke: #555; stroke-width: .8; stroke-dasharray: 3 2; } .waitlabel { fill: #fff; } .waittext { font-style: italic; }
.preempt { stroke: #111; stroke-width: 1.6; stroke-dasharray: 7 4; } .left { stroke: #111; stroke-width: 4; stroke-dasharray: 1 3; }
.culprit .box { fill: #ffe9e4; stroke: #111; stroke-width: 3; } .culprit text { font-weight: 700; }`

// WriteSVG writes tr as one picture: the lanes of WriteHTML, with the steps only that change the
// state of the file, begin or end an operation, preempt, or are the culprit. The same trace gives
// the same bytes.
func WriteSVG(w io.Writer, tr *scenario.Trace) error {
	d := newDrawing(tr, func(i int) bool {
		s := &tr.Steps[i]
		return len(s.Notes) > 0 || s.Preempts || i > 0 && !slices.Equal(s.State, tr.Steps[i-1].State)
	})
	height := headHeight + len(d.rows)*rowHeight + 4
	verdict := tr.Kept()
	if d.culprit >= 0 {
		verdict = tr.Violation.Violated()
	}
	var b svg
	b.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, d.width, height, d.width, height)
	b.add(`<title>%s, policy %s, schedule %s</title><desc>%s</desc>`, tr.Scenario, tr.Policy, tr.Schedule, verdict)
	b.WriteString("<style>" + svgStyle + "</style>\n")
	b.add(`<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
		`<rect width="7" height="7" fill="#fff"/><line x1="0" y1="0" x2="0" y2="7" stroke="#888" stroke-width="2"/></pattern></defs>`)
	b.add(`<rect width="%d" height="%d" fill="#fff"/>`, d.width, height)
	d.head(&b)
	b.add(`<g transform="translate(0 %d)">`, headHeight)
	d.lanesAndSteps(&b, 0, len(d.rows))
	b.add(`</g></svg>`)
	_, err := io.WriteString(w, b.String())
	return err
}
