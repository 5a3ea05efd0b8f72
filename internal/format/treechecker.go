package format

// CheckContext is what the reader or writer of a tree block knows about it from elsewhere.
type CheckContext struct {
	// Root is the tree the block was reached from, for the error text; the header's owner decides the rules.
	Root       uint64
	SectorSize uint32
	NodeSize   uint32
	Generation uint64 // newest acceptable, of the block and of what it points at; 0 checks none
	Level      int    // the level the block must have
}

// CheckLeaf reports the first rule that the leaf breaks, or nil.
func CheckLeaf(n Node, c CheckContext) error { return nil }

// CheckNode reports the first rule that the inner node breaks, or nil.
func CheckNode(n Node, c CheckContext) error { return nil }

// CheckSuper reports the first rule that the superblock in b breaks, or nil. devSize is in bytes.
func CheckSuper(b []byte, devSize int64) error { return nil }
