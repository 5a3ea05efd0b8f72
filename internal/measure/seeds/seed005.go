package seeds

import (
	"fmt"

	"btrlab/internal/fs"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/linuxfile"
)

// Seed 005, which is to be predicted blind: of its 28 figures one is known, and the others are kept
// apart until the prediction stands. 1 to 64 jobs write a file each, whole and once: in sequence,
// 64 KiB and an fsync, or at random, 4 KiB and an fsync after sixteen. Before the change an fsync
// waits for the completion of its ordered extents, and after it for writeback alone.
//
// Fitted is one knob by the one figure that was given: device_flush_ns, what a flush takes a
// desktop's NVMe drive, which has no protected cache. Flushes are what an fsync of such a drive
// waits for, and all else about the device is model nvme's. The publication names 6 cores with 12
// threads, 64 GiB and the mount option ssd. What a thread loses to the other one of its core is
// seed 002's guess, cpu_factor and what a wake-up costs are the table's.
var _ = add(Seed{
	Name: "005", AnyPolicy: true, Title: "fsync and completions", MiB: true, Files: 8,
	Rows:  rows005(),
	Ratio: [2]string{"sequential 8 after", "sequential 8 before"},
	Compare: Compare{
		About: `Seed 005: eight writers with a file each write 64 KiB in sequence and fsync after each, by a log tree that an fsync writes when the trees have the
data, and by one that it writes as soon as the data is on the device.`,
		Rows: []Compared{
			{Name: "fsync-commit", About: "every fsync commits the transaction", Policy: "fsync-commit"},
			{Name: before005, About: "an fsync waits for writeback and completions", Of: "sequential 8 before"},
			{Name: after005, About: "an fsync waits for writeback", Of: "sequential 8 after"},
		},
		Baseline: before005, Pairs: [][2]string{{after005, before005}}, Size: 128 << 20,
		Linux: []experiment.Other{{Name: "linux", About: "the running kernel: pwrite and fsync, each writer on a file of its own", Open: linuxfile.Row}},
	},
	Study: Study{
		About: `Seed 005 (1 to 64 jobs with a file each, in sequence with an fsync after each 64 KiB, or at random with one after sixteen writes of 4 KiB) is
predicted before its figures are read. One row is known, and the flush of the device is fitted to it. Each job writes its file once, so
there is no --runtime-seconds by default; --size is that of the files of 8 jobs.`,
		Size: 8 << 30, Room: 64 << 30, Commit: fs.DefaultCommitInterval, CacheLimit: 1 << 30,
		Calibration: Calibration{CPUs: 12, Cores: 6, SMT: 1.7, CPU: 1, IdleExitNs: 5000, NoiseWake: 0.1, NoisePerSec: 100, NoiseMeanNs: 20000,
			HandoffNs: 4_000_000, Model: "nvme:flush-jitter=0.25", FlushNs: 1.54e6,
			DirtyBackground: 64 << 30 / 10, DirtyLimit: 64 << 30 / 5, EndioWorkers: 8, Seed: 1},
		Rests: says("What the prediction rests on: one number is known, and device_flush_ns is fitted to it. An fsync by log waits for two flushes, and while " +
			"one task is at them the others gather for the next log, so throughput follows the flush and the number of jobs. Where jobs fall into step, a log " +
			"takes twice as many of them or half: rows of 2, 4, 16 and 32 jobs move by that with other random numbers."),
	},
})

const before005, after005 = "fsync-wait", "fsync-5.17"

// jobs005 are how many jobs there are, and the bytes that all of them write together.
var jobs005 = []struct {
	jobs int
	size int64
}{{1, 8 << 30}, {2, 8 << 30}, {4, 8 << 30}, {8, 8 << 30}, {16, 8 << 30}, {32, 16 << 30}, {64, 32 << 30}}

// rows005 are the rows before and after of each job, and first the one whose figure was given.
func rows005() (rows []Row) {
	for _, kind := range []struct {
		name string
		set  [][2]string
	}{{"sequential", nil}, {"random", [][2]string{{"rw", "randwrite"}, {"bs", "4k"}, {"fsync", "16"}}}} {
		for _, j := range jobs005 {
			job := fmt.Sprintf("%s %d", kind.name, j.jobs)
			set := append([][2]string{{"numjobs", fmt.Sprint(j.jobs)}}, kind.set...)
			before := Row{Name: job + " before", Policy: before005, Set: set, Files: j.jobs, Size: j.size}
			after := Row{Name: job + " after", Policy: after005, Set: set, Files: j.jobs, Size: j.size, Over: before.Name}
			if job != "sequential 8" {
				rows = append(rows, before, after)
				continue
			}
			before.Fits, before.Published = []string{"device_flush_ns"}, Figures{Write: 64.0}
			rows = append([]Row{before, after}, rows...)
		}
	}
	return rows
}
