package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const deviceJob = `[j]
filename=%s
rw=%s
bs=4k
size=256M
norandommap
ioengine=io_uring
iodepth=32
direct=1
time_based
runtime=3
thread
`

// TestNumbersDevice: 4 KiB direct requests at random places, 32 in flight: ours on an image that is
// opened with O_DIRECT, through a ring or by a task for each, and fio's on a raw file of the same
// file system. The goal is 0.9. The files lie where TMPDIR says: on a tmpfs there is no device.
func TestNumbersDevice(t *testing.T) {
	numbers(t, "fio")
	bin := binary(t)
	dir := t.TempDir()
	img, raw := filepath.Join(dir, "img"), filepath.Join(dir, "raw")
	job := func(name, file, rw string) string {
		path := filepath.Join(dir, name+rw)
		must(t, os.WriteFile(path, fmt.Appendf(nil, deviceJob, file, rw), 0o644))
		return path
	}
	must(t, os.WriteFile(raw, newFiller(1).bytes(256<<20), 0o644))
	// Allocated by the host: else each write of ours is the first one of a block of the image file.
	must(t, os.WriteFile(img, make([]byte, 640<<20), 0o644))
	sh(t, bin, "mkfs", "-q", "--force", img)
	sh(t, bin, "put", "--nocow", raw, img+":/f")
	sh(t, "sync", "-f", dir)
	iops := func(text string) float64 {
		t.Helper()
		var r struct {
			Jobs []struct{ Read, Write struct{ IOPS float64 } }
		}
		if err := json.Unmarshal([]byte(text[strings.Index(text, "{"):]), &r); err != nil || len(r.Jobs) != 1 {
			t.Fatalf("fio's JSON: %v\n%s", err, text)
		}
		return r.Jobs[0].Read.IOPS + r.Jobs[0].Write.IOPS
	}
	for _, rw := range []string{"randread", "randwrite"} {
		ours, theirs := job("ours", "f", rw), job("fio", raw, rw)
		var ring, sync, b []float64
		for range numberRounds {
			ring = append(ring, iops(sh(t, bin, "bench", ours, "--image", img, "--policy", "modern", "--device-direct", "--device-io", "uring", "--json")))
			b = append(b, iops(sh(t, "fio", "--output-format=json", theirs)))
			sync = append(sync, iops(sh(t, bin, "bench", ours, "--image", img, "--policy", "modern", "--device-direct", "--json")))
		}
		spread(t, "direct "+rw+", depth 32, device-io uring, goal 0.9", ring, "fio", b, "iops")
		spread(t, "direct "+rw+", depth 32, device-io sync", sync, "fio", b, "iops")
	}
	judged(t, img)
}
