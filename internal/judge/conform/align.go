package conform

import "strings"

// Mark says how the two sides of a row go together.
type Mark uint8

// The marks.
const (
	Same    Mark = iota
	Missing      // the kernel does it, the engine does not
	Extra        // the engine does it, the kernel does not
	Order        // both do it, not in this order
	Count        // both do it, not as often
	Value        // both do it here, with another range, size or bit
)

// Marks are the marks of differences.
const Marks = Value + 1

func (m Mark) String() string {
	return [...]string{"", "missing", "extra", "order", "count", "value"}[m]
}

// Row is a step of an alignment: one side is nil where the other has no counterpart.
type Row struct {
	Kernel, Engine *Event
	Mark           Mark
	Known          string // the name of the difference, if it has one
}

// Align puts the two sequences side by side: the longest common subsequence is Same, and what is
// left is told apart by what else there is of it.
func Align(kernel, engine []Event) []Row {
	rows := common(kernel, engine)
	rows = pairValues(rows)
	// How often each step of a side has no counterpart.
	var lone [2]map[string]int
	lone[0], lone[1] = map[string]int{}, map[string]int{}
	same := map[string]bool{}
	for _, r := range rows {
		switch {
		case r.Mark == Same:
			same[r.Kernel.String()] = true
		case r.Mark == Missing:
			lone[0][r.Kernel.String()]++
		case r.Mark == Extra:
			lone[1][r.Engine.String()]++
		}
	}
	for i := range rows {
		r := &rows[i]
		var s string
		var other map[string]int
		switch r.Mark {
		case Missing:
			s, other = r.Kernel.String(), lone[1]
		case Extra:
			s, other = r.Engine.String(), lone[0]
		default:
			continue
		}
		switch {
		case other[s] > 0:
			r.Mark = Order
		case same[s]:
			r.Mark = Count
		}
	}
	return rows
}

// common marks a longest common subsequence as Same and the rest as Missing or Extra, the kernel's
// first.
func common(a, b []Event) []Row {
	n, m := len(a), len(b)
	as, bs := make([]string, n), make([]string, m)
	for i := range a {
		as[i] = a[i].String()
	}
	for i := range b {
		bs[i] = b[i].String()
	}
	best := make([][]int32, n+1) // best[i][j] is the length for a[i:], b[j:]
	for i := range best {
		best[i] = make([]int32, m+1)
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if as[i] == bs[j] {
				best[i][j] = best[i+1][j+1] + 1
			} else {
				best[i][j] = max(best[i+1][j], best[i][j+1])
			}
		}
	}
	var rows []Row
	for i, j := 0, 0; i < n || j < m; {
		switch {
		case i < n && j < m && as[i] == bs[j]:
			rows = append(rows, Row{Kernel: &a[i], Engine: &b[j]})
			i, j = i+1, j+1
		case j == m || i < n && best[i+1][j] >= best[i][j+1]:
			rows = append(rows, Row{Kernel: &a[i], Mark: Missing})
			i++
		default:
			rows = append(rows, Row{Engine: &b[j], Mark: Extra})
			j++
		}
	}
	return rows
}

// pairValues joins, in each gap between common steps, those of the two sides that are alike.
func pairValues(rows []Row) []Row {
	var out []Row
	for i := 0; i < len(rows); {
		if rows[i].Mark == Same {
			out = append(out, rows[i])
			i++
			continue
		}
		j := i
		for j < len(rows) && rows[j].Mark != Same {
			j++
		}
		out = append(out, pairGap(rows[i:j])...)
		i = j
	}
	return out
}

// alike says that two different steps are one step with another value.
func alike(a, b *Event) bool {
	if a.Name != b.Name {
		return false
	}
	aw, ar, _ := strings.Cut(a.About, " ")
	bw, br, _ := strings.Cut(b.About, " ")
	switch a.Group {
	case Bits: // other bits of the range, or another range with the bits
		return aw == bw || ar == br
	case Space, Block: // another number of one kind
		return aw == bw
	case Refs: // another size or place; another action or tree is another reference
		return sameRef(a.About, b.About)
	case Ordered, Places, Pages:
		return true
	}
	return false
}

// sameRef compares two references without their sizes and places.
func sameRef(a, b string) bool {
	words := func(s string) string {
		var keep []string
		for _, w := range strings.Fields(s) {
			if w[0] < '0' || w[0] > '9' {
				keep = append(keep, w)
			}
		}
		return strings.Join(keep, " ")
	}
	return words(a) == words(b)
}

// pairGap keeps the order of both sides: a step is paired with the first like it that comes
// after the last pair.
func pairGap(gap []Row) (out []Row) {
	var kernel, engine []*Event
	for _, r := range gap {
		if r.Kernel != nil {
			kernel = append(kernel, r.Kernel)
		} else {
			engine = append(engine, r.Engine)
		}
	}
	at := 0
	for _, k := range kernel {
		with := -1
		for j := at; j < len(engine) && with < 0; j++ {
			if alike(k, engine[j]) {
				with = j
			}
		}
		if with < 0 {
			out = append(out, Row{Kernel: k, Mark: Missing})
			continue
		}
		for ; at < with; at++ {
			out = append(out, Row{Engine: engine[at], Mark: Extra})
		}
		out = append(out, Row{Kernel: k, Engine: engine[at], Mark: Value})
		at++
	}
	for ; at < len(engine); at++ {
		out = append(out, Row{Engine: engine[at], Mark: Extra})
	}
	return out
}
