package kernel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	engine "btrlab/internal/fs"
	"btrlab/internal/hostio"
	"btrlab/internal/interop"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/crash"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

var (
	kernelsAll    = flag.Bool("kernels.all", false, "ask each kernel that is installed, not the oldest and the newest alone")
	kernelsEvery  = flag.Int("kernels.every", 1, "of the bounded workloads, ask each N-th")
	kernelsRounds = flag.Int("kernels.rounds", 0, "ask the writes that must not wait of a full file system so many times more, and print each verdict")
)

// bootTime is how long a guest may run.
const bootTime = 30 * time.Minute

// guestFolder is the folder of guestProgram, once it is there.
var guestFolder string

func removeGuestProgram() {
	if guestFolder != "" {
		os.RemoveAll(guestFolder)
	}
}

// guestProgram builds the static btrlab that guests run.
var guestProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "btrlab-guest")
	if err != nil {
		return "", err
	}
	guestFolder = dir
	path := filepath.Join(dir, "btrlab")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "btrlab/cmd/btrlab")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// booted are the kernels that a test asks: all that are installed with -kernels.all, or else the
// oldest one and the newest.
func booted(t *testing.T) []*kernels.Kernel {
	t.Helper()
	need.All(t, "qemu-system-x86_64", "mkfs.btrfs", "btrfs")
	list := kernels.Installed()
	if len(list) == 0 {
		need.Without(t, "other kernel in "+kernels.Folder()+" (make kernels)")
	}
	if !*kernelsAll && len(list) > 2 {
		list = []*kernels.Kernel{list[0], list[len(list)-1]}
	}
	return list
}

// asked boots a kernel for a job, which must succeed.
func asked(t *testing.T, m *kernels.Machine, job string, args ...string) *kernels.Result {
	t.Helper()
	var err error
	if m.Program, err = guestProgram(); err != nil {
		t.Fatal(err)
	}
	m.Args = jobs.Args(job, args...)
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	r, err := kernels.Run(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	// A mount that is refused is judged by its error.
	for _, line := range strings.Split(r.Log, "\n") {
		for _, bad := range []string{"BTRFS error", "BTRFS critical", "BUG:", "WARNING: CPU", "Oops"} {
			if strings.Contains(line, bad) && !strings.Contains(line, "unsupported optional features") && !strings.Contains(line, "open_ctree failed") {
				t.Errorf("%s says: %s", m.Kernel.Release, line)
			}
		}
	}
	if r.Exit != 0 {
		t.Fatalf("%s: exit code %d\n%s%s", m.Kernel.Release, r.Exit, interop.Tail([]byte(r.Output)), interop.Tail([]byte(r.Errors)))
	}
	return r
}

// A kernel boots, does its job and is turned off; a job that fails has its exit code, and a machine
// that is stopped leaves no result.
func TestKernelBoots(t *testing.T) {
	k := booted(t)[0]
	r := asked(t, &kernels.Machine{Kernel: k, Files: map[string][]byte{"note": []byte("to the guest")}}, "echo", "/note")
	if r.Output != k.Release+"\n" || string(r.Files["note"]) != "to the guest" {
		t.Errorf("the guest says %q, and %q came back, want its release %s and the note", r.Output, r.Files, k.Release)
	}
	program, err := guestProgram()
	interop.Must(t, err)
	m := &kernels.Machine{Kernel: k, Program: program, Args: jobs.Args("echo", "/nothing")}
	if r, err = kernels.Run(context.Background(), m); err != nil || r.Exit != 1 || !strings.Contains(r.Errors, "no such file") {
		t.Errorf("a job that fails: %+v, %v, want exit code 1", r, err)
	}
	g, err := kernels.Boot(context.Background(), m)
	interop.Must(t, err)
	interop.Must(t, g.Stop())
	if _, err := g.Wait(); !errors.Is(err, kernels.ErrNoResult) {
		t.Errorf("a machine that was stopped: %v", err)
	}
}

// kernelKinds are the options of mkfs, one line of features each, and the first version of Linux
// that can write such an image.
var kernelKinds = []struct{ options, since string }{
	{"", "5.10"}, {"--csum xxhash64", "5.10"}, {"--csum sha256", "5.10"}, {"--csum blake2b", "5.10"},
	{"-O ^skinny-metadata", "5.10"}, {"-O ^no-holes", "5.10"}, {"-n 4k -O ^no-holes,^skinny-metadata", "5.10"}, {"-n 64k --csum sha256", "5.10"},
	{"-O block-group-tree", "6.1"},
}

// Images of ours, one of each line of features that the kernel knows, and one of mkfs.btrfs: each
// kernel mounts, reads, scrubs and writes them, and they come back clean to both checkers, with the
// files that it says it has written. An image with a feature that it does not know it refuses.
func TestKernelImages(t *testing.T) {
	want := t.TempDir()
	interop.Tree(t, filepath.Join(want, "tree"), 5, 50)
	manifest, err := jobs.Manifest(want)
	interop.Must(t, err)
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			m := &kernels.Machine{Kernel: k, MemoryMiB: 2000}
			dir := filepath.Dir(interop.Image(t, "x"))
			for i, kind := range kernelKinds {
				img := filepath.Join(dir, fmt.Sprintf("kind-%d.img", i))
				interop.Btrlab(t, append([]string{"mkfs", "-q", "--size", "512M", "--rootdir", want, img}, strings.Fields(kind.options)...)...)
				m.Disks = append(m.Disks, img)
			}
			foreign := filepath.Join(dir, "foreign.img")
			interop.Sh(t, "truncate", "-s", "512M", foreign)
			interop.Sh(t, "mkfs.btrfs", "-q", "--rootdir", want, foreign)
			m.Disks = append(m.Disks, foreign)
			r := asked(t, m, "images", fmt.Sprint(len(m.Disks)))
			var said []jobs.ImageSaid
			interop.Must(t, json.Unmarshal(r.Files[jobs.ImagesFile], &said))
			var counts imageCounts
			for i, s := range said {
				img, name := m.Disks[i], "mkfs.btrfs"
				if i < len(kernelKinds) {
					name = "btrlab mkfs " + kernelKinds[i].options
					if kernels.Compare(k.Version, kernelKinds[i].since) < 0 {
						if !strings.Contains(s.Error, "mount: invalid argument") {
							t.Errorf("%s: %q, want that Linux %s refuses it", name, s.Error, k.Version)
						}
						counts.Refused = append(counts.Refused, strings.TrimPrefix(kernelKinds[i].options, "-O "))
						interop.Judged(t, img)
						continue
					}
				}
				if s.Error != "" || s.ScrubErrors != 0 {
					t.Errorf("%s: %s, %d errors of scrub", name, s.Error, s.ScrubErrors)
					continue
				}
				if !maps.Equal(s.Before, manifest) {
					t.Errorf("%s: the kernel reads another tree: %s", name, treesDiffer(s.Before, manifest))
				}
				interop.Judged(t, img)
				have := filepath.Join(t.TempDir(), "have")
				interop.Btrlab(t, "get", "-r", img+":/", have)
				got, err := jobs.Manifest(have)
				interop.Must(t, err)
				// get leaves out what lies in other subvolumes: the snapshot.
				interop.Btrlab(t, "get", "-r", img+":/snap", have+".snap")
				snap, err := jobs.Manifest(have + ".snap")
				interop.Must(t, err)
				got["snap"] = "dir"
				for path, sum := range snap {
					got["snap/"+path] = sum
				}
				if !maps.Equal(got, s.After) {
					t.Errorf("%s: btrlab reads another tree than the kernel has written: %s", name, treesDiffer(got, s.After))
				}
				interop.Must(t, errors.Join(os.RemoveAll(have), os.RemoveAll(have+".snap")))
				counts.Clean++
			}
			t.Logf("Linux %s: %d images read, scrubbed, written on and clean to both checkers, %d refused as unknown", k.Release, counts.Clean, len(counts.Refused))
			keep(t, k, func(m *measured) { m.Images = &counts })
		})
	}
}

// treesDiffer names the paths at which two manifests differ, a few of them.
func treesDiffer(a, b map[string]string) string {
	var list []string
	for _, m := range []map[string]string{a, b} {
		for path := range m {
			if a[path] != b[path] {
				list = append(list, fmt.Sprintf("%s: %q and %q", path, a[path], b[path]))
			}
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return strings.Join(list[:min(len(list), 5)], "; ")
}

// Logs that each kernel wrote before its power was cut, replayed by the engine: what the last fsync
// promised is there, and both checkers find the image clean. And logs of ours, replayed by each
// kernel: it finds the tree that the engine finds.
func TestKernelLogs(t *testing.T) {
	interop.Linux(t)
	n := interop.Pick(30, 4)
	base := interop.Image(t, "base.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "192M", base)
	packed, err := jobs.Pack(base)
	interop.Must(t, err)
	crashed, trees := ourCrashes(t, n)
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			var c logCounts
			t.Run("theirs", func(t *testing.T) { theirCrashes(t, k, packed, n, &c) })
			t.Run("ours", func(t *testing.T) {
				m := &kernels.Machine{Kernel: k, Files: map[string][]byte{}, MemoryMiB: 3000}
				var names []string
				for i, b := range crashed {
					names = append(names, fmt.Sprintf("/crashed-%d", i))
					m.Files[names[i][1:]] = b
				}
				r := asked(t, m, "replay", names...)
				var said []jobs.ReplaySaid
				interop.Must(t, json.Unmarshal(r.Files[jobs.ReplayFile], &said))
				for i, s := range said {
					if s.Error != "" {
						t.Errorf("image %d: %s", i, s.Error)
						continue
					}
					if !maps.Equal(s.Tree, trees[i]) {
						t.Errorf("image %d: the kernel has replayed another tree: %s", i, treesDiffer(s.Tree, trees[i]))
						continue
					}
					c.OursSame++
					img := interop.Image(t, "replayed.img")
					interop.Must(t, jobs.Unpack(r.Files[fmt.Sprint("replayed-", i)], img))
					interop.Judged(t, img)
					interop.Must(t, os.Remove(img))
				}
				c.Ours = len(said)
				t.Logf("Linux %s replayed %d of %d logs of ours as the engine does", k.Release, c.OursSame, c.Ours)
			})
			keep(t, k, func(m *measured) { m.Logs = &c })
		})
	}
}

// theirCrashes has the kernel crash n times, and replays.
func theirCrashes(t *testing.T, k *kernels.Kernel, packed []byte, n int, c *logCounts) {
	t.Helper()
	args := []string{}
	for seed := range n {
		args = append(args, "/base", fmt.Sprint(seed+1))
	}
	r := asked(t, &kernels.Machine{Kernel: k, Files: map[string][]byte{"base": packed}, MemoryMiB: 3000}, "crash", args...)
	var said []jobs.CrashSaid
	interop.Must(t, json.Unmarshal(r.Files[jobs.CrashFile], &said))
	c.Workloads = len(said)
	for _, s := range said {
		img := interop.Image(t, "crash.img")
		interop.Must(t, jobs.Unpack(r.Files[fmt.Sprint("crash-", s.Seed)], img))
		if hasLog(t, img) {
			c.TheirLogs++
		}
		replay(t, img)
		interop.Judged(t, img)
		have := filepath.Join(t.TempDir(), "have")
		interop.Btrlab(t, "get", "-r", img+":/", have)
		got, err := jobs.Manifest(have)
		interop.Must(t, err)
		kept := true
		for path, want := range s.Promised {
			if got[path] != want {
				kept = false
				t.Errorf("seed %d: %s is %q after replay, and the fsync promised %q; %s", s.Seed, path, got[path], want, s.Log)
			}
		}
		if kept {
			c.TheirsSame++
		}
		interop.Must(t, os.RemoveAll(have))
		interop.Must(t, os.Remove(img))
	}
	if len(said) != n || c.TheirLogs < n*2/3 {
		t.Errorf("%d crashes, %d with a log, want %d, most with one", len(said), c.TheirLogs, n)
	}
	t.Logf("Linux %s: %d crashes, %d with a log, replayed by the engine", k.Release, len(said), c.TheirLogs)
}

// ourCrashes makes n images of ours with a log, by random sequences, and what the engine finds in
// them after replay.
func ourCrashes(t *testing.T, n int) (packed [][]byte, trees []map[string]string) {
	t.Helper()
	base := interop.Image(t, "ours.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "192M", base)
	tk := sched.NewTask("crash")
	dev, err := blockdev.Open(base, blockdev.ReadOnly)
	interop.Must(t, err)
	defer dev.Close()
	crash.Bounded(3, 40*n, 11, func(q *crash.Sequence) bool {
		found, rec, _, err := q.Run(tk, dev, crash.Options{FS: engine.Options{Policy: policy.MustParse("modern")}})
		interop.Must(t, err)
		if found != nil {
			t.Fatalf("%s: %v", q.Script(), found.Loss)
		}
		states := rec.States(crash.Choice{Points: true})
		if len(states) == 0 { // nothing was promised
			return true
		}
		left, err := rec.Device(tk, states[len(states)-1])
		interop.Must(t, err)
		img := interop.Image(t, "left.img")
		dump(t, tk, left, img)
		if !hasLog(t, img) {
			interop.Must(t, os.Remove(img))
			return true
		}
		b, err := jobs.Pack(img)
		interop.Must(t, err)
		replay(t, img)
		have := filepath.Join(t.TempDir(), "have")
		interop.Btrlab(t, "get", "-r", img+":/", have)
		tree, err := jobs.Manifest(have)
		interop.Must(t, err)
		packed, trees = append(packed, b), append(trees, tree)
		interop.Must(t, os.Remove(img))
		return len(packed) < n
	})
	if len(packed) < n {
		t.Fatalf("%d of our crashed images have a log, want %d", len(packed), n)
	}
	return packed, trees
}

// The verdicts of RWF_NOWAIT writes of each kernel, of files in every state, beside those of the
// engine under the policy of its era, on files that the kernel has made in one image.
func TestKernelVerdicts(t *testing.T) {
	base := interop.Image(t, "base.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "256M", base)
	packed, err := jobs.Pack(base)
	interop.Must(t, err)
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			r := asked(t, &kernels.Machine{Kernel: k, Files: map[string][]byte{"base": packed}, MemoryMiB: 2500}, "nowait", "/base", fmt.Sprint(*kernelsRounds))
			var said map[string]string
			interop.Must(t, json.Unmarshal(r.Files[jobs.NowaitFile], &said))
			if len(said) < 60 {
				t.Errorf("%d verdicts, want 60 at least", len(said))
			}
			rows := verdictRows{Kernel: verdictRowsOf(said)}
			answers := map[string]map[string]string{} // by policy
			for _, pol := range []string{"modern", eraOf(k)} {
				answers[pol] = map[string]string{}
				for g := range jobs.NowaitGroups {
					img := interop.Image(t, "nowait.img")
					interop.Must(t, jobs.Unpack(r.Files[fmt.Sprint("nowait-", int(g))], img))
					engineVerdicts(t, img, pol, jobs.NowaitCells(g), answers[pol])
					interop.Must(t, os.Remove(img))
				}
			}
			rows.Modern, rows.Era = verdictRowsOf(answers["modern"]), verdictRowsOf(answers[eraOf(k)])
			agree := 0
			for key, v := range said {
				if answers[eraOf(k)][key] == v {
					agree++
				}
			}
			t.Logf("RWF_NOWAIT writes, Linux %s and the engine under policy %s: %d of %d agree; %s", k.Release, eraOf(k), agree, len(said), treesDiffer(said, answers[eraOf(k)]))
			if *kernelsRounds > 0 {
				t.Logf("space of metadata of the full file system, before each write:\n%s", r.Files[jobs.NowaitSpaceFile])
			}
			keep(t, k, func(m *measured) { m.Verdicts = &rows })
		})
	}
}

// verdictLetter is a verdict in the table.
func verdictLetter(verdict string) string {
	letters := map[string]string{"done": "D", "EAGAIN": "A", "EOPNOTSUPP": "O", "EDQUOT": "Q", "ENOSPC": "S"}
	if strings.HasPrefix(verdict, "(") {
		return "-"
	}
	return cmp.Or(letters[verdict], "?")
}

// engineVerdicts tries the writes by the engine on the image that a kernel has left.
func engineVerdicts(t *testing.T, img, spec string, cells []*jobs.NowaitCell, said map[string]string) {
	t.Helper()
	tk := sched.NewTask("test")
	dev, err := blockdev.Open(img, 0)
	interop.Must(t, err)
	defer dev.Close()
	pol, err := policy.Parse(spec)
	interop.Must(t, err)
	x, err := engine.Open(tk, []blockdev.Device{dev}, engine.Options{Policy: &pol})
	interop.Must(t, err)
	for _, c := range cells {
		_ = x.Sync(tk) // as the kernel's side; what is over a quota, or finds no space, fails
		f, err := x.OpenFile(tk, "/"+c.File("ours"), engine.O_RDWR, 0)
		interop.Must(t, err)
		all := make([]byte, f.Size(tk))
		_, _ = f.ReadAt(tk, all, 0)
		f.DropCache(tk, 0, 1<<20)
		p := hostio.Aligned(int(c.State.Len))
		switch c.Cache {
		case "cached":
			_, _ = f.ReadAt(tk, all, 0)
		case "dirty":
			if n, err := f.WriteAt(tk, p, c.State.Off); n != len(p) {
				said[c.Key()] = "(" + jobs.Verdict(n, c.State.Len, err) + ")"
				interop.Must(t, f.Close(tk))
				continue
			}
		}
		rq := kiocb.Request{Pos: uint64(c.State.Off), Flags: kiocb.Nowait}
		if c.Way == "direct" {
			rq.Flags |= kiocb.Direct
		}
		n, err := f.WriteIter(tk, rq, iopath.Source{Buf: p})
		said[c.Key()] = jobs.Verdict(n, c.State.Len, err)
		interop.Must(t, f.Close(tk))
	}
	_ = x.Close(tk)
}
