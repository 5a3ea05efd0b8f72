package kernel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/measure/linuxfile"
	"btrlab/internal/sched"
)

// TestDeviceIO: jobs on an image file and on a loop device, through a ring and past the page cache,
// in every combination. Each block that a job has written is read back and judged by the job itself
// (verify=crc32c); both checkers find the image right, and Linux reads the same bytes as we do.
func TestDeviceIO(t *testing.T) {
	interop.Linux(t)
	job := filepath.Join(t.TempDir(), "job.fio")
	interop.Must(t, os.WriteFile(job, []byte(`[global]
size=8M
verify=crc32c
iodepth=16
bssplit=4k/70:16k/20:128k/10
[buffered]
filename=a
rw=randwrite
ioengine=psync
fsync=50
[direct]
filename=b
rw=randwrite
ioengine=io_uring
direct=1
[cow]
filename=c
rw=write
ioengine=libaio
direct=1
`), 0o644))
	for _, block := range []bool{false, true} {
		for _, flags := range [][]string{{"--device-io", "uring"}, {"--device-direct"}, {"--device-io", "uring", "--device-direct"}} {
			t.Run(fmt.Sprintf("block=%v %s", block, strings.Join(flags, " ")), func(t *testing.T) {
				// On a real disk: a tmpfs takes O_DIRECT and makes nothing of it.
				img := filepath.Join(t.TempDir(), "img")
				interop.Btrlab(t, "mkfs", "-q", "--size", "512M", img)
				dev := img
				if block {
					dev = strings.TrimSpace(interop.Sh(t, "losetup", "-f", "--show", img))
					interop.LoopFiles[img] = true
					defer func() {
						if dev != img {
							interop.Sh(t, "losetup", "-d", dev)
						}
					}()
				}
				args := append([]string{"bench", job, "--image", dev, "--policy", "modern", "--json"}, flags...)
				var r struct {
					Jobs []struct {
						Write struct {
							Bytes uint64 `json:"io_bytes"`
						}
					}
				}
				out := interop.Btrlab(t, args...)
				interop.Must(t, json.Unmarshal([]byte(out), &r))
				if len(r.Jobs) != 3 || r.Jobs[0].Write.Bytes < 8<<20 || r.Jobs[1].Write.Bytes < 8<<20 || r.Jobs[2].Write.Bytes < 8<<20 {
					t.Fatalf("the jobs wrote less than 8 MiB each: %+v", r)
				}
				if block {
					interop.Sh(t, "losetup", "-d", dev)
					dev = img
				}
				interop.Judged(t, img)
				interop.Mounted(t, img, "ro", func(dir string) {
					for _, name := range []string{"a", "b", "c"} {
						want, err := os.ReadFile(filepath.Join(dir, name))
						interop.Must(t, err)
						have := interop.Btrlab(t, "cat", img+":/"+name)
						if len(want) != 8<<20 || !bytes.Equal([]byte(have), want) {
							t.Errorf("%s: Linux reads %d bytes, and not what we read", name, len(want))
						}
					}
				})
			})
		}
	}
}

// TestLinuxRows: --linux on a mounted btrfs. The job's file is NOCOW there, its blocks are judged
// as ours are, and it is gone at the end.
func TestLinuxRows(t *testing.T) {
	interop.Linux(t, "lsattr")
	img := interop.Image(t, "img")
	interop.Must(t, os.WriteFile(img, nil, 0o600))
	interop.Must(t, os.Truncate(img, 1<<30))
	interop.Sh(t, "mkfs.btrfs", "-q", img)
	interop.Mounted(t, img, "", func(dir string) {
		for _, engine := range []string{"psync", "libaio", "io_uring"} {
			for _, direct := range []string{"direct=0", "direct=1"} {
				var r struct {
					Rows []struct {
						Policy, Content, Check string
						IOPS                   float64
						Share                  *float64 `json:"eagain_share"`
					}
				}
				interop.Must(t, json.Unmarshal([]byte(interop.Btrlab(t, "compare", "--policy", "modern", "--linux", dir, "--rounds", "1", "--runtime-seconds", "0.3",
					"--size", "8M", "--jobs", "2", "--set", "ioengine="+engine, "--set", direct, "--json")), &r))
				if len(r.Rows) != 3 {
					t.Fatalf("%s, %s: %d rows, want 3", engine, direct, len(r.Rows))
				}
				for _, row := range r.Rows {
					if row.Content != "ok" || row.IOPS == 0 || (row.Check == "clean") != (row.Policy == "modern") ||
						(row.Share != nil) != (row.Policy == linuxfile.RowNowait) {
						t.Errorf("%s, %s: row %+v", engine, direct, row)
					}
				}
				if l, _ := os.ReadDir(dir); len(l) != 0 {
					t.Fatalf("%s, %s: %d files are left", engine, direct, len(l))
				}
			}
		}
		d, err := linuxfile.Open(dir, true, func(s string) { t.Errorf("note %q, want none on a btrfs", s) })
		interop.Must(t, err)
		interop.Must(t, d.Prepare(sched.NewTask("test"), 1<<20))
		l, err := os.ReadDir(dir)
		interop.Must(t, err)
		if out := interop.Sh(t, "lsattr", filepath.Join(dir, l[0].Name())); !strings.Contains(strings.Fields(out)[0], "C") || d.FileSystem() != "btrfs" {
			t.Errorf("file system %s, attributes %q, want btrfs and C", d.FileSystem(), out)
		}
		interop.Must(t, d.Close())
	})
}
