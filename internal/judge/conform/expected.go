package conform

import (
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The differences that are expected stand in a text, apart from the recorded run: "== NAME" begins
// an operation, "== NAME LANE N" the N-th sequence of one of its lanes (see Recorded), and each
// line below is one row that is not Same:
//
//	t 12 - NAME  STEP          the kernel's step 12 of the task, which the engine does not make
//	e 4 + NAME  STEP           a step of the engine before the kernel's step 4 elsewhere
//	t 7 ~ NAME  STEP => STEP   the kernel's step 7, with another value here
//
// So the text is a patch that turns the kernel's steps into the engine's, with the name of a
// difference at each line: a name holds for the rows that stand here, and for no other. A name with
// a question mark is a proposal of the tests' -rewrite, and counts as none until somebody has taken
// the mark away.
//
//go:embed expected/*.txt
var expectedText embed.FS

// place is a lane of an operation, in one of the sequences in which the kernel was recorded.
type place struct {
	op   string
	lane Lane
	n    int // from 1
}

func (p place) String() string {
	if p.n == 1 {
		return p.op
	}
	return fmt.Sprintf("%s %s %d", p.op, p.lane, p.n)
}

// parsePlace reads "NAME" or "NAME LANE N". The first is both lanes' first sequence.
func parsePlace(s string) (p place, err error) {
	words := strings.Fields(s)
	p.n = 1
	switch len(words) {
	case 1:
		p.op = words[0]
		return p, nil
	case 3:
		p.op = words[0]
		p.n, err = strconv.Atoi(words[2])
		p.lane = Lane(slices.Index([]string{Caller.String(), Elsewhere.String()}, words[1]))
		if err == nil && p.n > 1 && p.lane < lanes {
			return p, nil
		}
	}
	return p, fmt.Errorf("bad section %q, want NAME or NAME LANE N", s)
}

// difference is a line of the text.
type difference struct {
	at             int // the kernel's steps of the lane that come before
	sign           string
	name           string
	kernel, engine string
}

// known is the name that holds.
func (d *difference) known() string {
	if strings.HasPrefix(d.name, "?") {
		return ""
	}
	return d.name
}

func (d *difference) String() string {
	step := d.kernel + d.engine
	if d.sign == "~" {
		step = d.kernel + " => " + d.engine
	}
	return fmt.Sprintf("%d %s %s  %s", d.at, d.sign, d.name, step)
}

// expectations are the differences of all places.
type expectations map[place][]difference

func parseExpected(text string) (expectations, error) {
	x := expectations{}
	var at place
	for i, line := range strings.Split(text, "\n") {
		bad := func() (expectations, error) {
			return nil, fmt.Errorf("expected differences, line %d: bad %q", i+1, line)
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if section, ok := strings.CutPrefix(line, "== "); ok {
			var err error
			if at, err = parsePlace(section); err != nil {
				return bad()
			}
			continue
		}
		head, step, ok := strings.Cut(line, "  ")
		words := strings.Fields(head)
		if !ok || len(words) != 4 {
			return bad()
		}
		lane := Lane(slices.Index([]string{"t", "e"}, words[0]))
		n, err := strconv.Atoi(words[1])
		if lane >= lanes || err != nil || at.n > 1 && lane != at.lane {
			return bad()
		}
		d := difference{at: n, sign: words[2], name: words[3]}
		switch d.sign {
		case "-":
			d.kernel = step
		case "+":
			d.engine = step
		case "~":
			if d.kernel, d.engine, ok = strings.Cut(step, " => "); !ok {
				return bad()
			}
		default:
			return bad()
		}
		p := place{at.op, lane, at.n}
		x[p] = append(x[p], d)
	}
	return x, nil
}

// expectedRow is a row of the alignment that is expected: Same without a name, or a difference.
type expectedRow struct {
	kernel, engine string
	name           string
}

// rows applies the differences to the kernel's steps: the whole alignment that is expected. An
// error says that the differences are those of other steps.
func (x expectations) rows(p place, kernel []Event) ([]expectedRow, error) {
	var rows []expectedRow
	i := 0
	upTo := func(n int) {
		for ; i < n && i < len(kernel); i++ {
			s := kernel[i].String()
			rows = append(rows, expectedRow{kernel: s, engine: s})
		}
	}
	for _, d := range x[p] {
		upTo(d.at)
		if d.at != i {
			return nil, fmt.Errorf("%s, %s: difference %q is beyond the kernel's %d steps, or out of order", p, p.lane, d.String(), len(kernel))
		}
		if d.sign != "+" {
			if i == len(kernel) || kernel[i].String() != d.kernel {
				return nil, fmt.Errorf("%s, %s: the kernel's step %d is not that of %q", p, p.lane, i, d.String())
			}
			i++
		}
		rows = append(rows, expectedRow{d.kernel, d.engine, d.known()})
	}
	upTo(len(kernel))
	return rows, nil
}

// differences are the lines of an alignment, under the names that its rows have.
func differences(rows []Row) (list []difference) {
	at := 0
	for i := range rows {
		r := &rows[i]
		d := difference{at: at, name: r.Known, kernel: text(r.Kernel), engine: text(r.Engine)}
		if r.Kernel != nil {
			at++
		}
		switch {
		case r.Mark == Same:
			continue
		case r.Engine == nil:
			d.sign = "-"
		case r.Kernel == nil:
			d.sign = "+"
		default:
			d.sign = "~"
		}
		list = append(list, d)
	}
	return list
}

// judge gives the rows of an alignment the names of the expected ones at the same places, and
// returns the expected differences that are not there. Both lists are aligned by a longest common
// subsequence in which a row that is Same counts for more than all differences, so that a step in
// another place leaves a row without a counterpart on either side. Only lists that are alike in
// every row leave none.
func judge(rows []Row, want []expectedRow) (gone []Row) {
	ids := map[[2]string]int32{}
	id := func(kernel, engine string) int32 {
		k := [2]string{kernel, engine}
		n, ok := ids[k]
		if !ok {
			n = int32(len(ids))
			ids[k] = n
		}
		return n
	}
	a, b := make([]int32, len(rows)), make([]int32, len(want))
	for i := range rows {
		rows[i].Known = ""
		a[i] = id(text(rows[i].Kernel), text(rows[i].Engine))
	}
	for j := range want {
		b[j] = id(want[j].kernel, want[j].engine)
	}
	worth := func(i int) int32 {
		if rows[i].Mark == Same {
			return 1 << 14
		}
		return 1
	}
	n, m := len(a), len(b)
	best := make([]int32, (n+1)*(m+1)) // of a[i:], b[j:]
	for i := n - 1; i >= 0; i-- {
		w := worth(i)
		here, below := best[i*(m+1):(i+1)*(m+1)], best[(i+1)*(m+1):]
		for j := m - 1; j >= 0; j-- {
			if a[i] == b[j] {
				here[j] = below[j+1] + w
			} else {
				here[j] = max(below[j], here[j+1])
			}
		}
	}
	for i, j := 0, 0; j < m; {
		switch {
		case i < n && a[i] == b[j]:
			rows[i].Known = want[j].name
			i, j = i+1, j+1
		case i < n && best[(i+1)*(m+1)+j] >= best[i*(m+1)+j+1]:
			i++
		default:
			if w := &want[j]; w.kernel != w.engine {
				gone = append(gone, w.row())
			}
			j++
		}
	}
	return gone
}

// row is an expected row that is not there.
func (w *expectedRow) row() Row {
	r := Row{Known: w.name}
	side := func(s string) *Event {
		if s == "" {
			return nil
		}
		e, err := parseStep(s)
		if err != nil {
			panic("conform: expected differences: " + err.Error())
		}
		return &e
	}
	r.Kernel, r.Engine = side(w.kernel), side(w.engine)
	switch {
	case r.Engine == nil:
		r.Mark = Missing
	case r.Kernel == nil:
		r.Mark = Extra
	default:
		r.Mark = Value
	}
	return r
}
