package conform

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Pair is two operations that two tasks do at once, on files that are open in both.
type Pair struct {
	Name, About string
	Setup       string // a script: see call
	First       string // what the first task does
	Other       string // what the other one does
}

// Pairs is the table of pairs.
var Pairs = []Pair{
	{"write-truncate", "a buffered write, and a truncate below it", file, "write f 32k 32k", "truncate f 16k"},
	{"write-truncate-into", "a buffered write of a page that a truncate cuts", file, "write f 4k 4k", "truncate f 6k"},
	{"write-write", "two buffered writes that overlap", file, "write f 0 32k", "write f 16k 32k"},
	{"write-write-page", "two buffered writes of one page", file, "write f 4k 2k", "write f 6k 2k"},
	{"append-append", "two buffered writes beyond EOF", file, "write f 64k 8k", "write f 72k 8k"},
	{"write-read", "a buffered write, and a read of what it writes", file + "drop f", "write f 16k 16k", "read f 0 64k"},
	{"write-punch", "a buffered write, and a punch of the same range", file, "write f 16k 16k", "punch f 16k 16k"},
	{"write-zero", "a buffered write, and a zeroing of the same range", file, "write f 16k 16k", "zero f 16k 16k"},
	{"write-falloc", "a buffered write at EOF, and an allocation there", file, "write f 64k 16k", "falloc f 64k 64k"},
	{"write-dread", "a buffered write, and a direct read of the range", file, "write f 0 16k", "dread f 0 16k"},
	{"dwrite-truncate", "a direct write, and a truncate below it", nosum, "dwrite f 32k 32k", "truncate f 16k"},
	{"dwrite-dwrite", "two direct writes that overlap", nosum, "dwrite f 0 32k", "dwrite f 16k 32k"},
	{"dwrite-dwrite-apart", "two direct writes that do not overlap", nosum, "dwrite f 0 16k", "dwrite f 32k 16k"},
	{"dwrite-write", "a direct and a buffered write that overlap", nosum, "dwrite f 0 32k", "write f 16k 32k"},
	{"dwrite-punch", "a direct write, and a punch of the same range", nosum, "dwrite f 16k 16k", "punch f 16k 16k"},
	{"dwrite-dread", "a direct write, and a direct read of the range", nosum, "dwrite f 0 16k", "dread f 0 16k"},
	{"nocow-truncate", "a direct write in place, and a truncate below it", nocow, "dwrite f 32k 32k", "truncate f 16k"},
	{"truncate-truncate", "two truncates", file, "truncate f 32k", "truncate f 16k"},
	{"truncate-up", "a truncate downwards, and one upwards", file, "truncate f 16k", "truncate f 128k"},
	{"fsync-write", "an fsync of a dirty block, and a write of another one", file + "fsync f; write f 4k 4k", "fsync f", "write f 32k 4k"},
	{"fsync-write-same", "an fsync of a dirty block, and a write of the same one", file + "fsync f; write f 4k 4k", "fsync f", "write f 4k 4k"},
	{"fsync-truncate", "an fsync of a dirty block, and a truncate below it", file + "fsync f; write f 32k 4k", "fsync f", "truncate f 16k"},
	{"fsync-fsync", "two fsyncs of one file with a dirty block", file + "fsync f; write f 4k 4k", "fsync f", "fsync f"},
	{"start-write", "writeback of a dirty block, and a write of it", file + "write f 4k 4k", "start f", "write f 4k 4k"},
	{"start-truncate", "writeback of a dirty block, and a truncate below it", file + "write f 32k 4k", "start f", "truncate f 16k"},
}

// FindPair gives the pair of the name, or nil.
func FindPair(name string) *Pair {
	if i := slices.IndexFunc(Pairs, func(p Pair) bool { return p.Name == name }); i >= 0 {
		return &Pairs[i]
	}
	return nil
}

// op is the pair's setup.
func (p *Pair) op() *Op { return &Op{Name: p.Name, Setup: p.Setup} }

// only is the pair without one of its operations: 0 keeps the first, 1 the other.
func (p *Pair) only(i int) *Pair {
	x := *p
	if i == 0 {
		x.Other = ""
	} else {
		x.First = ""
	}
	return &x
}

// PairStep is a step of a pair: one that tells the order of two tasks. Of the steps of one task
// these are the ones that are compared: locks of the inode and of ranges, ordered extents, pages
// that become dirty or go, waits.
type PairStep struct {
	Lane Lane
	Name string // "lock", "unlock" for bits of a range, otherwise as Event's
	What string
	// What it is about: the inode's lock, or the bytes [from, to).
	inode    bool
	from, to int64
}

func (s *PairStep) String() string {
	return strings.TrimSpace(string("tes"[s.Lane]) + " " + s.Name + " " + s.What)
}

// text is the step without its task.
func (s *PairStep) text() string { return s.String()[2:] }

// depends says that the order of two steps of different tasks counts: they are about the same lock,
// or about bytes that overlap. Others may be swapped, and the file system does the same.
func (s *PairStep) depends(o *PairStep) bool {
	if s.inode || o.inode {
		return s.inode && o.inode
	}
	return s.from < o.to && o.from < s.to
}

// rangeLocks are the bits of a range that lock it.
var rangeLocks = []string{"LOCKED", "DIO_LOCKED"}

// pairSteps are the steps of an event that are compared in pairs; most have none.
func pairSteps(e *Event) (list []PairStep) {
	s := PairStep{Lane: e.Lane, Name: e.Name, What: e.About}
	switch e.Name {
	case "inode_lock", "inode_unlock", "inode_lock_shared", "inode_unlock_shared", "inode_dio_wait":
		if s.inode = true; e.About == "dir" {
			return nil
		}
		return []PairStep{s}
	case "set_extent_bit", "clear_extent_bit":
		bits, at, _ := strings.Cut(e.About, " ")
		s.Name = map[string]string{"set_extent_bit": "lock", "clear_extent_bit": "unlock"}[e.Name]
		s.from, s.to = parseSpan(at)
		if bits == "ALL" { // a page goes, which was locked
			bits = rangeLocks[0]
		}
		for _, bit := range rangeLocks {
			if slices.Contains(strings.Split(bits, "|"), bit) {
				s.What = bit + " " + at
				list = append(list, s)
			}
		}
		return list
	case "ordered_extent_add", "ordered_extent_remove":
		_, at, _ := strings.Cut(e.About, " ")
		s.from, s.to = parseSpan(at)
		return []PairStep{s}
	case "writeback_dirty_folio", "mm_filemap_delete_from_page_cache":
		n, err := strconv.ParseInt(strings.TrimPrefix(e.About, "page "), 10, 64)
		if err != nil {
			panic(fmt.Sprintf("conform: step %q names no page", e))
		}
		s.from, s.to = n<<12, (n+1)<<12
		return []PairStep{s}
	}
	return nil
}

// parseSpan reads what span gives.
func parseSpan(s string) (from, to int64) {
	a, b, ok := strings.Cut(strings.Trim(s, "[)"), ",")
	if !ok {
		panic(fmt.Sprintf("conform: bad range %q", s))
	}
	if b == "end" {
		return parseSize(a), 1 << 62
	}
	return parseSize(a), parseSize(b)
}

// parsePairStep reads what String gives.
func parsePairStep(s string) (PairStep, error) {
	lane, text, ok := strings.Cut(s, " ")
	name, about, _ := strings.Cut(text, " ")
	i := strings.Index("tes", lane)
	if !ok || i < 0 || len(lane) != 1 {
		return PairStep{}, fmt.Errorf("bad step %q of a pair", s)
	}
	e := Event{Lane: Lane(i), Name: name, About: about}
	switch name {
	case "lock":
		e.Name = "set_extent_bit"
	case "unlock":
		e.Name = "clear_extent_bit"
	}
	list := pairSteps(&e)
	if len(list) != 1 || list[0].String() != s {
		return PairStep{}, fmt.Errorf("bad step %q of a pair", s)
	}
	return list[0], nil
}

// lockLate moves each lock of an inode or a range to the place before the next step of its task: a
// kernel tells that a task begins to take it, and until that step others may have it. A range that
// the task had to wait for is told once more for each try, and what it got of it at first is let
// go; the last try counts.
func lockLate(events []Event) (list []Event) {
	waiting := map[Lane]Event{}
	for _, e := range events {
		w, ok := waiting[e.Lane]
		switch {
		case !ok:
		case e == w || w.Group == Bits && gaveUp(&w, &e):
			continue
		default:
			list = append(list, w)
			delete(waiting, e.Lane)
		}
		if takes(&e) {
			waiting[e.Lane] = e
		} else {
			list = append(list, e)
		}
	}
	for l := range Second + 1 {
		if w, ok := waiting[l]; ok {
			list = append(list, w)
		}
	}
	return list
}

// takes says that the event is a task's that begins to take a lock.
func takes(e *Event) bool {
	if e.Name == "set_extent_bit" {
		return len(pairSteps(e)) > 0
	}
	return e.Name == "inode_lock" || e.Name == "inode_lock_shared"
}

// gaveUp says that e lets go the beginning of the range that the task has begun to lock by w.
func gaveUp(w, e *Event) bool {
	if e.Name != "clear_extent_bit" {
		return false
	}
	a, b := pairSteps(w), pairSteps(e)
	return len(a) > 0 && len(b) > 0 && a[0].from == b[0].from && b[0].to < a[0].to
}

// stepsOf are the steps of events that are compared in pairs.
func stepsOf(events []Event) (list []PairStep) {
	for i := range events {
		list = append(list, pairSteps(&events[i])...)
	}
	return list
}

// PairRun is what a kernel was seen to do in a pair: each operation alone, and both at once,
// several times.
type PairRun struct {
	Pair     *Pair
	Alone    [2][]PairStep // by the task: the first, the other
	Together [][]PairStep
}

// mixed is how often the steps of the two tasks take turns.
func mixed(steps []PairStep) (n int) {
	last := Elsewhere
	for i := range steps {
		if l := steps[i].Lane; l != Elsewhere {
			if last != Elsewhere && l != last {
				n++
			}
			last = l
		}
	}
	return n
}
