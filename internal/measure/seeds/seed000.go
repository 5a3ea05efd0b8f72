package seeds

import (
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/linuxfile"
)

// Seed 000: 4 jobs with 64 requests each read and write 4 KiB to 1 MiB of one written NODATACOW
// file, past the cache, for 300 seconds. The rows that ablate are of no publication, which has one
// figure for all eight patches.
//
// Fitted is one knob by one row (btrlab reproduce 000 --calibrate 10 --runtime-seconds 40; fio's
// map of blocks that were used makes blocks smaller until all of the file was, so that a fit to
// less than one such round of 40 seconds is one to other blocks): device_slower, the time of a
// transfer, by the throughput before. The publication names the processors, the memory and "a
// spinning disk"; 814 MiB/s of random transfers are no head's, so some cache under the file system
// answers after a time of its own. Model delay is that and no more. The choice decides: of a fast
// device that serves one request at a time (hdd, slower=0.01) no row is faster than another,
// because a job that waits leaves it to the other three.
var _ = add(Seed{
	Name: "000", Title: "NOWAIT direct requests through io_uring", MiB: true,
	Rows: append([]Row{
		{Name: "before", Policy: before000, Fits: []string{"device_slower"}, Published: Figures{Read: 407, Write: 407}},
		{Name: "after", Policy: after000, Published: Figures{Read: 436, Write: 435}},
	}, patches000...),
	Ratio: [2]string{"after", "before"},
	Compare: Compare{
		About: `Seed 000: 4 jobs read and write 4 KiB to 1 MiB past the cache through io_uring, before the eight patches for NOWAIT direct IO and with
them; --ablation adds a row for each patch, without it. Each row has what a request cost that was tried without waiting: tree searches,
path allocations, steps with a leaf locked for nothing, steps that may block, sleeps, and the places of EAGAIN.`,
		Rows: []Compared{
			{Name: "before", About: "Linux 5.18: a direct request with NOWAIT may sleep", Of: "before"},
			{Name: "after", About: "with the eight patches of the seed", Of: "after"},
		},
		Baseline: "before", Pairs: [][2]string{{"after", "before"}}, Ablation: ablation(patches000), Model: "delay",
		Linux: []experiment.Other{{Name: "linux", About: "the running kernel: io_uring past the page cache, on the device of its directory", Open: linuxfile.Row}},
	},
	Study: Study{
		About: `Seed 000 (4 jobs, iodepth 64, 4 KiB to 1 MiB past the cache, 8 GiB, 300 seconds) is run before its eight patches for NOWAIT direct IO, with
them, and without each of them. The device is calibrated on the throughput before; the throughput with the patches is predicted, and the
rows without one patch say what each contributes. --calibrate needs --runtime-seconds 40 here.`,
		Size: 8 << 30, Seconds: 300, Written: true,
		Calibration: Calibration{CPUs: 12, SMT: 1, CPU: 1, IdleExitNs: 5000, HandoffNs: 4_000_000, Model: "delay", Slower: 9.66,
			DirtyBackground: 64 << 20, DirtyLimit: 128 << 20, EndioWorkers: 8, Seed: 1},
		Rests: says("What the prediction rests on: device_slower is fitted to the throughput before the patches, one number to one number. That the device takes " +
			"any number of requests at once is a choice of people who knew both rows; of one that serves them one after the other the patches gain nothing here. " +
			"The rows without one patch say where the gain is from: with D1 a request does not wait for a range that another one has. D0 is for files with " +
			"compressed extents, which no NODATACOW file has; D7 waits only when metadata space is short; D6 only when memory is. The tree searches, paths and " +
			"leaf locks of D2 to D5 are counted, but no row is bound by the processor. Every request takes the device the same " +
			"time here. With a lognormal spread, sigma 1 or 1.5 and the same mean, one round of 40 seconds gains 2.3 or 4.4 %, not 0.9, because a request that sleeps does so " +
			"until a slow one has left its range; the publication tells no spread. If 18 percent of the mean time grow with the size, 7.7 ms and 17 MB/s " +
			"for each request, the same 40 seconds gain 6.8 %: that share is chosen by the gain, so it predicts nothing."),
	},
})

const before000, after000 = "nowait-5.8", "nowait-5.19"

var patches000 = without("after", after000, "D", 0, patches("seed 000,"))
