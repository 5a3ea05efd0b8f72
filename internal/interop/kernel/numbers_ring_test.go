package kernel

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"btrlab/internal/interop"
)

// TestNumbersRing: seed 001's job on cached pages. The attempt without waiting against a worker for
// each write (goal 2.4, what was published), and against pwrite (goal 0.9).
func TestNumbersRing(t *testing.T) {
	interop.Measurement(t)
	bin := interop.Binary(t)
	var r struct {
		Pairs []struct {
			Row, To   string
			Ratio     float64
			Low       float64 `json:"ratio_min"`
			High      float64 `json:"ratio_max"`
			Published float64
		}
	}
	interop.Must(t, json.Unmarshal([]byte(interop.Sh(t, bin, "compare", "001", "--rounds", fmt.Sprint(interop.Rounds), "--json")), &r))
	goals := map[string]string{"before": ", goal 2.4", "psync": ", goal 0.9"}
	for _, p := range r.Pairs {
		what := fmt.Sprintf("seed 001, %s against %s%s", p.Row, p.To, goals[p.To])
		fmt.Printf("%-58s ratio %.2f (%.2f..%.2f, %d rounds)\n", what, p.Ratio, p.Low, p.High, interop.Rounds)
	}
	if len(r.Pairs) < 2 {
		t.Errorf("compare 001 has %d ratios, want at least 2", len(r.Pairs))
	}
}

const ringJob = `[w]
filename=%s
ioengine=io_uring
iodepth=1
rw=write
bs=4k
size=256M
time_based
runtime=3
ramp_time=1
thread
`

// TestNumbersRingLinux: the same job through io_uring, ours and that of Linux on a NOCOW file of a
// btrfs, both on an image in memory and with nothing written back for want of memory. The goal is
// 2.
func TestNumbersRingLinux(t *testing.T) {
	interop.Numbers(t, "fio", "chattr")
	bin := interop.Binary(t)
	img := interop.Image(t, "theirs.img")
	interop.Sh(t, "truncate", "-s", "16G", img)
	interop.Sh(t, "mkfs.btrfs", "-q", img)
	interop.Mounted(t, img, "", func(dir string) {
		file := filepath.Join(dir, "f")
		interop.Sh(t, "sh", "-c", fmt.Sprintf("touch %s && chattr +C %s && head -c 268435456 /dev/zero > %s", file, file, file))
		interop.Sh(t, "sync", "-f", dir)
		job := func(name, file string) string {
			path := filepath.Join(t.TempDir(), name)
			interop.Must(t, os.WriteFile(path, fmt.Appendf(nil, ringJob, file), 0o644))
			return path
		}
		theirs, ours := job("linux.fio", file), job("ours.fio", "f")
		var a, b []float64
		for range interop.Rounds {
			a = append(a, interop.FioIOPS(t, interop.Sh(t, bin, "bench", ours, "--nocow", "--dirty-limit", "1G", "--policy", "nowait-6.1", "--json")))
			b = append(b, interop.FioIOPS(t, interop.Sh(t, "fio", "--output-format=json", theirs)))
		}
		interop.Spread(t, "4k sequential overwrite, io_uring depth 1, goal 2", a, "Linux", b, "iops")
	})
}
