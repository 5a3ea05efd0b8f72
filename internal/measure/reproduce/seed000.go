package reproduce

import (
	"fmt"

	"btrlab/internal/measure/rig"
)

// Seed000 is the result of seed 000: 4 jobs with 64 requests each read and write 4 KiB to 1 MiB of
// one written NODATACOW file, past the cache, for 300 seconds. The rows that ablate are of no
// publication, which has one figure for all eight patches.
//
// Fitted is one knob by one row (btrlab reproduce 000 --calibrate 10 --runtime-seconds 40; fio's
// map of blocks that were used makes blocks smaller until all of the file was, so that a fit to
// less than one such round of 40 seconds is one to other blocks): device_slower, the time of a
// transfer, by the throughput before. The publication names the processors, the memory and "a
// spinning disk"; 814 MiB/s of random transfers are no head's, so some cache under the file system
// answers after a time of its own. Model delay is that and no more. The choice decides: of a fast
// device that serves one request at a time (hdd, slower=0.01) no row is faster than another,
// because a job that waits leaves it to the other three.
var Seed000 = Study{
	Seed: "000", Job: rig.Seed000, Size: 8 << 30, Seconds: 300, MiB: true, Written: true,
	Rows:  rows000(),
	Ratio: [2]string{"after", "before"},
	Calibration: Calibration{CPUs: 12, SMT: 1, CPU: 1, IdleExitNs: 5000, HandoffNs: 4_000_000, Model: "delay", Slower: 9.66,
		DirtyBackground: 64 << 20, DirtyLimit: 128 << 20, EndioWorkers: 8, Seed: 1},
	Rests: "What the prediction rests on: device_slower is fitted to the throughput before the patches, one number to one number. That the device takes " +
		"any number of requests at once is a choice of people who knew both rows; of one that serves them one after the other the patches gain nothing here. " +
		"The rows without one patch say where the gain is from: with D1 a request does not wait for a range that another one has. D0 is for files with " +
		"compressed extents, which no NODATACOW file has; D7 waits only when metadata space is short; D6 only when memory is. The tree searches, paths and " +
		"leaf locks of D2 to D5 are counted, but no row is bound by the processor. Every request takes the device the same " +
		"time here. With a lognormal spread, sigma 1 or 1.5 and the same mean, one round of 40 seconds gains 2.3 or 4.4 %, not 0.9, because a request that sleeps does so " +
		"until a slow one has left its range; the publication tells no spread. What is still missing the simulation does not explain.",
}

// rows000 are the published rows, and one without each of the patches.
func rows000() []StudyRow {
	const before, after = "nowait-5.8", "nowait-5.19"
	rows := []StudyRow{
		{Name: "before", Policy: before, Fits: "device_slower", Published: Means{Read: 407, Write: 407}},
		{Name: "after", Policy: after, Published: Means{Read: 436, Write: 435}},
	}
	for i, d := range rig.Patches000() {
		rows = append(rows, StudyRow{Name: fmt.Sprintf("no D%d", i), About: "after without " + d, Policy: after + "!" + d, Ablates: "after"})
	}
	return rows
}
