package reproduce

import (
	"fmt"

	"btrlab/internal/fs"
	"btrlab/internal/measure/rig"
)

// Seed003 is the result of seed 003: 8 jobs, each with a sparse file of 128 MiB, write 4 KiB to 1
// MiB at random and fsync after each write, for 200 seconds. The rows that ablate are of no
// publication, which has one figure for all six patches.
//
// Fitted is one knob by one row: device_slower, the times of model nvme, by the throughput before,
// over the 200 seconds: some 22 passes over every file. In a pass the writes get smaller, since fio
// cuts a request where the pass has been, from 76 KiB on average in its first tenth to 17 in its
// last, and an fsync after each makes the throughput fall with them: a shorter run must be of whole
// passes. The publication names 8 cores, 32 GB and a raw NVMe drive; the dirty limits are Linux's
// shares of that memory. Room is a guess, too: a drive with room for some more block groups. A
// transaction is committed after 30 seconds, as by Linux.
var Seed003 = Study{
	Seed: "003", Job: rig.Seed003, Size: 8 * 128 << 20, Files: 8, Room: 30 << 30, Seconds: 200, MiB: true, Commit: fs.DefaultCommitInterval,
	Rows:  rows003(),
	Ratio: [2]string{"after", "before"},
	Calibration: Calibration{CPUs: 8, SMT: 1, CPU: 1, IdleExitNs: 5000, HandoffNs: 4_000_000, Model: "nvme", Slower: 1.3,
		DirtyBackground: 32 << 30 / 10, DirtyLimit: 32 << 30 / 5, EndioWorkers: 8, Seed: 1},
	Rests: "What the prediction rests on: device_slower is fitted to the throughput before the patches, one number to one number. With that device a writer " +
		"waits nearly all of its time for a sync of the log, its own or the one that it joins, and a leaf of the log is locked for 1.4 percent of the " +
		"time, by all eight together: a patch that made these locks free could hardly gain more. L6 takes half of the steps " +
		"that are done with a leaf locked, and they are the cheap half. L2 is about leaves that a deletion makes small: one in a hundred fsyncs does. " +
		"L4 needs a range over several leaves; L1, L3 and L5 save steps only. Differences of half a percent are those of another order of the same events. " +
		"What the 7.8 percent are from the simulation does not explain.",
}

// rows003 are the published rows, and one without each of the patches.
func rows003() []StudyRow {
	const before, after = "fsync-5.17", "fsync-5.18"
	rows := []StudyRow{
		{Name: "before", Policy: before, Fits: "device_slower", Published: Means{Write: 116}},
		{Name: "after", Policy: after, Published: Means{Write: 125}},
	}
	for i, l := range rig.Patches003() {
		rows = append(rows, StudyRow{Name: fmt.Sprintf("no L%d", i+1), About: "after without " + l, Policy: after + "!" + l, Ablates: "after"})
	}
	return rows
}
