package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestNumbersRing: seed 001's job on cached pages. The attempt without waiting against a worker for
// each write (goal 2.4, what was published), and against pwrite (goal 0.9).
func TestNumbersRing(t *testing.T) {
	measurement(t)
	bin := binary(t)
	var r struct {
		Pairs []struct {
			Row, To   string
			Ratio     float64
			Low       float64 `json:"ratio_min"`
			High      float64 `json:"ratio_max"`
			Published float64
		}
	}
	must(t, json.Unmarshal([]byte(sh(t, bin, "compare", "001", "--rounds", fmt.Sprint(numberRounds), "--json")), &r))
	goals := map[string]string{"before": ", goal 2.4", "psync": ", goal 0.9"}
	for _, p := range r.Pairs {
		what := fmt.Sprintf("seed 001, %s against %s%s", p.Row, p.To, goals[p.To])
		fmt.Printf("%-58s ratio %.2f (%.2f..%.2f, %d rounds)\n", what, p.Ratio, p.Low, p.High, numberRounds)
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
	numbers(t, "fio", "chattr")
	bin := binary(t)
	img := image(t, "theirs.img")
	sh(t, "truncate", "-s", "16G", img)
	sh(t, "mkfs.btrfs", "-q", img)
	mounted(t, img, "", func(dir string) {
		file := filepath.Join(dir, "f")
		sh(t, "sh", "-c", fmt.Sprintf("touch %s && chattr +C %s && head -c 268435456 /dev/zero > %s", file, file, file))
		sh(t, "sync", "-f", dir)
		job := func(name, file string) string {
			path := filepath.Join(t.TempDir(), name)
			must(t, os.WriteFile(path, fmt.Appendf(nil, ringJob, file), 0o644))
			return path
		}
		theirs, ours := job("linux.fio", file), job("ours.fio", "f")
		var a, b []float64
		for range numberRounds {
			a = append(a, fioIOPS(t, sh(t, bin, "bench", ours, "--nocow", "--dirty-limit", "1G", "--policy", "nowait-6.1", "--json")))
			b = append(b, fioIOPS(t, sh(t, "fio", "--output-format=json", theirs)))
		}
		spread(t, "4k sequential overwrite, io_uring depth 1, goal 2", a, "Linux", b, "iops")
	})
}
