package seeds

import (
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/linuxfile"
)

// Seed 004: eight writers with 256 direct writes of 2 KiB each in flight, in a written file of 10
// GiB, for 60 seconds after 10.
//
// Fitted is one knob by one row (btrlab reproduce 004 --calibrate 12 --size 256M --runtime-seconds
// 0.1): the time of the device by v6.2, where one write is in flight and nothing else takes time.
// That row tells neither the speed of the processors nor how many interrupts the device has, and
// the patched row has both for limits. cpu_factor is therefore the one that seed 001 was fitted
// with, on another machine, and the device has a completion queue for each writer, as blk-mq gives
// a submitting CPU. The publication names 64 CPUs of a guest and no device. "not queued" shares the
// lock and waits for each write in io_submit.
var _ = add(Seed{
	Name: "004", Title: "Direct writes of less than a block",
	Rows: []Row{
		{Name: "v6.2", Policy: "unaligned-exclusive", Fits: []string{"device_slower"}, Published: Figures{IOPS: 4328}},
		{Name: "patched", Policy: "unaligned-check-first", Published: Figures{IOPS: 801_000}},
		{Name: "retry", Policy: "unaligned-retry", Ablates: "patched", About: "XFS's design"},
		{Name: "buffered", Policy: "modern", Ablates: "patched", About: "btrfs: through the page cache"},
		{Name: "not queued", Policy: "unaligned-check-first+WRONG_UNALIGNED_UNWRITTEN", Ablates: "patched", About: "patched, each write waited for"},
		{Name: "one queue", Policy: "unaligned-check-first", Ablates: "patched", About: "patched, all interrupts on one CPU", Vary: func(c *Calibration) { c.Model = device004 }},
		{Name: "free io tree", Policy: "unaligned-check-first", Ablates: "patched", About: "patched, a change of btrfs's io tree takes no time but its lock's",
			Vary: func(c *Calibration) { c.TreeCalls = 1e-6 }},
		{Name: "whole blocks", Policy: "unaligned-exclusive", Set: [][2]string{{"bs", "4k"}}, Ablates: "patched",
			About: "v6.2 with writes of whole blocks, as the job's are on a file system of 2 KiB blocks: nothing waits, and the patch changes nothing"},
		{Name: "fast CPUs", Policy: "unaligned-check-first", Ablates: "patched", About: "patched, cpu_factor 1", Vary: func(c *Calibration) { c.CPU = 1 }},
	},
	Ratio: [2]string{"patched", "v6.2"},
	Compare: Compare{
		About: `Seed 004: eight writers with 256 direct writes of 2 KiB each in flight, half blocks that are written, on a device that takes 1 ms: each alone
(ext4 before the patch), together after a look or until a block is not written (ext4, XFS), and through the page cache (btrfs).`,
		Rows: []Compared{
			{Name: "exclusive", About: "ext4 of Linux 6.2: each write alone", Of: "v6.2"},
			{Name: "check-first", About: "ext4 with the patch: together in blocks that are written", Of: "patched"},
			{Name: "retry", About: "XFS: together until a block is not written", Policy: "unaligned-retry"},
			{Name: "buffered", About: "btrfs: through the page cache, then flushed", Policy: "modern"},
		},
		Baseline: "exclusive", Pairs: [][2]string{{"check-first", "exclusive"}, {"retry", "check-first"}, {"buffered", "exclusive"}}, Model: "delay",
		Linux: []experiment.Other{{Name: "linux", About: "the running kernel: libaio past the page cache, by the rules of its own file system", Open: linuxfile.Row}},
	},
	Study: Study{
		About: `Seed 004 (8 writers, iodepth 256, 2 KiB direct writes, 10 GiB, 60 seconds after 10) is run alone and together. The device is calibrated on the row
before the patch; the other is predicted, with seed 001's processors. Further rows say what the other designs, and each guess, are worth.`,
		Size: 10 << 30, Seconds: 60, Ramp: 10, Written: true,
		Calibration: Calibration{CPUs: 64, SMT: 1, CPU: seed001.Study.Calibration.CPU, IdleExitNs: 1000, NoisePerSec: 0, HandoffNs: 4_000_000,
			Model: device004 + ",queues=8", Slower: 0.242, DirtyBackground: 16 << 30 / 10, DirtyLimit: 16 << 30 / 5, EndioWorkers: 8, Seed: 1},
		Rests: says("What the prediction rests on: the time of the device is fitted to v6.2, one number to one number, and says nothing of the patched row, " +
			"which eight processors limit. Their speed is seed 001's fit, on another machine, and a completion queue for each writer is a guess: " +
			"without either the patched row is another one. The file system is btrfs's write path with the locks of ext4 and XFS: a write locks its range once, " +
			"which theirs does not, and their journals are missing. The people who chose the model knew both rows."),
	},
})

// device004 takes what it gets.
const device004 = "delay:depth=4096,channels=4096"
