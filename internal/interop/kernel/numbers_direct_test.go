package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"btrlab/internal/interop"
)

const sharedJob = `[w]
filename=f
ioengine=psync
direct=1
rw=randwrite
bs=%s
size=64M
norandommap
numjobs=%d
group_reporting
time_based
runtime=2
`

// TestNumbersShared: direct overwrites of a NOCOW file on a device of 1 ms. The writers' requests
// are in the device at the same time if they share i_rwsem, and one after the other if each has it
// alone. Linux here, ext4 with 8 writers of 2 KiB: 8.4. The goal is 7.
//
// No policy keeps i_rwsem for the I/O of whole blocks, so that row's peer is one writer, which an
// exclusive lock leaves of any number.
func TestNumbersShared(t *testing.T) {
	interop.Measurement(t)
	bin := interop.Binary(t)
	img, src := interop.Image(t, "img"), filepath.Join(t.TempDir(), "zero")
	// written, not a hole: put keeps holes
	interop.Must(t, os.WriteFile(src, make([]byte, 64<<20), 0o644))
	interop.Sh(t, bin, "mkfs", "-q", "--size", "1G", img)
	interop.Sh(t, bin, "put", "--nocow", src, img+":/f")
	rate := func(policy, bs string, jobs int) float64 {
		job := filepath.Join(t.TempDir(), "job")
		interop.Must(t, os.WriteFile(job, fmt.Appendf(nil, sharedJob, bs, jobs), 0o644))
		return interop.FioIOPS(t, interop.Sh(t, bin, "bench", job, "--image", img, "--policy", policy, "--device-model", "delay", "--json"))
	}
	var shared, drop, one, first, alone []float64
	for range interop.Rounds {
		shared = append(shared, rate("modern", "4k", 8))
		drop = append(drop, rate("locked", "4k", 8))
		one = append(one, rate("modern", "4k", 1))
		first = append(first, rate("modern+UNALIGNED_CHECK_FIRST", "2k", 8))
		alone = append(alone, rate("modern+UNALIGNED_EXCLUSIVE", "2k", 8))
	}
	interop.Spread(t, "direct 4k overwrite, 1 ms, 8 writers, goal 7", shared, "1 writer", one, "iops")
	interop.Spread(t, "the same", shared, "i_rwsem dropped for the I/O", drop, "iops")
	interop.Spread(t, "direct 2k overwrite, 1 ms, 8 writers, goal 7", first, "exclusive", alone, "iops")
	interop.Judged(t, img)
}
