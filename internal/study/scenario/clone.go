package scenario

import (
	"fmt"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/sched"
)

// A reflink is two things to the oracle: a write of the range that it shares, and a read of the
// range of the other file. The bytes of a file name the operation that wrote them, and a reflink
// copies names. So the image has the number of the reflink in the range that it will read:
//
//	the source, [source, source+n)     has the reflink's number: there it counts as Initial
//	the destination, [off, off+n)      has it once the reflink has written
//
// A writer of the source puts its own number there. Where the destination has that, it is the
// reflink's write, which has read what the writer wrote; and the source gets a read of it. Nobody
// else writes the destination then.

// clone is a reflink that has returned.
type clone struct {
	Op
	id         oracle.ID
	start, end int64
}

// other is the file that x is not.
func (r *run) other(x *subject) *subject {
	if x == &r.first {
		return &r.second
	}
	return &r.first
}

// reflinks calls f for every reflink of the scenario, with its number.
func (s *Scenario) reflinks(f func(o Op, id oracle.ID)) {
	id := oracle.ID(0)
	for _, task := range s.Tasks {
		for _, o := range task.Ops {
			id++
			if o.Kind == OpReflink {
				f(o, id)
			}
		}
	}
}

// content is the first content of a file: Initial, and the numbers of the reflinks that will read
// it.
func (s *Scenario) content(second bool, size int64) []byte {
	p := make([]byte, size)
	oracle.Paint(p, oracle.Initial)
	s.reflinks(func(o Op, id oracle.ID) {
		if o.Second != second {
			oracle.Paint(p[o.Source:o.Source+o.N], id)
		}
	})
	return p
}

// writes reports whether an operation of the history of x is the one with the given number.
func (x *subject) wrote(id oracle.ID) bool {
	for i := range x.hist.Ops {
		if o := &x.hist.Ops[i]; o.ID == id && o.Kind != oracle.Read {
			return true
		}
	}
	return false
}

// seen says where the bytes of a file at off came from, in the words of its own history.
func (r *run) seen(x *subject, dst []oracle.Seen, p []byte, off int64) []oracle.Seen {
	n := len(dst)
	dst = unpaint(dst, p, off, r.lastID())
	r.s.reflinks(func(o Op, id oracle.ID) {
		for i := n; i < len(dst); i++ {
			e := &dst[i]
			switch here := r.of(o) == x; {
			case !here && e.From == id:
				e.From = oracle.Initial
			case here && e.From > 0 && e.From != id && e.Lo >= o.Off && e.Hi <= o.Off+o.N && !x.wrote(e.From):
				e.From = id
			}
		}
	})
	return dst
}

// enterClones enters into the histories of the sources what the reflinks have read, once.
func (r *run) enterClones(t *sched.Task) error {
	for _, c := range r.clones {
		to := r.of(c.Op)
		from := r.other(to)
		if r.writtenBeside(c) {
			continue // what the reflink has put there may be gone
		}
		p := make([]byte, c.N)
		if n, err := to.f.ReadAt(t, p, to.at+c.Off); n != len(p) {
			return fmt.Errorf("read %d of %d bytes of a reflink: %w", n, len(p), err)
		}
		from.hist.Ops = append(from.hist.Ops, oracle.Op{ID: c.id, Kind: oracle.Read, Lo: c.Source, Hi: c.Source + c.N, Got: c.N,
			Start: c.start, End: c.end, See: r.seen(from, nil, p, c.Source)})
	}
	r.clones = r.clones[:0]
	return nil
}

// writtenBeside reports whether another operation changes the file that a reflink writes.
func (r *run) writtenBeside(c clone) bool {
	for _, task := range r.s.Tasks {
		for _, o := range task.Ops {
			changes := o.Kind == OpWrite || o.Kind == OpTruncate || o.Kind == OpPunch || o.Kind == OpReflink && o != c.Op
			if changes && o.Second == c.Second {
				return true
			}
		}
	}
	return false
}
