package oracle

import "math"

// Sync is a call of fsync, fdatasync or sync that returned without an error before the crash. A
// write with O_DSYNC is a Sync that starts when the write has taken effect.
type Sync struct{ Start, End int64 }

// Recovered is the content of the file after a crash at time At and recovery.
type Recovered struct {
	At   int64
	Seen []Seen
	Size int64 // or NoSize
}

// PerPageSync is the promise of Linux for a crash: every page, and the size, each on its own, is as
// it was at some time not before the last fsync.
var PerPageSync = Rule{Write: Page, Read: Page, Sizes: SizesApart}

// CheckFsync says whether a recovered image holds what fsync promised: what it shows is explained
// by a state of the file not before the last fsync that returned before the crash. That state may
// be as old as the moment that fsync was called: what ran beside it need not be in it, what had
// returned must. Rule.Read says what must be of one state together, the whole image (Request) or
// each page.
//
// It is Check with the image as one more read, which starts with the last fsync and returns at the
// crash. Final and FinalSize of h are not used.
func (c *Checker) CheckFsync(h *History, syncs []Sync, rec Recovered, r Rule) Verdict {
	return c.Check(crashed(h, syncs, rec), r)
}

// ExplainFsync explains what CheckFsync found broken; nil when it is not.
func (c *Checker) ExplainFsync(h *History, syncs []Sync, rec Recovered, r Rule) *Witness {
	return c.Explain(crashed(h, syncs, rec), r)
}

// crashed is the history that ends with the crash, and with the image as a read.
func crashed(h *History, syncs []Sync, rec Recovered) *History {
	n := &History{Size: h.Size, Holes: h.Holes, FinalSize: NoSize}
	image := Op{Kind: Read, Start: math.MinInt64, End: rec.At, See: rec.Seen, image: true, muted: rec.Size == NoSize}
	for _, s := range syncs {
		if s.End <= rec.At {
			image.Start = max(image.Start, s.Start)
		}
	}
	for _, o := range h.Ops {
		if o.Start > rec.At {
			continue
		}
		if o.End > rec.At {
			if o.Kind == Read || o.Kind == Stat {
				continue // it told nobody what it saw
			}
			o.End = Never
		}
		o.Commit = 0
		n.Ops = append(n.Ops, o)
		image.ID = max(image.ID, o.ID)
	}
	image.ID++
	if image.Hi = rec.Size; rec.Size == NoSize {
		image.Hi = 0
		for _, s := range rec.Seen {
			image.Hi = max(image.Hi, s.Hi)
		}
	}
	image.Got = image.Hi
	if rec.Size != NoSize {
		image.Hi++ // it asked for more than there was: the size is exactly this
	}
	n.Ops = append(n.Ops, image)
	return n
}
