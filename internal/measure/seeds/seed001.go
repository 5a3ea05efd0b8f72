package seeds

import (
	"fmt"
	"slices"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/linuxfile"
)

// Seed 001: one writer, 4 KiB sequential buffered writes at iodepth 1 for 600 seconds.
//
// The costs of io_uring and libaio are the reference machine's, measured between fio's engines
// there, and not fitted; cpu_factor multiplies them as all others. Fitted are two knobs, each by
// one row (btrlab reproduce 001 --calibrate 14 --runtime-seconds 0.5): cpu_factor by psync, and
// wakeup_ns, which a hand-over to a worker and back pays twice, by the row without the patch. The
// publication tells nothing of the machine: 8 CPUs that leave their idle loop within a microsecond,
// 16 GiB of memory and a device that nobody waits for are guesses, and the file is NOCOW and
// preallocated where fio's is preallocated only.
var seed001 = add(Seed{
	Name: "001", Title: "Buffered writes through io_uring",
	Rows: []Row{
		{Name: "psync", Policy: "nowait-6.1", Fits: []string{"cpu_factor"}, Published: Figures{IOPS: 148_000, ClatMean: 6.340}},
		{Name: "without patch", Policy: "nowait-6.1!NOWAIT_BUFFERED", Set: uring, Fits: []string{"wakeup_ns"}, Published: Figures{IOPS: 55_000, ClatMean: 15.286}},
		{Name: "with patch", Policy: "nowait-6.1", Set: uring, Published: Figures{IOPS: 134_000, ClatMean: 0.082}},
		{Name: "libaio", Policy: "nowait-6.1", Set: libaio, Published: Figures{IOPS: 117_000, ClatMean: 0.994}},
		// The publication says that the old code needs a depth of 4 for what the patch does with 1,
		// and that more does not help.
		deeper(2), deeper(4), deeper(16),
		{Name: "with, 4", Policy: "nowait-6.1", Set: slices.Concat(uring, four), Ablates: "with patch", About: "with the patch, iodepth 4"},
	},
	Ratio: [2]string{"with patch", "without patch"},
	Compare: Compare{
		About: `Seed 001: one writer, 4 KiB sequential writes of cached pages, through pwrite, libaio and io_uring, without the patch (a worker does
each write) and with it (the submitter tries it), at iodepth 1 and 4. The rows have policies of their own. --linux adds pwrite, pwritev2
with RWF_NOWAIT, libaio and io_uring of the running kernel.`,
		Rows: []Compared{
			{Name: "psync", About: "pwrite", Of: "psync"},
			{Name: "libaio", About: "io_submit, which does a buffered write itself", Of: "libaio"},
			{Name: "libaio-4", About: "libaio with iodepth=4", Of: "libaio", Set: four},
			{Name: "before", About: "io_uring without the patch: a worker does each write", Of: "without patch"},
			{Name: "before-4", About: "before with iodepth=4", Of: "without patch", Set: four},
			{Name: "io_uring", About: "io_uring with the patch: the submitter tries each write", Of: "with patch"},
			{Name: "io_uring-4", About: "io_uring with iodepth=4", Of: "with patch", Set: four},
		},
		Baseline: "before", Pairs: [][2]string{{"io_uring", "before"}, {"io_uring", "psync"}, {"io_uring-4", "before-4"}}, Cached: true,
		Linux: []experiment.Other{
			{Name: "linux-psync", About: "the running kernel: pwrite", Open: linuxfile.Row},
			{Name: "linux-nowait", About: "the running kernel: pwritev2 with RWF_NOWAIT", Open: linuxfile.RowNowait},
			{Name: "linux-libaio", About: "the running kernel: io_submit", Open: linuxfile.Row, Set: libaio},
			{Name: "linux-uring", About: "the running kernel: io_uring, which tries by itself", Open: linuxfile.Row, Set: uring},
		},
	},
	Study: Study{
		About: `Seed 001 (one writer, 4 KiB sequential buffered writes, 100,000 MiB, 600 seconds) is run through pwrite, libaio and io_uring, without the
patch and with it. The machine is calibrated on psync and on the row without the patch; the other two are predicted. --calibrate is the
number of runs for each of the two knobs, of 1 virtual second or as --runtime-seconds says.`,
		Size: 100000 << 20, Seconds: 600,
		Calibration: Calibration{CPUs: 8, SMT: 1, CPU: 2.01, IdleExitNs: 1000, WakeupNs: 251, NoisePerSec: 0, HandoffNs: 4_000_000, Model: "none",
			DirtyBackground: 16 << 30 / 10, DirtyLimit: 16 << 30 / 5, EndioWorkers: 8, Seed: 1},
		Rests: says("What the prediction rests on: cpu_factor is fitted to psync and wakeup_ns to the row without the patch, each one number to one " +
			"number. The two predicted rows follow from the costs of a request of io_uring and of libaio above pwrite, which were measured on another machine " +
			"(0.43 us and 0.75 us) and grow with cpu_factor. The people who chose the model knew all four rows."),
	},
})

// deeper is the row without the patch with more requests in flight.
func deeper(n int) Row {
	return Row{Name: fmt.Sprint("without, ", n), Policy: "nowait-6.1!NOWAIT_BUFFERED", Set: slices.Concat(uring, [][2]string{{"iodepth", fmt.Sprint(n)}}),
		Ablates: "with patch", About: fmt.Sprint("without the patch, iodepth ", n)}
}

// Options of seed 001's job.
var (
	uring  = [][2]string{{"ioengine", "io_uring"}}
	libaio = [][2]string{{"ioengine", "libaio"}}
	four   = [][2]string{{"iodepth", "4"}}
)
