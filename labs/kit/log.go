package kit

import (
	"btrlab/internal/data/treelog"
	"btrlab/internal/sched"
)

// LogItem is one file extent that an fsync puts into the log of its subvolume, which all fsyncs of
// the subvolume write. The file itself is the task's: nobody else logs or changes the extent
// meanwhile.
//
// A path is the locks that a search takes from the root of the log down to a leaf, and an item in
// that leaf. The leaf is locked for writing until Release; a search for deletion has locked up to
// two levels above it, too.
//
// Model: the steps of log_one_extent(). Difference: a use that no order can have is a panic.
type LogItem struct {
	steps           treelog.ItemSteps
	made            bool
	held            bool // the path has a leaf
	empty           bool // and points at an empty item
	written, logged bool
}

func (x *LogItem) use(t *Task, call string) {
	t.need("LogItem", call, "Put was")
}

func (x *LogItem) search(t *Task, call string) {
	switch x.use(t, call); {
	case x.held:
		panic("kit.LogItem." + call + " with a path held: it would wait for the leaf that it has")
	case x.logged:
		panic("kit.LogItem." + call + " after the item was released: the log has it")
	}
}

// Again reports whether this transaction has logged the file before: then the log may have items in
// the way.
func (x *LogItem) Again() bool { return x.steps.Again() }

// Prepare makes the item in memory of the task: ten fields.
func (x *LogItem) Prepare(t *Task) {
	x.use(t, "Prepare")
	x.made = true
	x.steps.Prepare(t.t)
}

// Sums copies the checksums of the extent to the log. It searches the same tree, with a path of its
// own.
func (x *LogItem) Sums(t *Task) error {
	x.use(t, "Sums")
	return x.steps.Sums(t.t)
}

// Drop deletes what the log has of the extent's range: whole items, and parts of items across its
// edges. It leaves the path held. true says that the path points at an empty item for the extent;
// false that the last leaf has no room for it.
func (x *LogItem) Drop(t *Task) (placed bool, err error) {
	x.search(t, "Drop")
	x.held = true
	x.empty, err = x.steps.Drop(t.t)
	return x.empty, err
}

// Insert searches the place of the extent, puts an empty item there, and leaves the path held. An
// error when there is one already.
func (x *LogItem) Insert(t *Task) error {
	x.search(t, "Insert")
	err := x.steps.Insert(t.t)
	x.held, x.empty = err == nil, err == nil
	return err
}

func (x *LogItem) write(t *Task, call string) {
	switch x.use(t, call); {
	case !x.held:
		panic("kit.LogItem." + call + " without a path: the item is nowhere")
	case !x.empty:
		panic("kit.LogItem." + call + " where no empty item is: Drop has found no room, so Insert must")
	}
	x.written = true
}

// Fill writes the fields of the empty item one by one, in the leaf.
func (x *LogItem) Fill(t *Task) {
	x.write(t, "Fill")
	x.steps.Fill(t.t)
}

// Copy copies the prepared item to the empty one, in one piece.
func (x *LogItem) Copy(t *Task) {
	if x.write(t, "Copy"); !x.made {
		panic("kit.LogItem.Copy before Prepare: there is nothing to copy")
	}
	x.steps.Copy(t.t)
}

// Release lets the path go.
func (x *LogItem) Release(t *Task) {
	switch x.use(t, "Release"); {
	case !x.held:
		panic("kit.LogItem.Release without a path")
	case x.empty && !x.written:
		panic("kit.LogItem.Release of an empty item: the log would keep it")
	}
	x.logged = x.written
	x.held, x.empty = false, false
	x.steps.Release(t.t)
}

// LogPath puts a file extent into a log. An error makes the fsync commit the transaction, which is
// right and slow.
type LogPath func(t *Task, x *LogItem) error

// Run calls p, and sees to it that nothing is left undone.
func (p LogPath) Run(t *sched.Task, s treelog.ItemSteps) error {
	x := &LogItem{steps: s}
	switch err := p(On(t), x); {
	case err != nil:
		return err
	case x.held:
		panic("Put has returned with the path held: all other fsyncs wait for it")
	case !x.logged:
		panic("Put has returned nil, and the item is not in the log")
	}
	return nil
}
