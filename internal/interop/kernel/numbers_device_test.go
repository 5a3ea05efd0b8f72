package kernel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"btrlab/internal/interop"
)

const deviceJob = `[j]
filename=%s
rw=%s
bs=4k
size=256M
norandommap
%s
direct=1
time_based
runtime=3
thread
group_reporting
`

// cost is what a process that ran a job cost, its start and end included.
type cost struct {
	iops     float64
	cpu      float64 // microseconds a request, user and system
	switches float64 // context switches a request
}

// jobCost runs a job and reads its report, fio's JSON.
func jobCost(t *testing.T, name string, args ...string) cost {
	t.Helper()
	c := exec.Command(name, args...)
	var errw bytes.Buffer
	c.Stderr = &errw
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, interop.Tail(out), interop.Tail(errw.Bytes()))
	}
	type dir struct {
		IOPS float64
		IOs  float64 `json:"total_ios"`
	}
	var r struct{ Jobs []struct{ Read, Write dir } }
	if err := json.Unmarshal(out[max(0, bytes.IndexByte(out, '{')):], &r); err != nil || len(r.Jobs) != 1 {
		t.Fatalf("fio's JSON: %v\n%s", err, interop.Tail(out))
	}
	j, used := r.Jobs[0], c.ProcessState.SysUsage().(*syscall.Rusage)
	n := j.Read.IOs + j.Write.IOs
	cpu := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	return cost{j.Read.IOPS + j.Write.IOPS, float64(cpu) / float64(time.Microsecond) / n, float64(used.Nvcsw+used.Nivcsw) / n}
}

// TestNumbersDevice: 4 KiB direct requests at random places, 32 in flight: ours on an image that is
// opened with O_DIRECT, and fio's on a raw file of the same file system. By one task with a queue,
// on the ring of the device; and by 32 that wait for each of theirs, on the ring and by system
// calls. The goal is 0.9. The files lie where TMPDIR says: on a tmpfs there is no device. A disk
// that is slower than either hides the difference in requests a second, not that in CPU time.
func TestNumbersDevice(t *testing.T) {
	interop.Numbers(t, "fio")
	bin := interop.Binary(t)
	dir := t.TempDir()
	img, raw := filepath.Join(dir, "img"), filepath.Join(dir, "raw")
	job := func(name, file, rw, how string) string {
		path := filepath.Join(dir, name+rw)
		interop.Must(t, os.WriteFile(path, fmt.Appendf(nil, deviceJob, file, rw, how), 0o644))
		return path
	}
	interop.Must(t, os.WriteFile(raw, interop.NewFiller(1).Bytes(256<<20), 0o644))
	// Allocated by the host: else each write of ours is the first one of a block of the image file.
	interop.Must(t, os.WriteFile(img, make([]byte, 640<<20), 0o644))
	interop.Sh(t, bin, "mkfs", "-q", "--force", img)
	interop.Sh(t, bin, "put", "--nocow", raw, img+":/f")
	interop.Sh(t, "sync", "-f", dir)
	for _, rw := range []string{"randread", "randwrite"} {
		for _, c := range []struct {
			what, how string
			io        []string
		}{
			{"one queue of 32", "ioengine=io_uring\niodepth=32", []string{"uring"}},
			{"32 jobs of 1", "ioengine=psync\nnumjobs=32", []string{"uring", "sync"}},
		} {
			ours, theirs := job("ours", "f", rw, c.how), job("fio", raw, rw, c.how)
			for _, io := range c.io {
				var iops, cpu, switches [2][]float64
				add := func(i int, c cost) {
					iops[i] = append(iops[i], c.iops)
					cpu[i] = append(cpu[i], c.cpu)
					switches[i] = append(switches[i], c.switches)
				}
				for range interop.Rounds {
					add(0, jobCost(t, bin, "bench", ours, "--image", img, "--policy", "modern", "--device-direct", "--device-io", io, "--json"))
					add(1, jobCost(t, "fio", "--output-format=json", theirs))
				}
				what := fmt.Sprintf("direct %s, %s, device-io %s", rw, c.what, io)
				interop.Spread(t, what+", goal 0.9", iops[0], "fio", iops[1], "iops")
				interop.Spread(t, what+", CPU", cpu[0], "fio", cpu[1], "us a request")
				interop.Spread(t, what+", switches", switches[0], "fio", switches[1], "a request")
			}
		}
	}
	interop.Judged(t, img)
}
