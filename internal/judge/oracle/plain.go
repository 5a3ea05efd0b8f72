package oracle

import (
	"fmt"
	"math"
)

// Plain is the heart of the witness in one sentence, for somebody who has not read what rules and
// orders are: which operation has returned, or which two meet, and which bytes are there or
// missing. at says where the last look was, as "at the end".
func (w *Witness) Plain(at string) string {
	p := &w.Proof
	switch {
	case p.Impossible != "":
		return p.Impossible
	case len(p.Cycle) == 2:
		for i := range p.Cycle {
			if s := w.overtaken(&p.Cycle[i], &p.Cycle[1-i], at); s != "" {
				return s
			}
		}
	}
	facts := w.joined()
	if len(facts) == 0 {
		return "what was seen fits no order of the operations"
	}
	text := w.saw(facts[0], at)
	n := 1
	for n < len(facts) && facts[n].By == facts[0].By {
		text += ", and " + w.what(facts[n])
		n++
	}
	switch {
	case n < len(facts):
		text += ", but " + w.saw(facts[n], at)
	case n == 2 && facts[0].ofOne() && facts[1].ofOne():
		return text + ": neither came before the other as a whole"
	}
	return text + ": that fits no order of the operations"
}

// joined is the facts with neighbours as one.
func (w *Witness) joined() []Fact {
	var l []Fact
	for _, f := range w.Facts {
		if n := len(l); n > 0 && l[n-1].follows(f) {
			l[n-1].Hi = f.Hi
			continue
		}
		l = append(l, f)
	}
	return l
}

// ofOne says that f is about bytes that an operation has written.
func (f Fact) ofOne() bool { return !f.Size && f.From > 0 }

// follows says that g goes on where f ends.
func (f Fact) follows(g Fact) bool {
	return !f.Size && !g.Size && g.By == f.By && g.From == f.From && g.Lo == f.Hi
}

// overtaken is the cycle of an operation that has returned and of one that does not see it.
func (w *Witness) overtaken(see, time *Step, at string) string {
	if see.Why != NotYet || time.Why != InTime || see.By != see.Before {
		return ""
	}
	return w.full(see.After.Op) + " has returned, yet " + w.left(see.By.Op, see.Bytes, see.Source.Op, at)
}

// left says that by saw what source had left.
func (w *Witness) left(by ID, bytes Range, source ID, at string) string {
	if bytes == (Range{}) {
		for _, f := range w.Facts {
			if f.By == by && f.Size {
				return w.saw(f, at)
			}
		}
	}
	for _, f := range w.joined() { // zeroes may be what was there at the start
		if f.By == by && !f.Size && f.Lo < bytes.Hi && bytes.Lo < f.Hi {
			source = f.From
		}
	}
	return w.saw(Fact{By: by, Seen: Seen{Lo: bytes.Lo, Hi: bytes.Hi, From: source}}, at)
}

// saw is a fact in words.
func (w *Witness) saw(f Fact, at string) string {
	if f.By == Ending {
		return at + " " + w.what(f)
	}
	return w.full(f.By) + " saw that " + w.what(f)
}

// what is a fact without who saw it.
func (w *Witness) what(f Fact) string {
	switch {
	case !f.Size:
		return w.whose(f.Seen)
	case f.Min == f.Max:
		return "the file is " + Offset(f.Min) + " long"
	case f.Max == math.MaxInt64:
		return "the file is at least " + Offset(f.Min) + " long"
	}
	return "the file is at most " + Offset(f.Max) + " long"
}

// whose says of whom bytes are.
func (w *Witness) whose(s Seen) string {
	bytes := fmt.Sprintf("bytes [%s, %s) are ", Offset(s.Lo), Offset(s.Hi))
	switch s.From {
	case Zero:
		return bytes + "zeroes"
	case Initial:
		return bytes + "the initial content"
	case Foreign:
		return bytes + "a stranger's"
	}
	return bytes + "those of " + w.name(Placed{Op: s.From})
}

// full names an operation and what it does.
func (w *Witness) full(id ID) string {
	o := w.ops[id]
	switch {
	case id == Ending:
		return "the end"
	case id <= 0 || w.image != 0 && id == w.image || o.Hi <= o.Lo && o.Kind != Truncate:
		return w.name(Placed{Op: id})
	case o.Kind == Truncate:
		return fmt.Sprintf("%s to %s", w.name(Placed{Op: id}), Offset(o.Lo))
	}
	return fmt.Sprintf("%s [%s, %s)", w.name(Placed{Op: id}), Offset(o.Lo), Offset(o.Hi))
}

// Plain is a finding about bytes as Witness.Plain has it; "" for others.
func (f *Finding) Plain(h *History, at string) string {
	if f.Bytes == (Range{}) || h.op(f.Promised) == nil || f.Promised == f.From {
		return ""
	}
	w := &Witness{ops: map[ID]Op{}, kinds: map[ID]Kind{}}
	for _, o := range h.Ops {
		w.ops[o.ID], w.kinds[o.ID] = o, o.Kind
	}
	return w.full(f.Promised) + " has returned, yet " + w.left(f.By, f.Bytes, f.From, at)
}

// Offset is a place in a file, or a length, for people: 4K, 100.
func Offset(n int64) string {
	if n != 0 && n%1024 == 0 {
		return fmt.Sprintf("%dK", n>>10)
	}
	return fmt.Sprint(n)
}
