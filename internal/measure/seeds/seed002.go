package seeds

import (
	"fmt"
	"time"

	"btrlab/internal/blockdev/dm"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/linuxfile"
)

// Seed 002: eight writers with 32 writes of 4 KiB each in flight, at random, in one NOCOW file of
// 16 GiB that is written, for 180 seconds.
var _ = add(Seed{
	Name: Overwrite, AnyPolicy: true, Title: "Locked versus unlocked writes",
	Rows: []Row{
		{Name: "lock", Policy: "locked", Fits: []string{"cpu_factor", "idle_exit_ns", "noise_wake_sigma", "noise_per_sec", "device_depth", "gc_bytes", "gc_max_ms", "interrupt_ns"},
			Published: Figures{IOPS: 68470, Latency: &Latency{Min: 184, Mean: 3738.35, Stdev: 20869.49, Max: 1209900, Clat: []float64{
				322, 330, 334, 346, 370, 386, 406, 446, 516, 612, 828, 10432, 84480, 117248, 226304, 333824, 692224}}}},
		{Name: "unlocked", Policy: "unlocked",
			Published: Figures{IOPS: 94242, Latency: &Latency{Min: 10, Mean: 2691.44, Stdev: 5380.82, Max: 218208, Clat: []float64{
				302, 390, 442, 502, 548, 596, 652, 724, 916, 5024, 5664, 10048, 29568, 39168, 54016, 59648, 78336}}}},
		// What the thread proposes instead, and Mason's costs of the lock one by one.
		{Name: "drain first", Policy: "unlocked-drain", Ablates: "unlocked", About: "Sandoval, Ko: unlocked, and truncate waits before it sets the size"},
		{Name: "throttle out", Policy: "locked+BALANCE_OUTSIDE", Ablates: "unlocked", About: "Mason: locked, but balance_dirty_pages after the lock"},
		{Name: "pages out", Policy: "locked+PREWAIT_OUTSIDE", Ablates: "unlocked", About: "Mason: locked, but waits for writeback before the lock"},
		{Name: "both out", Policy: "prewait", Ablates: "unlocked", About: "Mason: locked, with both waits outside"},
		{Name: "not stable", Policy: "locked+STABLE_SKIP_NODATASUM", Ablates: "unlocked", About: "Ko's third question: locked, without stable pages"},
		{Name: "lock, 5.3", Policy: "locked+RWSEM_HANDOFF", Ablates: "unlocked", About: "locked, on a kernel since 5.3, which hands i_rwsem to a waiter"},
		{Name: "unlocked 5.3", Policy: "unlocked+RWSEM_HANDOFF", Ablates: "unlocked", About: "unlocked, on such a kernel: the two are what the patch would be worth since then"},
		{Name: "range lock", Policy: "range-lock", Ablates: "unlocked", About: "Hellwig: a lock of the write's bytes"},
	},
	Ratio: [2]string{"unlocked", "lock"},
	Compare: Compare{
		About: `Seed 002: compare runs the job of seed 002 (8 writers, one NOCOW file, 4 KiB random writes inside EOF) under each policy in
alternating rounds on the same image. Every block carries writer, sequence and checksum; after each round the file is
read back, every block is judged, and the image is checked. The share of time waited is by lock class.
Exit code 1 means that a block or the image was not right.`,
		Linux: []experiment.Other{{Name: linuxfile.Row}, {Name: linuxfile.RowNowait}},
	},
	Study: Study{
		About: `Reproduce runs the job of seed 002 (8 jobs, iodepth 32, 16 GiB, 180 seconds) in virtual time, at its published size, through the
real write path. Machine and device are calibrated on the published "lock" row; the "unlocked" row is predicted, but for its iops,
p80 and p90: the time of the array's thread and the dirty limits were chosen for them. Both are shown beside the published figures
with the relative errors. The result is the same on every machine. No file data is kept.`,
		Size: 16 << 30, Room: 1 << 40, Seconds: 180, Written: true, Calibration: machine002, NoEngines: true,
		FitSeconds: 8, FitWarm: 4, // the dirty pages of the start have gone by then
		Fitted: "Fitted to the lock row, but for dirty_limit_bytes and device_handle_ns.",
		Rests:  rests002,
	},
})

// machine002 is seed 002's machine. Its authors knew both rows. They took each value from one of
// these:
//
//	the lock row        CPU, GCBytes, GCMaxMs and InterruptNs, by hand, in some ten runs;
//	                    IdleExitNs, NoiseWake and NoisePerSec, by `btrlab reproduce 002
//	                    --calibrate`, with the device and the dirty limits of before
//	the unlocked row    DirtyLimit: its pauses of 5 ms (p80, p90) are those of balance_dirty_pages()
//	                    at HZ=1000 when some 40 MiB may be dirty, and would be 20 to 40 ms with a
//	                    share of gigabytes of memory. HandleNs: its iops, which the thread of the
//	                    array bounds. Depth: 4096, a size that md's stripe cache may have, was
//	                    thought of for the tail of this row; a fit to the lock row had found 2100,
//	                    and cannot tell the two. With 2100 p90 is 41 % too long and p99 40 % too
//	                    short, with 4096 24 and 44 %
//	data sheets         Xeon D-1531: 6 cores, 12 threads; six S3710: their reads, and writes of 300
//	                    MB/s, because the file is a hundredth of the drives and its blocks are not
//	                    moved again. The array is that much larger than the file, so that metadata
//	                    may be promised beyond its chunks and nobody waits for a ticket: Room
//	the kernel          the time of a handoff, which the policies of its age have not for i_rwsem; a
//	                    background limit of half the limit; min(CPUs+2, 8) workers. Linux 4.17
//	                    goes to the io tree nine times for a page: a writer locks, clears, sets and
//	                    unlocks, the flusher finds, locks, tests and clears, the end of an overwrite
//	                    in place clears the quota's bit. The engine has four calls in a writer,
//	                    four in the flusher (lock, unlock, lock, clear), and none at the end. So
//	                    each of its calls stands for one (TreeCalls), also those that have the state
//	                    at hand (TreeCached): they save the walk and take the tree's lock. While the
//	                    engine made two and two, each stood for 2.25
//	guesses             SMT, the length of a hit of noise (5 to 100 us give the same lock row).
//	                    SubmitNs: the table's price of a bio includes a request to a driver; a bio
//	                    for md makes none, the array's thread makes those for the members, and
//	                    HandleNs is their price. What is left was guessed before it was tried; the
//	                    lock row does not tell it. Some ten variants of submission, Depth, plug and
//	                    limits were run with both rows in sight before these were kept
//
// A fit that was free to change the device's rate explained the lock row as well, with a device
// that is the bottleneck of both rows, and predicted a ratio of 1.0: the lock row does not tell the
// rate. Before, the drives' sustained rate (86 thousand writes a second) and limits of a tenth and
// a fifth of 8 GiB were chosen, for the iops of the unlocked row; the kernel's pauses do not go
// with such limits.
var machine002 = Calibration{
	CPUs: 12, Cores: 6, SMT: 1.7, CPU: 1.87, TreeCalls: 1, TreeCached: 1, SubmitNs: 600, IdleExitNs: 3000, NoiseWake: 0.106, NoisePerSec: 400, NoiseMeanNs: 20000, HandoffNs: 4_000_000,
	Model: "ssd-raid5:write=105us", Depth: 4096, GCBytes: 1.2e6, GCMaxMs: 60, HandleNs: 2000, InterruptNs: 4000,
	DirtyBackground: 20 << 20, DirtyLimit: 40 << 20, EndioWorkers: 8, Seed: 1,
}

// rests002 says from which choices the prediction follows.
func rests002(c *Calibration) string {
	p, err := dm.Parse(c.Model)
	if err != nil || p.Read+p.Write == 0 {
		return "What the prediction rests on: the device model and the dirty limits, which were not fitted."
	}
	rate := float64(p.Disks*p.Channels) / (p.Read + p.Write).Seconds()
	how := fmt.Sprintf("%d drives with %d channels, %v a read and %v a write", p.Disks, p.Channels, p.Read, p.Write)
	if p.Parity {
		rate /= 2
		how += ", RAID 5"
	}
	return fmt.Sprintf("What the prediction rests on: three things were chosen for the published unlocked row. How many pages may be dirty (%.3g MiB) sets "+
		"the length of its pauses, and %v that the array's one thread works on a write, besides ending it, was chosen for its iops: the members (%s) could take %.1f "+
		"thousand writes a second. How many writes the array takes at once (%g) was thought of for the tail. The calls of the io tree "+
		"are counted as Linux 4.17 makes them, which was settled with both rows in sight. The iops, p80, p90 and p99 of the unlocked row "+
		"are therefore no predictions; its other latencies and the lock row's are what the simulation adds. reproduce --sensitivity shows what each choice is worth.", float64(c.DirtyLimit)/(1<<20), time.Duration(c.HandleNs), how, rate/1e3, c.Depth)
}
