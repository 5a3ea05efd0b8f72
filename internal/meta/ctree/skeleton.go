package ctree

import (
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

type Forest struct{}

func NewForest(cfg Config) *Forest         { panic("soon") }
func (f *Forest) NodeSize() int            { panic("soon") }
func (f *Forest) SetAllocator(a Allocator) {}

type Buffer struct {
	Bytenr uint64
	Node   format.Node
}

// Level, Generation and Owner never change.
func (b *Buffer) Level() int         { panic("soon") }
func (b *Buffer) Generation() uint64 { panic("soon") }
func (b *Buffer) Owner() uint64      { panic("soon") }

// Put ends the use of a buffer that ReadBlock returned.
func (b *Buffer) Put() {}

type Check struct {
	Level      int
	Generation uint64
	Owner      uint64
	FirstKey   *format.Key
}

func (f *Forest) ReadBlock(t *sched.Task, bytenr uint64, want Check) (*Buffer, error) { panic("soon") }
func (f *Forest) DropBuffer(t *sched.Task, bytenr uint64)                             {}

type Root struct {
	ID   uint64
	Priv any // the owner's: transaction keeps the ROOT_ITEM here
}

func (f *Forest) OpenRoot(t *sched.Task, id, bytenr uint64, level int, generation, lastSnapshot uint64) (*Root, error) {
	panic("soon")
}
func (f *Forest) NewRoot(t *sched.Task, tr *Trans, id uint64) (*Root, error) { panic("soon") }
func (r *Root) Pointer() (bytenr uint64, level int, generation uint64)       { panic("soon") }
func (r *Root) Dirty(transid uint64) bool                                    { panic("soon") }

type DirtySet struct{}

func NewDirtySet() *DirtySet                                             { panic("soon") }
func (d *DirtySet) Buffers(t *sched.Task) []*Buffer                      { panic("soon") }
func (d *DirtySet) Len() int                                             { panic("soon") }
func (d *DirtySet) Remove(t *sched.Task, b *Buffer)                      {}
func (f *Forest) Seal(t *sched.Task, d *DirtySet)                        {}
func (f *Forest) WriteOut(t *sched.Task, d *DirtySet, w Submitter) error { panic("soon") }

type Path struct {
	Nodes [format.MaxLevel]*Buffer
	Slots [format.MaxLevel]int
	// LowestLevel stops the search above the leaves.
	LowestLevel int
	KeepLocks   bool
	// Nowait: try-locks only, no disk read; EAGAIN. For read searches.
	Nowait bool
	// ForExtension: insLen does not include an item header: the item will be grown if it is found.
	ForExtension bool
}

func (p *Path) Leaf() format.Node     { panic("soon") }
func (p *Path) Slot() int             { panic("soon") }
func (p *Path) Key() format.Key       { panic("soon") }
func (p *Path) Item() []byte          { panic("soon") }
func (p *Path) Release(t *sched.Task) {}

func (f *Forest) SearchSlot(t *sched.Task, tr *Trans, r *Root, key format.Key, p *Path, insLen int, cow bool) (found bool, err error) {
	panic("soon")
}

// SearchForward points p at the first item whose key is not before key; more is false when there is none.
func (f *Forest) SearchForward(t *sched.Task, r *Root, key format.Key, p *Path) (more bool, err error) {
	panic("soon")
}

// SearchBackward points p at the last item whose key is not after key.
func (f *Forest) SearchBackward(t *sched.Task, r *Root, key format.Key, p *Path) (more bool, err error) {
	panic("soon")
}

// NextLeaf, PrevLeaf, NextItem, PrevItem: the path is read-locked afterwards, whatever it was.
func (f *Forest) NextLeaf(t *sched.Task, r *Root, p *Path) (more bool, err error) { panic("soon") }
func (f *Forest) PrevLeaf(t *sched.Task, r *Root, p *Path) (more bool, err error) { panic("soon") }
func (f *Forest) NextItem(t *sched.Task, r *Root, p *Path) (more bool, err error) { panic("soon") }
func (f *Forest) PrevItem(t *sched.Task, r *Root, p *Path) (more bool, err error) { panic("soon") }

type Batch struct {
	Keys  []format.Key
	Sizes []int
}

func (f *Forest) InsertEmptyItem(t *sched.Task, tr *Trans, r *Root, p *Path, key format.Key, size int) error {
	panic("soon")
}
func (f *Forest) InsertItem(t *sched.Task, tr *Trans, r *Root, key format.Key, data []byte) error {
	panic("soon")
}
func (f *Forest) InsertEmptyItems(t *sched.Task, tr *Trans, r *Root, p *Path, batch Batch) error {
	panic("soon")
}

// DelItems deletes nr items from slot on of the leaf, which an insLen < 0 search locked. p.Nodes[0] is nil afterwards when the leaf is gone.
func (f *Forest) DelItems(t *sched.Task, tr *Trans, r *Root, p *Path, slot, nr int) error {
	panic("soon")
}
func (f *Forest) ExtendItem(t *sched.Task, p *Path, by int)                      {}
func (f *Forest) TruncateItem(t *sched.Task, p *Path, newSize int, fromEnd bool) {}

// DuplicateItem: EAGAIN when the item changed while the path was let go to make room: release and search again.
func (f *Forest) DuplicateItem(t *sched.Task, tr *Trans, r *Root, p *Path, newKey format.Key) error {
	panic("soon")
}

// SetItemKeySafe needs an insLen != 0 search (slot 0 changes the parents' keys).
func (f *Forest) SetItemKeySafe(t *sched.Task, p *Path, newKey format.Key) {}
func (f *Forest) DirtyLeaf(t *sched.Task, tr *Trans, p *Path)              {}
