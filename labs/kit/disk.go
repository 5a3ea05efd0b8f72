package kit

import "btrlab/internal/sched"

// DiskSteps is the grader's side of a Disk.
type DiskSteps interface {
	Connection() int
	Sync(t *sched.Task) error
}

// Disk is the file that is served, as one flush of a guest sees it. It is yours until Flush
// returns.
type Disk struct {
	steps DiskSteps
	over  bool
}

func (d *Disk) use(t *Task, call string) {
	t.need("Disk", call, "Flush was")
	if d.over {
		panic("kit.Disk." + call + " after its Flush has returned")
	}
}

// Connection is the number of the connection that asks, from 0 on.
func (d *Disk) Connection(t *Task) int {
	d.use(t, "Connection")
	return d.steps.Connection()
}

// Sync makes every write durable that was answered before it began, of all connections. It takes
// as long as the device does. Of a write that is answered meanwhile it promises nothing.
//
// After an error those writes are lost, and no later Sync says so: it tries what came after them.
// A Sync that begins while another one is under way does not end before that, and knows nothing of
// its error.
//
// Model: fsync() of a file that is open once. Linux marks pages clean whose writeback has failed,
// and tells each open file once (errseq_t).
//
// Preconditions:
//   - t holds no Mutex: Sync sleeps.
func (d *Disk) Sync(t *Task) error {
	d.use(t, "Sync")
	for _, h := range t.t.HeldLocks { // empty with real tasks
		if h.Class == mutexClass.ID {
			panic("kit.Disk.Sync by a task that holds a Mutex: it sleeps until the device is done")
		}
	}
	return d.steps.Sync(t.t)
}

// Flusher answers the flushes of all connections.
type Flusher interface {
	Flush(t *Task, d *Disk) error
}

// RunFlush asks f for one flush.
func RunFlush(f Flusher, t *Task, steps DiskSteps) error {
	d := &Disk{steps: steps}
	err := f.Flush(t, d)
	d.over = true
	return err
}

// SyncProfile is what was measured of one connection that thinks, writes a block, flushes, and
// begins again, alone on its disk. Times are in nanoseconds.
type SyncProfile struct {
	Think int64 // of the guest, between an answer and its next write
	Write int64
	Sync  int64
}

// FlushRates is what connections get that share the Syncs.
type FlushRates struct {
	PerSecond float64 // flushes that are answered in a second, of all connections together
	Latency   float64 // mean nanoseconds from the begin of a write to the answer of its flush
}
