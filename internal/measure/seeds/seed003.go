package seeds

import (
	"btrlab/internal/fs"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/linuxfile"
)

// Seed 003: 8 jobs, each with a sparse file of 128 MiB, write 4 KiB to 1 MiB at random and fsync
// after each write, for 200 seconds. The rows that ablate are of no publication, which has one
// figure for all six patches.
//
// Fitted is one knob by one row: device_slower, the times of model nvme, by the throughput before,
// over the 200 seconds: some 22 passes over every file. In a pass the writes get smaller, since fio
// cuts a request where the pass has been, from 76 KiB on average in its first tenth to 17 in its
// last, and an fsync after each makes the throughput fall with them: a shorter run must be of whole
// passes. The publication names 8 cores, 32 GB and a raw NVMe drive; the dirty limits are Linux's
// shares of that memory. Room is a guess, too: a drive with room for some more block groups. A
// transaction is committed after 30 seconds, as by Linux.
var _ = add(Seed{
	Name: Fsync, AnyPolicy: true, Title: "Eight writers and fsync", MiB: true, Files: 8,
	Rows: append([]Row{
		{Name: "before", Policy: before003, Fits: []string{"device_slower"}, Published: Figures{Write: 116}},
		{Name: "after", Policy: after003, Published: Figures{Write: 125}},
	}, without("after", after003, "L", 1, patches003)...),
	Ratio: [2]string{"after", "before"},
	Compare: Compare{
		About: `Seed 003: eight writers with a file each write 4 KiB to 1 MiB and fsync after each, by a commit, by a log tree, and by a log tree with the six patches
of 5.18; --ablation adds a row for each patch, without it. Each row has what an fsync cost in the log: searches, leaves copied, bytes moved and
written, and by level of the tree the steps with a write lock held and how long it was.`,
		Rows: []Compared{
			{Name: "fsync-commit", About: "every fsync commits the transaction", Policy: "fsync-commit"},
			{Name: before003, About: "an fsync writes a log tree", Of: "before"},
			{Name: after003, About: "with the six patches of the seed", Of: "after"},
		},
		Baseline: before003, Pairs: [][2]string{{before003, "fsync-commit"}, {after003, before003}},
		Ablation: ablation(without(after003, after003, "L", 1, patches003)), Size: 128 << 20,
		Linux: []experiment.Other{{Name: "linux", About: "the running kernel: pwrite and fsync, each writer on a file of its own", Open: linuxfile.Row}},
	},
	Study: Study{
		About: `Seed 003 (8 writers, each with a file of 128 MiB, 4 KiB to 1 MiB and an fsync after each write, 200 seconds) is run by a log tree before its six
patches, with them, and without each of them. The device is calibrated on the throughput before; the throughput with the patches is predicted.`,
		FitSeconds: 200,
		Size:       8 * 128 << 20, Room: 30 << 30, Seconds: 200, Surface: &surface003, Commit: fs.DefaultCommitInterval,
		Calibration: Calibration{CPUs: 8, SMT: 1, CPU: 1, IdleExitNs: 5000, HandoffNs: 4_000_000, Model: "nvme", Slower: 1.12,
			DirtyBackground: 32 << 30 / 10, DirtyLimit: 32 << 30 / 5, EndioWorkers: 8, Seed: 1},
		Rests: says("What the prediction rests on: device_slower is fitted to the throughput before the patches, one number to one number. A copy of a tree " +
			"block and its check before it is written have the prices of Linux 6.18, 17 and 24 us, and a leaf of the log is locked for a sixth of the time, " +
			"by all eight writers together. The copy is most of that, and the patches leave it. L6 takes half of the steps that are done with a leaf locked, " +
			"and they are the cheap half. L2 is about leaves that a deletion makes small: one in a hundred fsyncs does. " +
			"L4 needs a range over several leaves; L1, L3 and L5 save steps only. Differences of up to three percent are those of another order of the same " +
			"events. What the 7.8 percent are from the simulation does not explain; reproduce 003 --surface says how often a small leaf would have to be met."),
	},
})

var surface003 = Surface{
	About: `L2 is for a leaf that a deletion leaves small: before the patch its neighbours are copied first, in vain nine times of ten. What it gains hangs on
how often an fsync meets such a leaf, and on what a copy of a block takes. The kernel calls a leaf small below a third.`,
	Seconds: 20, Size: 256 << 20, // ten passes: a pass more or less is a tenth then
	X: Axis{"a leaf is small below, % of its room", []float64{33, 67, 80, 100},
		func(c *Calibration, v float64) { c.SmallLeaf = int(v) }},
	Y: Axis{"copy of a block, and its check, us each", []float64{1, 17, 38},
		func(c *Calibration, v float64) { c.BlockNs = v * 1000 }},
}

const before003, after003 = "fsync-5.17", "fsync-5.18"

var patches003 = patches("seed 003,")
