package seeds

import (
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/linuxfile"
)

// Seed 000: 4 jobs with 64 requests each read and write 4 KiB to 1 MiB of one written NODATACOW
// file, past the cache, for 300 seconds. The rows that ablate are of no publication, which has one
// figure for all eight patches.
//
// Fitted is one knob by one row (btrlab reproduce 000 --calibrate 10; fio's
// map of blocks that were used makes blocks smaller until all of the file was, so that a fit to
// less than one such round of 40 seconds is one to other blocks): device_slower, the mean time of a
// request, by the throughput before. The publication names the processors, the memory and "a
// spinning disk"; 814 MiB/s of random transfers are no head's, so some cache under the file system
// answers after a time of its own: model delay, a latency and a transfer. How much of the time is
// transfer, device_share, was chosen from the surface, by the gain. Of a device that serves one
// request at a time (hdd, slower=0.01), or whose requests share one rate, no row is faster than
// another.
var _ = add(Seed{
	Name: NowaitDirect, Title: "NOWAIT direct requests through io_uring", MiB: true,
	Rows: append([]Row{
		{Name: "before", Policy: before000, Fits: []string{"device_slower"}, Published: Figures{Read: 407, Write: 407, DrainMs: 175}},
		{Name: "after", Policy: after000, Chose: "device_share", Published: Figures{Read: 436, Write: 435, DrainMs: 44}},
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
		Baseline: "before", Pairs: [][2]string{{"after", "before"}}, Ablation: ablation(patches000), Model: "delay:read=0.8ms,write=0.8ms,rate=160e6",
		Linux: []experiment.Other{{Name: "linux", About: "the running kernel: io_uring past the page cache, on the device of its directory", Open: linuxfile.Row}},
	},
	Study: Study{
		About: `Seed 000 (4 jobs, iodepth 64, 4 KiB to 1 MiB past the cache, 8 GiB, 300 seconds) is run before its eight patches for NOWAIT direct IO, with
them, and without each of them. The device is calibrated on the throughput before, and how much of a request's time is transfer on the gain;
the rows without one patch say what each contributes.`,
		FitSeconds: 40,
		Size:       8 << 30, Seconds: 300, Written: true, Request: 34.5e3, Surface: &surface000,
		Calibration: Calibration{CPUs: 12, SMT: 1, CPU: 1, IdleExitNs: 5000, HandoffNs: 4_000_000, Model: "delay", Slower: 9.46, Share: 0.18,
			DirtyBackground: 64 << 20, DirtyLimit: 128 << 20, EndioWorkers: 8, Seed: 1},
		Rests: says("What this rests on: device_slower is fitted to the throughput before the patches, and device_share, the part of a request's mean time that " +
			"grows with its size, was chosen from reproduce 000 --surface, by the gain. The run times that were published, 44 ms longer than the job after the patches, leave " +
			"that choice possible, and exclude a device whose times spread widely and one whose times are all the same. So of the throughput nothing is predicted here; predicted is what each " +
			"patch adds. All of it is D1's: a request does not wait for a range that another one has. D0 is for files with compressed extents, which no NODATACOW " +
			"file has; D7 waits only when metadata space is short; D6 only when memory is. The tree searches, paths and leaf locks of D2 to D5 are counted, but no " +
			"row is bound by the processor."),
	},
})

var surface000 = Surface{
	About: `The drive of the publication is "a spinning disk" that moves 814 MiB/s at random, so some cache answers, in a time that nobody tells. What decides is
how long a request that sleeps waits for the one that has its range: longer, if large requests take longer than small ones, or if times spread.
If the requests in flight share one rate instead, the device is full whoever sleeps, and nobody gains.`,
	Seconds: 40,
	X: Axis{"share of a request's mean time that grows with its size, %", []float64{0, 10, 20, 30, 50},
		func(c *Calibration, v float64) { c.Share = v / 100 }},
	Y: Axis{"spread of the times, sigma", []float64{0, 0.5, 1},
		func(c *Calibration, v float64) { c.Spread = v }},
	Panels: []Panel{
		{"any number of requests at once", func(c *Calibration) {}},
		{"192 requests at once", func(c *Calibration) { c.Model = "delay:channels=192" }},
		{"one rate that all requests in flight share", func(c *Calibration) { c.Shared = 256 }},
	},
	// One request of 34.5 KB that is alone: its transfer, by all of its time.
	Known: []Place{
		{"a disk of 7,200 turns a minute", 1.5, "12 ms for seek and turn, 180 MB/s"},
		{"a SATA SSD", 39, "0.1 ms, 550 MB/s"},
		{"one channel of an NVMe drive", 52, "80 us, 400 MB/s"},
	},
}

const before000, after000 = "nowait-5.8", "nowait-5.19"

var patches000 = without("after", after000, "D", 0, patches("seed 000,"))
