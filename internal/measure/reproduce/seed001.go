package reproduce

import "btrlab/internal/measure/rig"

// Seed001 is the table of seed 001: one writer, 4 KiB sequential buffered writes at iodepth 1 for
// 600 seconds.
//
// The costs of io_uring and libaio are the reference machine's, measured between fio's engines
// there, and not fitted; cpu_factor multiplies them as all others. Fitted are two knobs, each by
// one row (btrlab reproduce 001 --calibrate 14 --runtime-seconds 0.5): cpu_factor by psync, and
// wakeup_ns, which a hand-over to a worker and back pays twice, by the row without the patch. The
// publication tells nothing of the machine: 8 CPUs that leave their idle loop within a microsecond,
// 16 GiB of memory and a device that nobody waits for are guesses, and the file is NOCOW and
// preallocated where fio's is preallocated only.
var Seed001 = Study{
	Seed: "001", Job: rig.Seed001, Size: 100000 << 20, Seconds: 600,
	Rows: []StudyRow{
		{Name: "psync", Policy: "nowait-6.1", Fits: "cpu_factor", Published: Means{IOPS: 148_000, Clat: 6.340}},
		{Name: "without patch", Policy: "nowait-6.1!NOWAIT_BUFFERED", Set: [][2]string{{"ioengine", "io_uring"}}, Fits: "wakeup_ns",
			Published: Means{IOPS: 55_000, Clat: 15.286}},
		{Name: "with patch", Policy: "nowait-6.1", Set: [][2]string{{"ioengine", "io_uring"}}, Published: Means{IOPS: 134_000, Clat: 0.082}},
		{Name: "libaio", Policy: "nowait-6.1", Set: [][2]string{{"ioengine", "libaio"}}, Published: Means{IOPS: 117_000, Clat: 0.994}},
	},
	Ratio: [2]string{"with patch", "without patch"},
	Calibration: Calibration{CPUs: 8, SMT: 1, CPU: 2.01, IdleExitNs: 1000, WakeupNs: 251, NoisePerSec: 0, HandoffNs: 4_000_000, Model: "none",
		DirtyBackground: 16 << 30 / 10, DirtyLimit: 16 << 30 / 5, EndioWorkers: 8, Seed: 1},
	Rests: "What the prediction rests on: cpu_factor is fitted to psync and wakeup_ns to the row without the patch, each one number to one " +
		"number. The two predicted rows follow from the costs of a request of io_uring and of libaio above pwrite, which were measured on another machine " +
		"(0.43 us and 0.75 us) and grow with cpu_factor. The people who chose the model knew all four rows.",
}
