package oracle

import (
	"fmt"
	"math"
)

// Finding is one broken promise, in words and with what it is about.
type Finding struct {
	Promised ID    // whose promise: an operation, Initial, or 0 with By 0 when it is no operation's
	By       ID    // who saw it broken: an operation, or Ending
	Bytes    Range // where; empty when it is about the size
	From     ID    // whose bytes were seen there
	Text     string
}

func (f Finding) String() string { return f.Text }

// view is one look at the file: a read, a stat, or the end.
type view struct {
	by         ID
	kind       Kind
	start, end int64
	seen       []Seen
	sized      bool
	lo, hi     int64
}

func (v view) String() string {
	if v.by == Ending {
		return "the end"
	}
	return fmt.Sprintf("%v %d", v.kind, int32(v.by))
}

func (h *History) views() []view {
	var vs []view
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Kind != Read && o.Kind != Stat {
			continue
		}
		v := view{by: o.ID, kind: o.Kind, start: o.Start, end: o.End, seen: o.See}
		v.lo, v.hi, v.sized = o.sizeSeen()
		vs = append(vs, v)
	}
	if h.Final != nil || h.FinalSize != NoSize {
		vs = append(vs, view{by: Ending, start: math.MaxInt64, end: math.MaxInt64, seen: h.Final,
			sized: h.FinalSize != NoSize, lo: h.FinalSize, hi: h.FinalSize})
	}
	return vs
}

// reach is how far an operation may extend the file; ok is false when it cannot.
func (o *Op) reach() (int64, bool) {
	switch o.Kind {
	case Write, Append, Allocate:
		return o.Hi, o.Hi > o.Lo
	case Truncate:
		return o.Lo, true
	}
	return 0, false
}

// CheckEOF judges the promises about the end of the file, without asking for any atomicity:
//
//   - after truncate(N) returned, nothing beyond N exists until an extending operation, one that
//     did not return before the truncate started, reaches there; and no byte beyond N is what was
//     there before the truncate;
//   - after an operation that reaches N returned, the file ends no earlier than N until such a
//     truncate.
//
// The start of the history counts as a truncate to Size that returned. Time is O(looks ·
// operations²).
func CheckEOF(h *History) []Finding {
	var out []Finding
	start := Op{Kind: Truncate, Lo: h.Size, Start: math.MinInt64, End: math.MinInt64}
	for _, v := range h.views() {
		for i := -1; i < len(h.Ops); i++ {
			o := &start
			if i >= 0 {
				o = &h.Ops[i]
			}
			n, ok := o.reach()
			if !ok || i >= 0 && o.End >= v.start || v.by == o.ID {
				continue
			}
			// far and near are how big and how small what may come after o can have made the file.
			far, near := n, n
			for j := range h.Ops {
				e := &h.Ops[j]
				if j == i || e.End < o.Start || e.Start > v.end {
					continue
				}
				if m, ok := e.reach(); ok {
					far = max(far, m)
					if e.Kind == Truncate {
						near = min(near, m)
					}
				}
			}
			if v.sized && v.hi < near {
				out = append(out, Finding{o.ID, v.by, Range{}, 0, fmt.Sprintf("lost end of file: %s saw a size of at most %d, after %s, and nothing makes the file smaller than %d since",
					v, v.hi, o.promise(), near)})
			}
			if o.Kind != Truncate {
				continue
			}
			if v.sized && v.lo > far {
				out = append(out, Finding{o.ID, v.by, Range{}, 0, fmt.Sprintf("lost truncate: %s saw a size of at least %d, after %s, and nothing since reaches beyond %d",
					v, v.lo, o.promise(), far)})
			}
			if i < 0 {
				continue
			}
			for _, s := range v.seen {
				lo := max(s.Lo, o.Lo)
				if lo >= s.Hi {
					continue
				}
				var from string
				if w := h.op(s.From); s.From == Initial {
					from = "the initial content"
				} else if w != nil && w.End < o.Start {
					from = fmt.Sprintf("%v %d, which had returned before", w.Kind, int32(w.ID))
				} else {
					continue
				}
				out = append(out, Finding{o.ID, v.by, Range{lo, s.Hi}, s.From, fmt.Sprintf("bytes beyond a truncate came back: %s saw %s from %s, after %s",
					v, bytesText(Range{lo, s.Hi}), from, o.promise())})
			}
		}
	}
	return out
}

// promise says what o did, and when.
func (o *Op) promise() string {
	switch {
	case o.ID == 0:
		return fmt.Sprintf("the start with size %d", o.Lo)
	case o.Kind == Truncate:
		return fmt.Sprintf("truncate %d to %d returned", int32(o.ID), o.Lo)
	}
	return fmt.Sprintf("%v %d, which reaches %d, returned", o.Kind, int32(o.ID), o.Hi)
}

func (h *History) op(id ID) *Op {
	for i := range h.Ops {
		if h.Ops[i].ID == id {
			return &h.Ops[i]
		}
	}
	return nil
}

// CheckStale finds bytes that nobody can have put there, in whatever order things happened: foreign
// ones; bytes of an operation that never changed them, or that had not started when they were seen;
// initial content where there was none; zeroes where there was no hole and no truncate or punch
// reached; and zeroes where a write had returned before they were seen and no truncate or punch can
// have come after it. Time is O(bytes seen, as ranges · operations²).
func CheckStale(h *History) []Finding {
	var out []Finding
	var cover []Range
	for _, v := range h.views() {
		for _, s := range v.seen {
			var why string
			cover = cover[:0]
			switch s.From {
			case Foreign:
				why = "nobody in this history wrote them"
			case Initial:
				why = "a hole was there at the start, or nothing"
				cover = append(cover, uncovered(Range{0, h.Size}, h.Holes)...)
			case Zero:
				why = "no hole was there, and no truncate or punch reached there"
				cover = append(append(cover, Range{h.Size, math.MaxInt64}), h.Holes...)
				for i := range h.Ops {
					if o := &h.Ops[i]; o.Kind.zeroes() && o.Start <= v.end {
						cover = append(cover, o.changed())
					}
				}
			default:
				why = "there is none of that number"
				if o := h.op(s.From); o != nil {
					why = "it never changed them"
					if o.Start > v.end {
						why = "it had not started"
					} else if o.Kind.changes() {
						cover = append(cover, o.changed())
					}
				}
			}
			say := func(r Range, why string) {
				out = append(out, Finding{s.From, v.by, r, s.From, fmt.Sprintf("stale data: %s saw %s as %s, but %s", v, bytesText(r), h.whose(s.From), why)})
			}
			said := uncovered(Range{s.Lo, s.Hi}, cover)
			for _, r := range said {
				say(r, why)
			}
			if s.From != Zero {
				continue
			}
			for i := range h.Ops {
				w := &h.Ops[i]
				if w.Kind != Write && w.Kind != Append || w.End >= v.start {
					continue
				}
				in := Range{max(s.Lo, w.Lo), min(s.Hi, w.Hi)}
				cover = append(cover[:0], said...)
				for j := range h.Ops {
					if o := &h.Ops[j]; o.Kind.zeroes() && o.Start <= v.end && o.End >= w.Start {
						cover = append(cover, o.changed())
					}
				}
				for _, r := range uncovered(in, cover) {
					say(r, fmt.Sprintf("%v %d had returned, and no truncate or punch can have come after it", w.Kind, int32(w.ID)))
					said = append(said, r)
				}
			}
		}
	}
	return out
}

// whose names the writer of bytes: "write 2's".
func (h *History) whose(id ID) string {
	switch id {
	case Foreign:
		return "a stranger's"
	case Initial:
		return "the initial content"
	case Zero:
		return "zeroes"
	}
	if o := h.op(id); o != nil {
		return fmt.Sprintf("%v %d's", o.Kind, int32(o.ID))
	}
	return fmt.Sprintf("operation %d's", int32(id))
}

// changed is the range of bytes that o changes.
func (o *Op) changed() Range {
	if o.Kind == Truncate {
		return Range{o.Lo, math.MaxInt64}
	}
	return Range{o.Lo, o.Hi}
}

// uncovered returns what of r none of the ranges covers, ascending.
func uncovered(r Range, cover []Range) []Range {
	var out []Range
	for at := r.Lo; at < r.Hi; {
		end, next := at, r.Hi // covered up to end; or the next cover begins at next
		for _, c := range cover {
			if c.Lo <= at && c.Hi > end {
				end = c.Hi
			} else if c.Lo > at && c.Lo < c.Hi {
				next = min(next, c.Lo)
			}
		}
		if end > at {
			at = end
			continue
		}
		out = append(out, Range{at, next})
		at = next
	}
	return out
}
