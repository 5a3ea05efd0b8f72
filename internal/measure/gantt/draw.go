package gantt

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"btrlab/internal/draw"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// style adds to a report's.
const style = `body { max-width: 76rem; }
.plot .spin { fill: var(--ink); fill-opacity: .55; } .plot .wait { fill: var(--ink); fill-opacity: .45; }
.plot .code { fill: #111; font-weight: 600; }
.key .box { width: 1.1em; height: 1.1em; display: inline-block; text-align: center; line-height: 1.1em; color: #111; font-weight: 600; }
@media print { @page { size: A4 landscape; } }
`

const (
	rowsMost = 8 // locks in a picture, and events
	cpusMost = 32
	fills    = len(draw.Fills)
	// waitLeast is for how many tasks on average, in percent, that wait for it a lock or event has
	// a row.
	waitLeast = 1
)

// codes stand in a picture for the tasks with a colour of their own.
const codes = "ABCDEFGHIJKL"

type picture struct {
	Title, Sentence, Caption string
	Picture                  draw.HTML
	CPUs, Locks              [][]string
}

// Write writes the pictures as one page that needs nothing else: no network, no script. End has
// been called.
func (r *Recorder) Write(w io.Writer, title, command string) error {
	list, of := r.chosen()
	if len(list) == 0 || r.ended <= r.began {
		return errors.New("no task ran")
	}
	d := &drawing{r: r}
	d.colours()
	var pictures []*picture
	for i, win := range list {
		pictures = append(pictures, d.picture(win, of[i]))
	}
	page := draw.Page{Title: title, Style: draw.Report(style)}
	return page.Write(w, d.page(title, command, pictures))
}

// page is the body of the page.
func (d *drawing) page(title, command string, pictures []*picture) draw.HTML {
	var b draw.Writer
	b.Add(`<h1>%s</h1>`, title)
	b.Add(`<p class="conclusion">%s</p>`, pictures[0].Sentence)
	if command != "" {
		b.Add(`<p class="meta"><code>%s</code></p>`, command)
	}
	b.Add(`<p class="meta">A row for each CPU: the task that has it, by colour; dark is spinning for a lock. A row for each lock for which tasks waited: the task that has it,
and below it, dark, how many wait; then the events for which tasks waited, such as the end of a write to the device.</p>`)
	b.Add(`<ul class="key">`)
	for i, k := range d.order {
		b.Add(`<li><span class="box" style="background:%s">%s</span>%s</li>`, draw.Fills[i], codes[i:i+1], d.r.tasks[k])
	}
	if n := len(d.r.tasks) - len(d.order); n > 0 {
		b.Add(`<li><span class="box" style="background:%s"></span>%s</li>`, draw.Fills[fills-1], prose.Count(n, "other task"))
	}
	b.Add(`</ul>`)
	for i, p := range pictures {
		b.Add("<section>\n<h2>%s</h2>", p.Title)
		if i > 0 {
			b.Add(`<p>%s</p>`, p.Sentence)
		}
		b.Figure(p.Picture, "", p.Caption)
		b.Add(`<details><summary>the picture in numbers</summary>`)
		b.Table(p.CPUs)
		if len(p.Locks) > 1 {
			b.Table(p.Locks)
		}
		b.Add("</details>\n</section>")
	}
	return b.HTML()
}

// drawing is what the pictures of a page share: the colours of the tasks.
type drawing struct {
	r     *Recorder
	fills map[int]int // by key; others have the last
	order []int       // keys with a colour of their own
}

// colours gives those tasks a colour that had CPUs and locks for the longest.
func (d *drawing) colours() {
	sum := map[int]int64{}
	count := func(t *track) {
		for k, ns := range t.total() {
			sum[k] += ns
		}
	}
	for _, l := range d.r.whole.cpus {
		count(&l.busy)
	}
	for id, l := range d.r.whole.locks {
		if id.N > 0 {
			count(&l.busy)
		}
	}
	d.order = slices.SortedFunc(maps.Keys(sum), func(a, b int) int { return cmp.Or(cmp.Compare(sum[b], sum[a]), cmp.Compare(a, b)) })
	d.order = d.order[:min(len(d.order), fills-1)]
	slices.SortFunc(d.order, func(a, b int) int { return strings.Compare(d.r.tasks[a], d.r.tasks[b]) })
	d.fills = map[int]int{}
	for i, k := range d.order {
		d.fills[k] = i
	}
}

func (d *drawing) fill(key int) int {
	if f, ok := d.fills[key]; ok {
		return f
	}
	return fills - 1
}

// name is what a row of the picture is called: its class, with a number if another lock of the
// class has a row.
func name(l vtime.LockID, among []vtime.LockID) string {
	class := sched.ClassByID(l.Class).Name
	switch l.N {
	case 0:
		return class
	case others:
		return class + ", the others"
	}
	for _, o := range among {
		if o.Class == l.Class && o.N != l.N {
			return fmt.Sprintf("%s #%d", class, l.N)
		}
	}
	return class
}

func when(ns int64) string { return draw.Time(float64(ns)) }

// Sizes of a picture, in pixels.
const (
	width   = 1000
	left    = 160
	right   = 4
	rowHigh = 22
	waitHi  = 14 // waiters, below a lock's owners
	gap     = 5
)

// span is the length of the window, in nanoseconds: the run may end in it.
func (d *drawing) span(w *window) int64 { return min(w.end(), d.r.ended) - w.from }

// sentence says how busy the CPUs were in a window, and which lock and event tasks waited for the
// most: the first of each list.
func (d *drawing) sentence(w *window, locks, events []vtime.LockID) string {
	span := d.span(w)
	busy, spun := int64(0), int64(0)
	for _, l := range w.cpus {
		busy += l.busy.sum()
		spun += l.wait.sum()
	}
	share := func(ns int64) float64 { return float64(ns) / float64(span) }
	s := fmt.Sprintf("In %s of virtual time %.1f of %d CPUs were busy", when(span), share(busy), d.r.opt.CPUs)
	if spun > 0 {
		s += fmt.Sprintf(", %.1f of them spinning for a lock", share(spun))
	}
	switch {
	case len(locks) > 0 && share(w.locks[locks[0]].wait.sum()) >= 0.05:
		l := w.locks[locks[0]]
		s += fmt.Sprintf("; %s was held %.0f %% of the time, and %.1f tasks waited for it on average", name(locks[0], locks), 100*share(l.busy.sum()), share(l.wait.sum()))
	case len(locks) > 0:
		s += "; no lock had a twentieth of a task waiting for it on average"
	default:
		s += "; no lock had a hundredth of a task waiting for it on average"
	}
	if len(events) > 0 && share(w.locks[events[0]].wait.sum()) >= 0.05 {
		s += fmt.Sprintf("; %.1f waited for %s", share(w.locks[events[0]].wait.sum()), name(events[0], locks))
	}
	return s + "."
}

// axis draws the grid and below it, at y, when its lines are.
func (d *drawing) axis(v *draw.Writer, w *window, cols int, x func(col float64) float64, y int) {
	for i := 0; i <= 5; i++ {
		at := float64(cols) * float64(i) / 5
		anchor := "middle"
		if i == 5 {
			anchor = "end"
		}
		v.Add(`<path class="grid" d="M%.1f 0V%d"/><text x="%.1f" y="%d" text-anchor="%s">%s</text>`, x(at), y, x(at), y+14, anchor, when(w.from-d.r.began+d.span(w)*int64(i)/5))
	}
}

func (d *drawing) picture(w *window, of int) *picture {
	span := d.span(w)
	cols := int((span + w.width - 1) / w.width)
	locks, events := w.waits(span*waitLeast/100, rowsMost)
	name := func(l vtime.LockID) string { return name(l, locks) }

	share := func(ns int64) float64 { return float64(ns) / float64(span) }
	p := &picture{Title: "The whole run"}
	if !w.grows {
		p.Title = "A window of " + when(span)
		p.Caption = fmt.Sprintf("It begins %s after the job. ", when(w.from-d.r.began))
		if of > 1 {
			p.Caption += fmt.Sprintf("Of %d windows of this length, at 1, 2, 4, ... times the length, it is the one in which the CPUs were busiest. ", of)
		}
	}
	p.Sentence = d.sentence(w, locks, events)

	var v draw.Writer
	high := gap + min(d.r.opt.CPUs, cpusMost)*(rowHigh+gap) + len(locks)*(rowHigh+waitHi+gap) + len(events)*(waitHi+gap) + 26
	v.WidePicture(width, high, p.Title+". "+p.Sentence)
	x := func(col float64) float64 { return left + col/float64(cols)*(width-left-right) }
	y := gap
	label := func(text string, at, high int) {
		v.Add(`<text x="%d" y="%d" text-anchor="end">%s</text>`, left-6, at+high/2+4, text)
		v.Add(`<path class="grid" d="M%d %dH%d"/>`, left, at+high, width-right)
	}
	p.CPUs = [][]string{{"CPU", "busy", "spinning", "tasks that had it"}}
	for i := range min(d.r.opt.CPUs, cpusMost) {
		l := &lane{}
		if i < len(w.cpus) {
			l = w.cpus[i]
		}
		label(fmt.Sprintf("CPU %d", i), y, rowHigh)
		d.stack(&v, &l.busy, w, cols, x, y, rowHigh)
		area(&v, "spin", &l.wait, w, cols, x, y+rowHigh, rowHigh, 1)
		p.CPUs = append(p.CPUs, []string{fmt.Sprint(i), percent(share(l.busy.sum())), percent(share(l.wait.sum())), d.who(&l.busy)})
		y += rowHigh + gap
	}
	if n := d.r.opt.CPUs - cpusMost; n > 0 {
		p.Caption += fmt.Sprintf("CPUs %d to %d are not drawn. ", cpusMost, cpusMost+n-1)
	}
	p.Locks = [][]string{{"lock or event", "held", "tasks waiting, on average", "at most in a column", "tasks that held it"}}
	row := func(l vtime.LockID) {
		lane := w.locks[l]
		most := 0.0
		for _, c := range lane.wait.cells {
			most = max(most, float64(c.sum())/float64(w.width))
		}
		high := waitHi
		held, who := "", ""
		if l.N > 0 {
			high += rowHigh
			held, who = percent(share(lane.busy.sum())), d.who(&lane.busy)
		}
		waiting := fmt.Sprintf("waiting, at most %.1f", most)
		if l.N == 0 {
			waiting = fmt.Sprintf("%s, at most %.1f", name(l), most)
		}
		if l.N > 0 {
			label(name(l), y, rowHigh)
			d.stack(&v, &lane.busy, w, cols, x, y, rowHigh)
		} else if l.N == others {
			waiting = fmt.Sprintf("%s, %.1f", name(l), most)
		}
		label(waiting, y+high-waitHi, waitHi)
		area(&v, "wait", &lane.wait, w, cols, x, y+high, waitHi, max(1, most))
		p.Locks = append(p.Locks, []string{name(l), held, fmt.Sprintf("%.2f", share(lane.wait.sum())), fmt.Sprintf("%.1f", most), who})
		y += high + gap
	}
	for _, l := range append(locks, events...) {
		row(l)
	}
	d.axis(&v, w, cols, x, y)
	p.Picture = v.End()
	p.Caption += fmt.Sprintf("A column is %s wide, and shows the shares of its time. Times are since the job began.", when(w.width))
	return p
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// who are the three tasks with the most of a track, with their shares of it.
func (d *drawing) who(t *track) string {
	total := t.total()
	keys := slices.SortedFunc(maps.Keys(total), func(a, b int) int { return cmp.Or(cmp.Compare(total[b], total[a]), cmp.Compare(a, b)) })
	sum := max(1, t.sum())
	var l []string
	for _, k := range keys[:min(3, len(keys))] {
		l = append(l, fmt.Sprintf("%s %.0f %%", d.r.tasks[k], 100*float64(total[k])/float64(sum)))
	}
	if n := len(keys) - 3; n > 0 {
		l = append(l, fmt.Sprintf("%d more", n))
	}
	return strings.Join(l, ", ")
}

// stack draws, in each column, the tasks over each other, as high as their shares; equal columns
// are one box. A box with room for it says which task it is. Boxes are most of a page, so their
// unit is a column and a tenth of a pixel.
func (d *drawing) stack(v *draw.Writer, t *track, w *window, cols int, x func(float64) float64, y, high int) {
	type heights [fills]int
	of := func(c cell) (h heights) {
		var sum [fills]int64
		for _, s := range c {
			sum[d.fill(s.key)] += s.ns
		}
		for f, ns := range sum {
			h[f] = int(float64(ns)/float64(w.width)*float64(high)*10 + 0.5)
		}
		return h
	}
	var paths [fills]strings.Builder
	var letters draw.Writer
	for i := 0; i < cols; {
		h := of(t.cells[i])
		n := i + 1
		for n < cols && of(t.cells[n]) == h {
			n++
		}
		bottom := 10 * high
		for f, tall := range h {
			if tall <= 0 {
				continue
			}
			bottom -= tall
			fmt.Fprintf(&paths[f], "M%d %dh%dv%dh-%dz", i, bottom, n-i, tall, n-i)
			if f < len(d.order) && tall >= 120 && x(float64(n))-x(float64(i)) >= 9 {
				letters.Add(`<text class="code" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, (x(float64(i))+x(float64(n)))/2, float64(y)+float64(bottom+tall/2)/10+4, codes[f:f+1])
			}
		}
		i = n
	}
	for f := range paths {
		if paths[f].Len() == 0 {
			continue
		}
		title := "other tasks"
		if f < len(d.order) {
			title = d.r.tasks[d.order[f]]
		}
		v.Add(`<path class="boxes" transform="translate(%d %d) scale(%.4f .1)" style="fill:%s" d="%s"><title>%s</title></path>`, left, y, x(1)-x(0), draw.Fills[f], paths[f].String(), title)
	}
	v.WriteString(letters.String())
}

// area draws the sum of a track, of which full is as high as the row.
func area(v *draw.Writer, class string, t *track, w *window, cols int, x func(float64) float64, bottom, high int, full float64) {
	var d strings.Builder
	fmt.Fprintf(&d, "M%.1f %d", x(0), bottom)
	last := 0.0
	for i := range cols {
		h := float64(t.cells[i].sum()) / float64(w.width) / full * float64(high)
		h = float64(int(min(h, float64(high))*10+0.5)) / 10
		if h != last {
			fmt.Fprintf(&d, "H%.1fV%.1f", x(float64(i)), float64(bottom)-h)
			last = h
		}
	}
	if d.Len() < 20 && last == 0 {
		return
	}
	fmt.Fprintf(&d, "H%.1fV%dz", x(float64(cols)), bottom)
	v.Add(`<path class="%s" d="%s"/>`, class, d.String())
}
