package policy

// Atom is the largest piece of a write that no other write can be mixed into.
type Atom uint8

// The contracts on concurrent overlapping writes, weakest first.
const (
	AtomByte    Atom = iota
	AtomPage         // pages, also after a short copy
	AtomBatch        // a batch of the copy loop; a byte after a short copy
	AtomRequest      // the whole write: the results are those of a serial order
)

var atomNames = [...]string{"byte", "page", "batch", "request"}

func (a Atom) String() string { return atomNames[a] }

// Contract holds the promises of a policy under every schedule.
type Contract struct {
	WriteAtom Atom
	// TruncateHolds: after a truncate returned, i_size is what it set until a later operation.
	TruncateHolds bool
}

// Promise is the contract in words.
func (c Contract) Promise() string {
	s := "no other write is mixed into a " + c.WriteAtom.String() + " of a write; "
	if c.WriteAtom == AtomRequest {
		s = "no other write is mixed into a write; "
	}
	if c.TruncateHolds {
		return s + "a truncate that has returned holds"
	}
	return s + "a truncate that has returned may be undone by a write that began before it"
}

// Contract returns the promises of p's design; the explorer proves it or shows the schedule that
// breaks it.
func (p *Policy) Contract() Contract {
	c := Contract{WriteAtom: AtomRequest, TruncateHolds: true}
	if p.Has(BufUnlockInEOF) && !p.Has(WriteRangeLock) {
		c.WriteAtom = AtomBatch
		if p.Has(CopyByFolio) {
			c.WriteAtom = AtomPage
		}
		c.TruncateHolds = p.Has(SetsizeDrainFirst)
	}
	return c
}
