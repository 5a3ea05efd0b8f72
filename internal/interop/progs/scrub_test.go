package progs

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli"
	"btrlab/internal/format"
	"btrlab/internal/interop"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/repair"
	"btrlab/internal/sched"
)

// damage writes over copies of tree blocks and of data that a seed draws: of each not more than all
// but one, and of one extent of data every copy if lost is set. One superblock copy goes, too.
func (a array) damage(t *testing.T, r *rand.Rand, lost bool) {
	t.Helper()
	tk := sched.NewTask("damage")
	var devs []blockdev.Device
	for _, img := range a {
		d, err := blockdev.Open(img, 0)
		interop.Must(t, err)
		defer d.Close()
		devs = append(devs, d)
	}
	_, seen, err := check.Examine(tk, devs[0], check.Options{Devices: devs[1:]})
	interop.Must(t, err)
	hit := func(s check.Stripe, off uint64) {
		interop.Must(t, blockdev.Write(tk, s.Dev.Device, []byte("not what was here"), int64(s.Off+off)))
	}
	draw := func(logical, sectors uint64) {
		places, run := seen.ChunkAt(logical).Places(logical)
		spare := r.IntN(len(places))
		if seen.ChunkAt(logical).Parity() > 0 && places[0].Dev == seen.Devs[0] {
			spare = -1 // it is in the others of its row
		}
		for i, s := range places {
			for n := uint64(0); n < sectors && 4096*n < run; n++ {
				if i != spare && r.IntN(3) > 0 {
					hit(s, 4096*n+uint64(r.IntN(4000)))
				}
			}
		}
	}
	for _, b := range seen.Blocks {
		if r.IntN(3) == 0 {
			draw(b.Bytenr, 1)
		}
	}
	for _, p := range seen.Data {
		if r.IntN(4) == 0 {
			draw(p.Bytenr, min(p.Length/4096, 8))
		}
	}
	if lost {
		for _, p := range seen.Data {
			if p.Length < 8192 || p.Owner != format.FS_TREE_OBJECTID || p.Ino > 300 {
				continue // the last files have no checksums
			}
			places, _ := seen.ChunkAt(p.Bytenr).Places(p.Bytenr)
			for _, s := range places {
				hit(s, 5000)
			}
			break
		}
	}
	interop.Must(t, blockdev.Write(tk, devs[r.IntN(len(devs))], make([]byte, 100), int64(format.SuperMirror(1))))
}

// copied is a copy of the images.
func (a array) copied(t *testing.T) (b array) {
	t.Helper()
	dir := t.TempDir()
	for i, img := range a {
		b = append(b, filepath.Join(dir, fmt.Sprint("copy", i+1)))
		interop.Sh(t, "cp", "--sparse=always", img, b[i])
	}
	return b
}

// linuxScrub lets Linux scrub the file system, mounted read-only, and returns the raw counts of
// each device by their names, and the exit code.
func (a array) linuxScrub(t *testing.T) (counts []map[string]uint64, code int) {
	t.Helper()
	a.attachedTo(t, func(loops []string) {
		interop.Sh(t, "btrfs", append([]string{"device", "scan"}, loops...)...)
		dir := filepath.Join(t.TempDir(), "mnt")
		interop.Must(t, os.Mkdir(dir, 0o755))
		interop.Sh(t, "mount", "-t", "btrfs", "-o", "ro", loops[0], dir)
		c := exec.Command("btrfs", "scrub", "start", "-BdrR", dir)
		out, _ := c.Output()
		code = c.ProcessState.ExitCode()
		interop.Sh(t, "umount", dir)
		_ = exec.Command("btrfs", append([]string{"device", "scan", "--forget"}, loops...)...).Run()
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(strings.ToLower(line), "scrub device") {
				counts = append(counts, map[string]uint64{})
			}
			if name, val, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && len(counts) > 0 {
				if n, err := strconv.ParseUint(val, 10, 64); err == nil {
					counts[len(counts)-1][name] = n
				}
			}
		}
	})
	return counts, code
}

// ourScrub is the same by btrlab.
func (a array) ourScrub(t *testing.T, flags ...string) (counts []map[string]uint64, code int) {
	t.Helper()
	var out strings.Builder
	code = cli.Main(a.verb("", append([]string{"scrub", "--json"}, flags...)...), strings.NewReader(""), &out, io.Discard)
	var r struct{ Devices []repair.ScrubDevice }
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("exit code %d, %v\n%s", code, err, out.String())
	}
	for _, d := range r.Devices {
		b, err := json.Marshal(d.ScrubStats)
		interop.Must(t, err)
		m := map[string]uint64{}
		interop.Must(t, json.Unmarshal(b, &m))
		counts = append(counts, m)
	}
	return counts, code
}

// Of images that Linux has made, and that a seed has damaged, both scrubs count the same, on each
// device. Ours mends them: Linux's finds nothing then, btrfs check neither, and the files are as
// they were.
func TestScrub(t *testing.T) {
	interop.Linux(t)
	for _, p := range []struct {
		n              int
		data, metadata string
	}{{1, "dup", "dup"}, {2, "raid1", "raid1"}, {4, "raid10", "raid10"}, {3, "raid1", "raid1c3"}, {2, "single", "raid1"}, {3, "raid5", "raid1"}, {4, "raid6", "raid6"}} {
		t.Run(fmt.Sprintf("%d %s %s", p.n, p.data, p.metadata), func(t *testing.T) {
			all := newArray(t, p.n)
			all.attachedTo(t, func(loops []string) {
				interop.Sh(t, "mkfs.btrfs", append([]string{"-q", "-f", "-d", p.data, "-m", p.metadata}, loops...)...)
			})
			want := filepath.Join(t.TempDir(), "want")
			interop.Tree(t, want, 9, 200)
			all.mounted(t, func(dir string) {
				interop.Sh(t, "cp", "-a", want+"/.", dir)
				interop.Sh(t, "sh", "-c", "cd "+dir+" && mkdir nocow && chattr +C nocow && head -c 300000 /dev/zero > nocow/f && fallocate -l 1M nocow/later")
			})
			parity := p.data == "raid5" || p.data == "raid6"
			kinds := 2
			if parity {
				kinds = 1 // two units of a row to lose one
			}
			for seed := range interop.Pick(uint64(8), 2) {
				for _, lost := range []bool{false, true}[:kinds] {
					a := all.copied(t)
					a.damage(t, rand.New(rand.NewPCG(seed, 1)), lost)
					theirs, code := a.linuxScrub(t)
					ours, have := a.ourScrub(t, "-r")
					if code != have || len(ours) != p.n || len(theirs) != p.n || (have == 3) != lost {
						t.Fatalf("seed %d: exit code %d, Linux %d; %d devices, Linux %d", seed, have, code, len(ours), len(theirs))
					}
					errors := uint64(0)
					for i := range ours {
						for name, n := range ours[i] {
							// For the parity of a row Linux reads its data again, and counts it.
							if name != "parity_errors" && n != theirs[i][name] && !parity {
								t.Errorf("seed %d device %d: %s %d, Linux %d", seed, i+1, name, n, theirs[i][name])
							}
						}
						errors += ours[i]["csum_errors"] + ours[i]["verify_errors"]
					}
					if errors == 0 {
						t.Errorf("seed %d: nothing is damaged", seed)
					}
					t.Logf("seed %d: %d errors, lost %v", seed, errors, lost)
					if _, again := a.ourScrub(t); again != code {
						t.Errorf("seed %d: the scrub that writes ends with %d, want %d", seed, again, code)
					}
					theirs, code = a.linuxScrub(t)
					for i, c := range theirs {
						if sum := c["csum_errors"] + c["verify_errors"] + c["super_errors"]; c["corrected_errors"] > 0 || !lost && sum > 0 {
							t.Errorf("seed %d: Linux finds on device %d: %v", seed, i+1, c)
						}
					}
					if lost != (code == 3) {
						t.Errorf("seed %d: Linux ends with %d", seed, code)
					}
					if !lost {
						a.judged(t)
						a.mounted(t, func(dir string) {
							interop.Sh(t, "rm", "-r", dir+"/nocow")
							interop.SameTree(t, dir, want)
						})
					}
				}
			}
		})
	}
}
