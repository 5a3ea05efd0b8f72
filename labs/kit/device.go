package kit

import (
	"btrlab/internal/data/writeback"
	"btrlab/internal/sched"
)

// DirtyRun is consecutive pages of a file on their way to the device. They are locked and under
// writeback, and have their place on disk.
//
// Model: the end of __extent_writepage() and btrfs_submit_bio(). Difference: a use that no order
// can have is a panic.
type DirtyRun struct {
	steps                     writeback.RunSteps
	unlocked, summed, started bool
}

func (r *DirtyRun) use(t *Task, call string, ok bool, why string) {
	t.need("DirtyRun", call, "Device was")
	if !ok {
		panic("kit.DirtyRun." + call + " " + why)
	}
}

// Copy copies the bytes of the pages. What is summed and submitted after it is the copy.
func (r *DirtyRun) Copy(t *Task) {
	r.use(t, "Copy", !r.started, "after Submit: the device has the pages")
	r.steps.Copy(t.t)
}

// Unlock lets the pages go: others may read and write them. They are under writeback until the
// device has what was submitted.
func (r *DirtyRun) Unlock(t *Task) {
	r.use(t, "Unlock", !r.unlocked, "twice")
	r.unlocked = true
	r.steps.Unlock(t.t)
}

// Sum makes the checksums, one for each page, which go into the tree once the device is done.
func (r *DirtyRun) Sum(t *Task) {
	r.use(t, "Sum", !r.started, "after Submit: the device may be done, and the checksums in the tree")
	r.summed = true
	r.steps.Sum(t.t)
}

// Submit hands the bytes to the device, which reads them some time later.
func (r *DirtyRun) Submit(t *Task) {
	r.use(t, "Submit", !r.started, "twice")
	r.use(t, "Submit", r.summed, "before Sum: what is on disk would have no checksum")
	r.started = true
	r.steps.Submit(t.t)
}

// DevicePath is what is done with a run of pages that is written back.
type DevicePath func(t *Task, r *DirtyRun)

// Run calls the path and sees to it that nothing is left undone.
func (device DevicePath) Run(t *sched.Task, steps writeback.RunSteps) {
	r := &DirtyRun{steps: steps}
	device(On(t), r)
	switch {
	case !r.unlocked:
		panic("Device has returned with the pages locked: whoever wants one waits for ever")
	case !r.started:
		panic("Device has returned without Submit: the pages are under writeback for ever")
	}
}

// HotPage is a page that one task writes again and again, and that is written back every now and
// then. Times are in nanoseconds.
type HotPage struct {
	Device int64 // from the begin of writeback until a write that waits for it may go on
	Every  int64 // from one begin of writeback to the next, on average; the writer is not in step
	Think  int64 // between the end of a write and the begin of the next
	Write  int64 // a write that waits for nothing
}

// Rewrites is how often the page is written in a second.
type Rewrites struct {
	Stable float64 // a page may not change until the device has it
	Copied float64 // the device is given a copy
}
