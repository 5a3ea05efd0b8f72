package timeline

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"btrlab/internal/draw"
	"btrlab/internal/errno"
	"btrlab/internal/module"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// The style of the lanes, which a picture has, too, and what the page has besides.
var (
	//go:embed lanes.css
	lanesCSS string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// WriteHTML writes tr as one page without references to anything outside it: a lane for each task,
// time going down. A bar at the left of a lane is a lock held, hatching is a wait; the arrow keys
// move through the steps. Shape, pattern and words carry the meaning, so that it can be printed in
// black.
func WriteHTML(w io.Writer, tr *scenario.Trace) error {
	d := newDrawing(tr, nil)
	js, err := json.Marshal(d.details()) // it escapes <, > and &
	if err != nil {
		return err
	}
	schedule := tr.Schedule
	if schedule == "" {
		schedule = "''"
	}
	var b draw.Writer
	b.Add(`<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>
<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7"/><line x1="0" y1="0" x2="0" y2="7" stroke-width="2"/></pattern>
</defs></svg>
<h1>%s under %s</h1>
<p>%s</p>
<p>Schedule <code>%s</code>, %s.`, tr.Scenario, tr.Policy, tr.About, schedule, prose.Count(tr.Preemptions, "preemption"))
	if tr.Replay != "" {
		b.Add(` Replay: <code>%s</code>`, tr.Replay)
	}
	b.Add(`</p>`)
	d.verdict(&b)
	d.legend(&b)
	b.Add(`<p class="keys">Keys: ↑ ↓ or ← → step, Home End, p next preemption, x the marked access, c the calls. State columns are after the step; a value in bold is new.</p>`)
	head := d.header()
	b.Add("<p class=\"hint\" id=\"hint\" hidden>→ The picture is wider than the window: scroll it sideways.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"The steps\"><div class=\"pages\">\n<div class=\"top\">%s</div>\n%s</div></div>", head, d.chunks(head))
	d.rest(&b)
	b.Add("<section id=\"now\" aria-live=\"polite\"></section>\n<script>\n\"use strict\";\nconst steps = %s;\n%s</script>", draw.HTML(js), draw.HTML(pageJS))
	page := draw.Page{Title: fmt.Sprintf("%s, policy %s, schedule %s", tr.Scenario, tr.Policy, schedule), Style: lanesCSS + pageCSS,
		Head: "\n" + `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">`}
	return page.Write(w, b.HTML())
}

// verdict says what is violated; the rest of the report the page shows when it is asked to.
func (d *drawing) verdict(b *draw.Writer) {
	if d.tr.Kind == explore.OK {
		b.Add(`<div class="verdict kept">%s</div>`, d.tr.Kept())
		return
	}
	first, more, _ := strings.Cut("✗ "+d.tr.Violation.Violated(), "\n")
	folded := draw.HTML("")
	if more != "" {
		folded = "<details><summary>The whole report</summary>" + draw.Escape(more) + "</details>"
	}
	b.Add(`<div class="verdict">%s%s</div>`, first, folded)
}

// legend names the locks by their tags, and says what the signs mean.
func (d *drawing) legend(b *draw.Writer) {
	sign := func(sign, text any) { b.Add(`<div><dt>%s</dt><dd>%s</dd></div>`, sign, text) }
	b.Add(`<dl class="legend">`)
	for _, l := range d.tags {
		sign(l.Tag, l.Name)
	}
	sign("bar", "lock held")
	sign(draw.HTML(`<svg width="26" height="14"><rect x="1" y="1" width="24" height="12" class="wait"/></svg>`), "cannot go on")
	sign("⚡", "preemption: the task before could have gone on")
	if d.culprit >= 0 {
		sign("✗", fmt.Sprintf("step %d, %s", d.culprit, culpritText(d.tr)))
	}
	sign("▷ ◁", "an operation begins, returns")
	sign("pages", "one letter a page: "+pageLetters)
	b.Add(`</dl>`)
}

// rest says what the page does not show.
func (d *drawing) rest(b *draw.Writer) {
	if d.left > 0 {
		b.Add(`<p>%d steps in the middle are left out; a dotted line shows where. replay prints them all.</p>`, d.left)
	}
	if h := d.hidden(); h != "" {
		b.Add(`<p class="keys">Without a lane, for they only start: %s.</p>`, h)
	}
}

// Sizes in pixels.
const (
	rowHeight  = 22
	charWidth  = 6.7 // of the 11 px monospace font
	barWidth   = 13
	stepWidth  = 58
	lanePad    = 10
	headHeight = 26
)

const chunkSteps = 20 // rows that a printed page keeps together

// Of an execution with more steps, such as a livelock, the page shows the first and the last.
const firstSteps, lastSteps = 400, 200

// lockTag is the short name of a lock on the page.
type lockTag struct{ Tag, Name string }

// drawing is a trace on its way to the page.
type drawing struct {
	tr      *scenario.Trace
	culprit int
	pages   int   // letters of the pages column
	rows    []int // steps drawn, ascending
	row     []int // of each step and of the end; of a step not drawn, the next one's
	tasks   []int
	lanes   []lane
	cols    []column
	tags    []lockTag
	left    int // steps left out in the middle
	width   int
	picture bool // nothing but the rows of a picture
}

type lane struct {
	task    int
	x, w    int
	text    int // x of the text
	bars    []bar
	waits   []span
	op, end map[int]string // by step: notes
}

type bar struct {
	span
	sub    int // place beside others held at the same time
	places int // how wide it is
	tag    string
}

type column struct {
	name string
	of   int // which of the trace's columns
	x, w int
}

// newDrawing lays tr out. Without keep every step has a row. A picture has keep: its rows are the
// steps that keep wants and the culprit, and there is no lane, column, lock or label that none of
// them needs.
func newDrawing(tr *scenario.Trace, keep func(step int) bool) *drawing {
	d := &drawing{tr: tr, culprit: Culprit(tr), tasks: Shown(tr), pages: inMemory(tr), picture: keep != nil}
	d.chooseRows(keep)
	if d.picture {
		d.tasks = slices.DeleteFunc(d.tasks, func(t int) bool {
			return !slices.ContainsFunc(d.rows, func(i int) bool { return tr.Steps[i].Task == t })
		})
	}
	x := stepWidth
	for i, name := range tr.Columns {
		if d.picture && !d.changes(i) {
			continue
		}
		n := utf8.RuneCountInString(name)
		for _, k := range d.rows {
			n = max(n, utf8.RuneCountInString(cell(tr, tr.Steps[k].State, i, d.pages)))
		}
		w := int(float64(n)*charWidth) + 14
		d.cols = append(d.cols, column{name, i, x, w})
		x += w
	}
	for _, t := range d.tasks {
		l := d.lane(t)
		l.x = x
		l.text += x
		x += l.w
		d.lanes = append(d.lanes, l)
	}
	d.width = x + 4
	return d
}

// chooseRows says which steps have a row, and which row the others come to.
func (d *drawing) chooseRows(keep func(step int) bool) {
	tr := d.tr
	d.row = make([]int, len(tr.Steps)+1)
	gap := len(tr.Steps) - lastSteps
	if gap > firstSteps {
		d.left = gap - firstSteps
	}
	for i, s := range tr.Steps {
		d.row[i] = len(d.rows)
		if d.left > 0 && i >= firstSteps && i < gap && i != d.culprit {
			continue
		}
		if keep != nil && !keep(i) && i != d.culprit {
			continue
		}
		if slices.Contains(d.tasks, s.Task) && (s.Kind != "start" || len(s.Notes) > 0 || i == d.culprit) {
			d.rows = append(d.rows, i)
		}
	}
	d.row[len(tr.Steps)] = len(d.rows)
}

// changes reports whether column c says different things in the rows.
func (d *drawing) changes(c int) bool {
	return slices.ContainsFunc(d.rows, func(i int) bool {
		return cell(d.tr, d.tr.Steps[i].State, c, d.pages) != cell(d.tr, d.tr.Steps[d.rows[0]].State, c, d.pages)
	})
}

// seen reports whether s is as long as a row.
func (d *drawing) seen(s span) bool { return !d.picture || d.row[s.From] < d.row[s.To] }

// manyLocks is how many locks that are held over the same rows have a bar each in a picture.
const manyLocks = 4

// together are the places in held of the locks that a picture shows over the rows of s.
func (d *drawing) together(held []span, s span) (l []int) {
	for i, o := range held {
		if d.picture && d.row[o.From] == d.row[s.From] && d.row[o.To] == d.row[s.To] {
			l = append(l, i)
		}
	}
	return l
}

func (d *drawing) lane(task int) lane {
	l := lane{task: task, waits: slices.DeleteFunc(waitSpans(d.tr, task), func(s span) bool { return !d.seen(s) }), op: map[int]string{}, end: map[int]string{}}
	var until []int // by place: end of the bar there
	held := heldSpans(d.tr, task)
	for i, s := range held {
		many := d.together(held, s)
		if !d.seen(s) || len(many) > manyLocks && many[0] != i {
			continue
		}
		if len(many) > manyLocks { // one bar, two wide
			l.bars = append(l.bars, bar{s, len(until), 2, fmt.Sprintf("×%d", len(many))})
			until = append(until, s.To, s.To)
			continue
		}
		sub := slices.IndexFunc(until, func(end int) bool { return end <= s.From })
		if sub < 0 {
			sub = len(until)
			until = append(until, 0)
		}
		until[sub] = s.To
		l.bars = append(l.bars, bar{s, sub, 1, d.tag(s.What)})
	}
	l.text = lanePad + len(until)*barWidth + 4
	n := utf8.RuneCountInString(d.tr.Tasks[task]) + 4
	for i, s := range d.tr.Steps {
		if s.Task != task {
			continue
		}
		for _, note := range s.Notes {
			if note.Event == scenario.Begins {
				l.op[i] = note.String()
			} else {
				l.end[i] = note.String()
			}
		}
		switch long := utf8.RuneCountInString(d.label(&l, &s)); {
		case !d.picture || i == d.culprit:
			n = max(n, long+3)
		case slices.Contains(d.rows, i):
			n = max(n, long)
		}
	}
	for _, s := range l.waits {
		n = max(n, utf8.RuneCountInString("waits for "+s.What)+4)
	}
	most := 60
	if d.picture {
		most = pictureRoom
	}
	l.w = l.text + int(float64(min(n, most))*charWidth) + lanePad + 8
	return l
}

// Names lists locks.
func Names(locks []explore.Named) string {
	var l []string
	for _, x := range locks {
		l = append(l, x.Name)
	}
	return strings.Join(l, ", ")
}

// tag gives a lock its short name: A to Z, then A1 and so on.
func (d *drawing) tag(name string) string {
	if i := slices.IndexFunc(d.tags, func(t lockTag) bool { return t.Name == name }); i >= 0 {
		return d.tags[i].Tag
	}
	n := len(d.tags)
	t := string(rune('A' + n%26))
	if n >= 26 {
		t += fmt.Sprint(n / 26)
	}
	d.tags = append(d.tags, lockTag{t, name})
	return t
}

// Of a label in a picture: the most characters with the function in front, and the most at all.
const pictureLabel, pictureRoom = 30, 38

// label is the text in a step's box. In a picture a long one leaves the function out, then all but
// what was returned.
func (d *drawing) label(l *lane, s *scenario.TraceStep) string {
	t := l.label(s, s.Label())
	if d.picture && utf8.RuneCountInString(t) > pictureLabel {
		t = l.label(s, s.What.String())
	}
	if end := l.end[s.Step]; d.picture && utf8.RuneCountInString(t) > pictureLabel && end != "" {
		t = "◁ " + end
	}
	return t
}

func (l *lane) label(s *scenario.TraceStep, t string) string {
	if op := l.op[s.Step]; op != "" && (s.Kind == "start" || s.Kind == "call") {
		t = "▷ " + op
	} else if op != "" {
		t = "▷ " + op + " · " + s.What.String()
	}
	if end := l.end[s.Step]; end != "" {
		t += " ◁ " + end
	}
	return t
}

// head draws the names of the columns at the top of an svg.
func (d *drawing) head(b *draw.Writer) {
	b.Add(`<g class="head"><rect x="0" y="0" width="%d" height="%d" class="headbox"/><text x="%d" y="17" text-anchor="end">step</text>`, d.width, headHeight, stepWidth-12)
	for _, c := range d.cols {
		b.Add(`<text x="%d" y="17">%s</text>`, c.x, c.name)
	}
	for _, l := range d.lanes {
		kind := ""
		if l.task >= d.tr.Own {
			kind = " (daemon)"
		}
		b.Add(`<text x="%d" y="17" class="name">%d %s%s</text>`, l.x+lanePad, l.task, d.tr.Tasks[l.task], kind)
	}
	b.Add(`</g>`)
}

// size lets a drawing shrink with the window a little, as long as its words can be read; then it
// scrolls.
func (d *drawing) size() string {
	return fmt.Sprintf("width:clamp(%dpx,100%%,%dpx)", d.width*4/5, d.width)
}

func (d *drawing) header() draw.HTML {
	var b draw.Writer
	b.Add(`<svg xmlns="http://www.w3.org/2000/svg" style="%s" viewBox="0 0 %d %d" aria-hidden="true">`, d.size(), d.width, headHeight)
	d.head(&b)
	return b.End()
}

// chunks draws the steps, cut where a printed page may break; each has the head on paper.
func (d *drawing) chunks(head draw.HTML) draw.HTML {
	var b draw.Writer
	for from := 0; from < len(d.rows); from += chunkSteps {
		b.Add(`<div class="chunk"><div class="chunkhead">%s</div>%s</div>`, head, d.chunk(from, min(from+chunkSteps, len(d.rows))))
	}
	return b.HTML()
}

// chunk draws the rows [from, to).
func (d *drawing) chunk(from, to int) draw.HTML {
	var b draw.Writer
	h := (to - from) * rowHeight
	b.Add(`<svg class="steps" xmlns="http://www.w3.org/2000/svg" style="%s" viewBox="0 0 %d %d" role="img" aria-label="steps %d to %d">`,
		d.size(), d.width, h, d.rows[from], d.rows[to-1])
	d.lanesAndSteps(&b, from, to)
	return b.End()
}

// lanesAndSteps draws the rows [from, to), the first with its upper edge at 0.
func (d *drawing) lanesAndSteps(b *draw.Writer, from, to int) {
	h := (to - from) * rowHeight
	y := func(row int) int { return (row - from) * rowHeight }
	for _, l := range d.lanes {
		b.Add(`<line x1="%d" y1="0" x2="%d" y2="%d" class="lane"/>`, l.x, l.x, h)
		for _, s := range l.waits {
			f, t := max(d.row[s.From], from), min(d.row[s.To], to)
			if f >= t {
				continue
			}
			top, end := d.ends(s, y(f)+2, y(t)-2, from, to, h)
			b.Add(`<rect x="%d" y="%d" width="%d" height="%d" class="wait"><title>task %d waits for %s, steps %d to %d</title></rect>`,
				l.text-2, top, l.x+l.w-l.text-6, end-top, l.task, s.What, s.From, s.To-1)
			word := "waits for " + s.What
			b.Add(`<g class="%s"><rect x="%d" y="%d" width="%.0f" height="16" class="waitlabel"/><text x="%d" y="%d" class="waittext">%s</text></g>`,
				d.again(s, from), l.text+6, y(f)+3, float64(utf8.RuneCountInString(word))*charWidth+8, l.text+10, y(f)+15, word)
		}
		for _, s := range l.bars {
			f, t := max(d.row[s.From], from), min(d.row[s.To], to)
			if f >= t {
				continue
			}
			x := l.x + lanePad + s.sub*barWidth
			top, end := d.ends(s.span, y(f)+rowHeight/2-8, y(t)-rowHeight/2+6, from, to, h)
			b.Add(`<g class="bar"><title>task %d holds %s, steps %d to %d</title><rect x="%d" y="%d" width="%d" height="%d"/>`,
				l.task, s.What, s.From, s.To, x, top, s.places*barWidth-3, end-top)
			b.Add(`<text class="%s" x="%d" y="%d" text-anchor="middle">%s</text></g>`, d.again(s.span, from), x+s.places*barWidth/2-1, y(f)+rowHeight/2+4, s.tag)
		}
	}
	for r := from; r < to; r++ {
		d.step(b, d.rows[r], y(r))
	}
}

// ends are the edges of s between top and end in a chunk of height h: where s goes on from the
// chunk before or into the next one, its edge lies outside, so that on the screen, where the chunks
// touch, it is one piece.
func (d *drawing) ends(s span, top, end, from, to, h int) (int, int) {
	const outside = 3 // more than a line is wide
	if d.row[s.From] < from {
		top = -outside
	}
	if d.row[s.To] > to {
		end = h + outside
	}
	return top, end
}

// again is the class of a label that a chunk repeats for s, because on paper it may be on another
// page.
func (d *drawing) again(s span, from int) string {
	if d.row[s.From] < from {
		return "again"
	}
	return "first"
}

// step draws one step with its upper edge at y.
func (d *drawing) step(b *draw.Writer, i, y int) {
	s := &d.tr.Steps[i]
	class := "row"
	if i == d.culprit {
		class += " culprit"
	}
	b.Add(`<g class="%s" id="s%d"><rect x="0" y="%d" width="%d" height="%d" class="hit"/>`, class, i, y, d.width, rowHeight)
	if s.Preempts {
		b.Add(`<line x1="0" y1="%d" x2="%d" y2="%d" class="preempt"/><text x="4" y="%d" class="mark">⚡</text>`, y, d.width, y, y+16)
	}
	if d.left > 0 && i == len(d.tr.Steps)-lastSteps {
		b.Add(`<line x1="0" y1="%d" x2="%d" y2="%d" class="left"/>`, y, d.width, y)
	}
	b.Add(`<text x="%d" y="%d" text-anchor="end" class="num">%d</text>`, stepWidth-12, y+15, i)
	for _, col := range d.cols {
		c := col.of
		if c >= len(s.State) {
			continue
		}
		kind, before := "same", d.before(i)
		if before >= 0 && c < len(d.tr.Steps[before].State) && d.tr.Steps[before].State[c] != s.State[c] {
			kind = "new"
		}
		b.Add(`<text x="%d" y="%d" class="%s">%s</text>`, col.x, y+15, kind, cell(d.tr, s.State, c, d.pages))
	}
	k := slices.IndexFunc(d.lanes, func(l lane) bool { return l.task == s.Task })
	l := &d.lanes[k]
	b.Add(`<rect x="%d" y="%d" width="%d" height="%d" rx="3" class="box"/>`, l.text-2, y+2, l.x+l.w-l.text-6, rowHeight-4)
	text := d.label(l, s)
	room := int(float64(l.x+l.w-l.text-10) / charWidth)
	if i == d.culprit {
		text = "✗ " + text
	}
	b.Add(`<text x="%d" y="%d">%s</text></g>`, l.text+4, y+15, cut(brief(text), room))
}

// before is the step that the state of step i is compared with: in a picture the one of the row
// above, or -1.
func (d *drawing) before(i int) int {
	if r := d.row[i]; d.picture && r > 0 {
		return d.rows[r-1]
	} else if d.picture {
		return -1
	}
	return i - 1
}

// brief has the name of an error number in the place of its sentence, of those that steps answer
// with, and the place without the reason.
func brief(text string) string {
	text = strings.NewReplacer(errno.EAGAIN.Error(), "EAGAIN", errno.ENOSPC.Error(), "ENOSPC", errno.EOPNOTSUPP.Error(), "EOPNOTSUPP").Replace(text)
	if answer, at, ok := strings.Cut(text, "EAGAIN at "); ok {
		at, _, _ = strings.Cut(at, ": ")
		return answer + "EAGAIN at " + at
	}
	return text
}

// cut shortens text to n characters.
func cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:max(n-1, 0)]) + "…"
}

// hidden names the tasks without a lane.
func (d *drawing) hidden() string {
	var l []string
	for t, name := range d.tr.Tasks {
		if !slices.Contains(d.tasks, t) {
			l = append(l, fmt.Sprintf("%d %s", t, name))
		}
	}
	return strings.Join(l, ", ")
}

// stepDetail is the page's text for the chosen step.
type stepDetail struct {
	Step  int      `json:"step"`
	What  string   `json:"what"`
	State string   `json:"state"`
	Tasks []string `json:"tasks"`
	Stack string   `json:"stack"`
	Mark  string   `json:"mark"` // p preempts, c culprit
}

func (d *drawing) details() []stepDetail {
	l := []stepDetail{}
	for _, i := range d.rows {
		s := &d.tr.Steps[i]
		x := stepDetail{Step: i, What: fmt.Sprintf("step %d: task %d %s, %s", i, s.Task, d.tr.Tasks[s.Task], s.Label()), Stack: strings.ReplaceAll(s.Stack.String(), module.Path+"/internal/", "")}
		for _, n := range s.Notes {
			x.What += fmt.Sprintf(" [%v]", n)
		}
		var st []string
		for c, name := range d.tr.Columns {
			if c < len(s.State) {
				st = append(st, name+" "+cell(d.tr, s.State, c, d.pages))
			}
		}
		x.State = strings.Join(st, ", ")
		if s.Preempts {
			x.Mark += "p"
		}
		if i == d.culprit {
			x.Mark += "c"
		}
		m := At(d.tr, i+1)
		for _, t := range d.tasks {
			a := m.Tasks[t]
			line := fmt.Sprintf("%d %s: %v", t, d.tr.Tasks[t], a.Phase)
			if a.Whom != "" {
				line += " for " + a.Whom
			} else if a.Phase == Waiting {
				line += " for " + a.For.Name
				if h := m.Holder(t); h >= 0 {
					line += fmt.Sprintf(", held by task %d", h)
				}
			}
			if len(a.Held) > 0 {
				line += "; holds " + Names(a.Held)
			}
			if a.Phase == Ready {
				line += "; next " + a.Next
			}
			x.Tasks = append(x.Tasks, line)
		}
		l = append(l, x)
	}
	return l
}
