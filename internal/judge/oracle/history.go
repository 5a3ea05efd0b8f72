package oracle

import (
	"fmt"
	"math"
)

// ID names an operation, 1 to MaxID. In what was seen it names the operation a byte came from, or
// one of the constants below.
type ID int32

const (
	Initial ID = 0  // what was in the file before the history, and no hole
	Zero    ID = -1 // a zero byte: from a hole, a truncate or a punch, whichever explains it
	Foreign ID = -2 // a byte nobody in this history wrote: stale data

	// MaxID is the largest ID of an operation.
	MaxID ID = 1<<16 - 1

	unseen ID = -3 // not observed
)

func (id ID) String() string {
	switch id {
	case Initial:
		return "the initial content"
	case Zero:
		return "zeroes"
	case Foreign:
		return "nobody"
	}
	return fmt.Sprintf("%d", int32(id))
}

// Kind is the kind of an operation.
type Kind uint8

const (
	Write    Kind = iota // [Lo, Hi)
	Append               // a write that found the size at Lo
	Read                 // asks for [Lo, Hi), returns Got bytes, saw See
	Truncate             // sets the size to Lo
	Punch                // zeroes [Lo, Hi), keeps the size
	// fallocate that may extend the size to Hi; no bytes change. With KEEP_SIZE it is no operation
	// here
	Allocate
	Stat // saw Size
	numKinds
)

var kindNames = [numKinds]string{"write", "append", "read", "truncate", "punch", "fallocate", "stat"}

func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

func (k Kind) zeroes() bool  { return k == Truncate || k == Punch }
func (k Kind) changes() bool { return k == Write || k == Append || k == Truncate || k == Punch }

// Never is the End of an operation that has not returned, as at a crash.
const Never = math.MaxInt64

// NoSize is the FinalSize of a history whose final size was not looked at.
const NoSize = -1

// Range is [Lo, Hi) in bytes.
type Range struct{ Lo, Hi int64 }

// Seen says where the bytes [Lo, Hi) came from.
type Seen struct {
	Lo, Hi int64
	From   ID
}

// Op is one operation as it happened. A write that was cut short is entered with the bytes it
// wrote; one that failed without effect is left out.
type Op struct {
	ID     ID
	Kind   Kind
	Lo, Hi int64 // bytes; Truncate: Lo is the new size, Hi is not used

	// Start and End are the times of call and return, in any unit that grows: ticks, steps,
	// nanoseconds.
	Start, End int64

	// Commit is a hint: when the operation took effect as a whole, say when it got the lock or
	// touched the last page. 0 is unknown. A wrong hint costs time, never the verdict.
	Commit int64

	// Batches and Extents are the offsets inside (Lo, Hi) at which the Batch and the Extent
	// contract may cut it.
	Batches, Extents []int64

	Got int64 // Read: bytes returned, from Lo on
	// Read: within [Lo, Lo+Got), ascending, not overlapping; bytes left out were not looked at
	See  []Seen
	Size int64 // Stat: the size it saw

	muted bool // what it saw of the size is not judged; for explanations
	image bool // a read that is a recovered image
}

// History has the operations on one file from one quiet moment on.
type History struct {
	Size  int64   // at the start; bytes beyond it are zero
	Holes []Range // bytes before Size that are zero at the start

	Ops []Op // in any order

	// Final is the content of the file after all operations have returned, in the form of Op.See;
	// nil if nobody looked.
	Final     []Seen
	FinalSize int64 // or NoSize; only read when the rule asks for sizes
}

// Validate says what is wrong with the form of the history. The checks in this package expect none
// of it.
func (h *History) Validate() error {
	seen := make(map[ID]bool, len(h.Ops))
	for i := range h.Ops {
		o := &h.Ops[i]
		where := func(format string, a ...any) error {
			return fmt.Errorf("bad history: op=%d kind=%v, %s", int32(o.ID), o.Kind, fmt.Sprintf(format, a...))
		}
		switch {
		case o.ID <= 0 || o.ID > MaxID:
			return where("have id %d want 1 to %d", int32(o.ID), int32(MaxID))
		case seen[o.ID]:
			return where("id is there twice")
		case o.Kind >= numKinds:
			return where("no such kind")
		case o.Lo < 0 || o.Kind != Truncate && o.Kind != Stat && o.Hi < o.Lo:
			return where("bad range, have [%d, %d)", o.Lo, o.Hi)
		case o.End < o.Start:
			return where("returns at %d before it starts at %d", o.End, o.Start)
		case o.Kind == Read && (o.Got < 0 || o.Got > o.Hi-o.Lo):
			return where("have %d bytes returned want 0 to %d", o.Got, o.Hi-o.Lo)
		case o.Kind == Stat && o.Size < 0:
			return where("have size %d", o.Size)
		case o.Kind != Read && len(o.See) > 0:
			return where("only a read sees bytes")
		}
		seen[o.ID] = true
		if err := validSeen(o.See, Range{o.Lo, o.Lo + o.Got}); err != nil {
			return where("%v", err)
		}
		for _, cuts := range [2][]int64{o.Batches, o.Extents} {
			for j, b := range cuts {
				if b <= o.Lo || o.Kind != Truncate && b >= o.Hi || j > 0 && b <= cuts[j-1] {
					return where("bad cut at %d", b)
				}
			}
		}
	}
	if h.Size < 0 || h.FinalSize < NoSize {
		return fmt.Errorf("bad history: have size %d, final size %d", h.Size, h.FinalSize)
	}
	for _, r := range h.Holes {
		if r.Lo < 0 || r.Hi < r.Lo {
			return fmt.Errorf("bad history: bad hole, have [%d, %d)", r.Lo, r.Hi)
		}
	}
	if err := validSeen(h.Final, Range{0, math.MaxInt64}); err != nil {
		return fmt.Errorf("bad history: final: %w", err)
	}
	for i := range h.Ops {
		if h.Final != nil && h.Ops[i].End == Never {
			return fmt.Errorf("bad history: op=%d has not returned, so nothing is final", int32(h.Ops[i].ID))
		}
	}
	return nil
}

func validSeen(s []Seen, in Range) error {
	at := in.Lo
	for _, x := range s {
		if x.Lo < at || x.Hi < x.Lo || x.Hi > in.Hi {
			return fmt.Errorf("bad bytes seen, have [%d, %d) want ascending in [%d, %d)", x.Lo, x.Hi, in.Lo, in.Hi)
		}
		if x.From < Foreign || x.From > MaxID {
			return fmt.Errorf("bad source of [%d, %d), have %d", x.Lo, x.Hi, int32(x.From))
		}
		at = x.Hi
	}
	return nil
}

// Contract says which operations must take effect at one instant.
type Contract uint8

const (
	Byte   Contract = iota // nothing bigger than a byte: only order in time is promised
	Page                   // each page of an operation
	Batch                  // the pages a buffered write prepares, copies and dirties together
	Extent                 // what one extent, or one ordered extent, holds
	// the whole call: the reading of POSIX in which calls are atomic to each other
	Request
	numContracts
)

var contractNames = [numContracts]string{"byte", "page", "batch", "extent", "request"}

func (c Contract) String() string {
	if c < numContracts {
		return contractNames[c]
	}
	return fmt.Sprintf("Contract(%d)", uint8(c))
}

// ParseContract is the inverse of String.
func ParseContract(s string) (Contract, error) {
	for i, n := range contractNames {
		if s == n {
			return Contract(i), nil
		}
	}
	return 0, fmt.Errorf("no contract %q, there are byte, page, batch, extent and request", s)
}

// Sizes says how much of i_size is judged.
type Sizes uint8

const (
	SizesOff Sizes = iota // not at all
	// the size of an operation takes effect somewhere in its time, apart from its bytes
	SizesApart
	// the size changes with the piece: max(size, end of the piece); truncate with its first piece
	SizesWith
)

// Rule is a contract in full.
type Rule struct {
	Write Contract // for everything that changes bytes
	// Linux reads no lock for a buffered read on btrfs and ext4: Page; on XFS: Request
	Read     Contract
	Sizes    Sizes
	PageSize int64 // 0 means 4096
}

// The levels a design climbs.
var (
	// L0: each page of each call is on its own
	PerPage = Rule{Write: Page, Read: Page}
	// L1: writes whole, reads page by page
	Writes = Rule{Write: Request, Read: Page}
	Calls  = Rule{Write: Request, Read: Request} // L2: reads whole too
	// L3: and truncate, size and append
	CallsSize = Rule{Write: Request, Read: Request, Sizes: SizesWith}
)

// Ladder holds the rules from the weakest to the strongest. A history that keeps one keeps those
// before it, but for Batch and Extent, neither of which is part of the other.
var Ladder = []Rule{
	{Write: Byte, Read: Byte},
	PerPage,
	{Write: Batch, Read: Page},
	{Write: Extent, Read: Page},
	Writes,
	Calls,
	CallsSize,
}

func (r Rule) pageSize() int64 {
	if r.PageSize > 0 {
		return r.PageSize
	}
	return 4096
}

func (r Rule) String() string {
	s := fmt.Sprintf("writes per %v, reads per %v", r.Write, r.Read)
	switch r.Sizes {
	case SizesApart:
		s += ", size apart"
	case SizesWith:
		s += ", size with them"
	}
	return s
}

// Outcome is the result of a check.
type Outcome uint8

const (
	Kept      Outcome = iota
	Broken            // no order explains what was seen
	Undecided         // the budget ran out
)

func (o Outcome) String() string { return [...]string{"kept", "broken", "undecided"}[o] }

// Verdict is the answer and how it was found.
type Verdict struct {
	Outcome  Outcome
	Tier     int // the highest tier that was needed: 0, 1 or 2
	Pieces   int // the contract made of the operations; 0 when tier 0 sufficed
	Branches int // guesses tier 2 made
}

// Placed is a piece in an order that explains a kept history.
type Placed struct {
	Op     ID
	Lo, Hi int64 // the bytes of the piece; Lo == Hi for one that is about the size alone
}
