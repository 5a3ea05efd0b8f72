package kernel

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	engine "btrlab/internal/fs"
	"btrlab/internal/interop"
	"btrlab/internal/judge/crash"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/script"
	"btrlab/internal/testing/need"
)

// oneOps are the bounded workloads of one operation that end with an fsync or fdatasync.
func oneOps() (list []*crash.Sequence) {
	crash.Bounded(1, 0, 0, func(q *crash.Sequence) bool {
		if lines := q.Lines(); strings.HasPrefix(lines[len(lines)-1], "f") {
			list = append(list, q)
		}
		return true
	})
	return list
}

// Each bounded workload of one operation with an fsync (btrlab crash --bounded 1), and a power cut
// after it. Each kernel does the workload, and replays what is left, as the engine does; and the
// engine does it, and both replay. They find the same: names, sizes, blocks, bytes, attributes and
// times. Both checkers find all of it clean.
func TestKernelBounded(t *testing.T) {
	interop.Linux(t)
	l := logsOf(t, every(oneOps(), interop.Pick(*kernelsEvery, 60)))
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			c := l.ask(t, k)
			keep(t, k, func(m *measured) { m.Bounded = c })
		})
	}
}

// The sample of make kernels that is part of make interop: one kernel, which the commit draws,
// boots and replays some bounded workloads' logs, of its own and of ours.
func TestOneKernel(t *testing.T) {
	k, draw := oneKernel(t)
	all := oneOps()
	// The list repeats: of every 40th workload no one leaves a log if the first is the 12th, 31st,
	// 32nd, 36th or 37th. A prime keeps no step with it.
	const step = 41
	c := logsOf(t, every(all[draw%step:], step)).ask(t, k)
	if c.TheirLogs == 0 || c.Ours == 0 {
		t.Errorf("nothing was asked: %+v", c)
	}
}

// oneKernel is a kernel of those that are fetched, which a commit draws, and the number that it
// draws besides.
func oneKernel(t *testing.T) (k *kernels.Kernel, draw int) {
	t.Helper()
	interop.Linux(t)
	_, err := exec.LookPath("qemu-system-x86_64")
	list := kernels.Installed()
	if err != nil || len(list) == 0 {
		t.Skipf("KERNEL, LEFT OUT: no qemu-system-x86_64, or no kernel in %s (make kernels)", kernels.Folder())
	}
	h := fnv.New32a()
	h.Write([]byte(os.Getenv(need.LongEnv)))
	draw = int(h.Sum32() >> 8)
	return list[draw%len(list)], draw
}

// every is each n-th of a list.
func every(list []*crash.Sequence, n int) (some []*crash.Sequence) {
	for i := 0; i < len(list); i += n {
		some = append(some, list[i])
	}
	return some
}

// workloadLogs are workloads for kernels, and the logs that the engine leaves of them.
type workloadLogs struct {
	base         string // image
	packed       []byte
	list         []*crash.Sequence
	theirs, ours []jobs.LogTask
	files        map[string][]byte // with the logs of ours
	of           []*crash.Sequence // the workloads of ours
}

func logsOf(t *testing.T, list []*crash.Sequence) *workloadLogs {
	t.Helper()
	l := &workloadLogs{base: interop.Image(t, "base.img"), list: list, files: map[string][]byte{}}
	interop.Btrlab(t, "mkfs", "-q", "--size", "192M", l.base)
	var err error
	l.packed, err = jobs.Pack(l.base)
	interop.Must(t, err)
	for i, q := range list {
		l.theirs = append(l.theirs, jobs.LogTask{Lines: q.Lines()})
		if left := ourLog(t, l.base, q); left != nil {
			name := fmt.Sprintf("ours-%d", i)
			l.ours = append(l.ours, jobs.LogTask{Left: "/" + name})
			l.files[name], l.of = left, append(l.of, q)
		}
	}
	t.Logf("%d workloads, %d leave a log of ours", len(list), len(l.ours))
	return l
}

// ask has a kernel do the workloads, and replay what it has left and what the engine has.
func (l *workloadLogs) ask(t *testing.T, k *kernels.Kernel) *logCounts {
	t.Helper()
	r := replayedBy(t, k, l.packed, l.files, slices.Concat(l.theirs, l.ours))
	c := &logCounts{Workloads: len(l.theirs), Ours: len(l.ours)}
	for i := range r.said {
		s := &r.said[i]
		if i < len(l.theirs) && s.Error == "" && !s.Log {
			continue // there is nothing to replay
		}
		why := r.sameReplay(t, k, l.base, i, l.files)
		if i < len(l.theirs) {
			c.TheirLogs++
			if why == "" {
				c.TheirsSame++
			} else {
				t.Errorf("the kernel's log of %s: %s", l.list[i].Script(), why)
			}
		} else if why == "" {
			c.OursSame++
		} else {
			t.Errorf("our log of %s: %s", l.of[i-len(l.theirs)].Script(), why)
		}
	}
	t.Logf("Linux %s: %d workloads, %d leave a log, %d of these replayed by the engine as by the kernel; %d logs of ours, %d replayed by the kernel as by the engine",
		k.Release, c.Workloads, c.TheirLogs, c.TheirsSame, c.Ours, c.OursSame)
	return c
}

// ourLog is what a power cut after the sequence leaves of the image, as a Delta, if there is a log.
func ourLog(t *testing.T, base string, q *crash.Sequence) []byte {
	t.Helper()
	tk := sched.NewTask("crash")
	dev, err := blockdev.Open(base, blockdev.ReadOnly)
	interop.Must(t, err)
	defer dev.Close()
	found, rec, _, err := q.Run(tk, dev, crash.Options{FS: engine.Options{Policy: policy.MustParse("modern")}})
	interop.Must(t, err)
	if found != nil {
		t.Fatalf("%s: %v", q.Script(), found.Loss)
	}
	return leftOf(t, tk, base, rec)
}

// leftOf is the image after the last point at which something was promised, as a Delta, if it has a
// log.
func leftOf(t *testing.T, tk *sched.Task, base string, rec *crash.Recording) []byte {
	t.Helper()
	states := rec.States(crash.Choice{Points: true})
	if len(states) == 0 {
		return nil
	}
	left, err := rec.Device(tk, states[len(states)-1])
	interop.Must(t, err)
	img := interop.Image(t, "left.img")
	dump(t, tk, left, img)
	defer os.Remove(img)
	if !hasLog(t, img) {
		return nil
	}
	b, err := jobs.Delta(img, base)
	interop.Must(t, err)
	return b
}

// replays is what a kernel says of logs.
type replays struct {
	tasks []jobs.LogTask
	said  []jobs.LogSaid
	files map[string][]byte // of the guest
}

// replayedBy boots the kernel for the tasks, some at a time: what they leave fits on the guest's
// disk.
func replayedBy(t *testing.T, k *kernels.Kernel, packed []byte, files map[string][]byte, tasks []jobs.LogTask) *replays {
	t.Helper()
	all := &replays{tasks: tasks, files: map[string][]byte{}}
	const some = 120
	for from := 0; from < len(tasks); from += some {
		part := tasks[from:min(from+some, len(tasks))]
		b, err := json.Marshal(part)
		interop.Must(t, err)
		in := map[string][]byte{"base": packed, "tasks": b}
		for _, x := range part {
			if x.Left != "" {
				in[x.Left[1:]] = files[x.Left[1:]]
			}
		}
		r := asked(t, &kernels.Machine{Kernel: k, Files: in, MemoryMiB: 3000}, "logs", "/base", "/tasks")
		var said []jobs.LogSaid
		interop.Must(t, json.Unmarshal(r.Files[jobs.LogsFile], &said))
		for i := range said {
			for _, what := range []string{"left", "replayed"} {
				all.files[fmt.Sprint(what, "-", from+i)] = r.Files[fmt.Sprint(what, "-", i)]
			}
		}
		all.said = append(all.said, said...)
	}
	return all
}

// sameReplay replays log n with the engine, and says how the two trees differ, or which of them a
// checker finds broken. The trees are read by the running kernel.
//
// A directory from which the replay takes a name, and whose inode is not in the log, has the time
// of the replay as its mtime until 6.12: those of its directories are not compared.
func (r *replays) sameReplay(t *testing.T, k *kernels.Kernel, base string, n int, files map[string][]byte) string {
	t.Helper()
	s := &r.said[n]
	if s.Error != "" {
		return s.Error
	}
	left := r.files[fmt.Sprint("left-", n)]
	if of := r.tasks[n].Left; of != "" {
		left = files[of[1:]]
	}
	img := interop.Image(t, "log.img")
	defer os.Remove(img)
	patched := func(delta []byte) {
		interop.Sh(t, "cp", "--sparse=always", base, img)
		interop.Must(t, jobs.Patch(delta, img))
	}
	patched(r.files[fmt.Sprint("replayed-", n)])
	interop.Judged(t, img)
	patched(left)
	replay(t, img)
	interop.Judged(t, img)
	var have map[string]string
	interop.Mounted(t, img, "ro", func(dir string) {
		var err error
		have, err = jobs.Facts(dir)
		interop.Must(t, err)
	})
	if kernels.Compare(k.Version, "6.18") < 0 {
		have, s.Facts = withoutDirTimes(have), withoutDirTimes(s.Facts)
	}
	if !maps.Equal(have, s.Facts) {
		return "the engine and the kernel find: " + treesDiffer(have, s.Facts)
	}
	return ""
}

var dirTime = regexp.MustCompile(`^(mode=4\d{4} .*)mtime=\d+ `)

// withoutDirTimes are the facts without the mtimes of directories.
func withoutDirTimes(facts map[string]string) map[string]string {
	out := map[string]string{}
	for path, text := range facts {
		out[path] = dirTime.ReplaceAllString(text, "$1")
	}
	return out
}

// crashStories are sequences after which kernels lost something or could not be mounted: those that
// a fuzzer of crashes found in 2025 and 2026, and that have been mended upstream.
var crashStories = []struct {
	name, commit, since string // Linux has the commit since
	lines               string
	gone                string // what a kernel without the commit loses
}{
	{"a new link's parent", "bfe3d755ef7c", "6.18", "touch /foo; sync; mkdir /dir; write --data ab --length 65536 /foo; fsync /foo; ln /foo /dir/bar; fsync /", "dir"},
	{"a directory of a renamed file's parent", "5630f7557de6", "6.19", "touch /foo; write --data ab --length 65536 /foo; fsync /foo; mkdir /dir; touch /dir/bar; mv /foo /baz; fsync /", "dir/bar"},
	{"the name of a directory that moved", "266273eaf4d9", "6.19", "mkdir /dir1; mkdir /dir2; sync; mv /dir1 /dir2/dir1; touch /dir1; fsync /dir1; mv /dir1 /dir2/foo; fsync /dir2/foo", "dir2/foo"},
	{"the name of a directory that is gone", "9573a365ff9f", "7.0", "mkdir /foo; sync; rm -r /foo; mkdir /dir1; mkdir /dir2; touch /foo; ln /foo /dir2/link; fsync /dir2; fsync /", "dir1"},
}

// The engine loses nothing in these sequences, under the policy of any kernel, and each kernel
// replays its log of them. What the kernels themselves lose is counted: a Debian kernel has the
// change or not.
func TestKernelStories(t *testing.T) {
	interop.Linux(t)
	base := interop.Image(t, "base.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "192M", base)
	packed, err := jobs.Pack(base)
	interop.Must(t, err)
	var tasks []jobs.LogTask
	files := map[string][]byte{}
	for i := range crashStories {
		s := &crashStories[i]
		tasks = append(tasks, jobs.LogTask{Lines: strings.Split(s.lines, "; ")})
		for _, p := range []string{"linux-5.10", "linux-6.1", "linux-6.12", "linux-7.3"} {
			engineStory(t, base, s.lines, p)
		}
		if left := engineStory(t, base, s.lines, "modern"); left != nil {
			name := fmt.Sprintf("ours-%d", i)
			tasks = append(tasks, jobs.LogTask{Left: "/" + name})
			files[name] = left
		}
	}
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			r := replayedBy(t, k, packed, files, tasks)
			lost := map[string]string{}
			story := -1
			for i := range tasks {
				mine := tasks[i].Left != ""
				if !mine {
					story++
				}
				s, said := &crashStories[story], &r.said[i]
				switch {
				case mine:
					if why := r.sameReplay(t, k, base, i, files); why != "" {
						t.Errorf("%s, our log: %s", s.name, why)
					}
				case said.Error != "":
					lost[s.commit] = "no mount: " + said.Error
				case said.Facts[s.gone] == "":
					lost[s.commit] = s.gone + " is lost"
				default:
					lost[s.commit] = "whole"
				}
				if !mine && said.Error == "" {
					if why := r.sameReplay(t, k, base, i, files); why != "" {
						t.Errorf("%s, the kernel's log: %s", s.name, why)
					}
				}
			}
			for _, s := range crashStories {
				t.Logf("Linux %s, %s (%s, %s): %s", k.Release, s.name, s.commit, s.since, lost[s.commit])
			}
			keep(t, k, func(m *measured) { m.Stories = lost })
		})
	}
}

// engineStory does the lines with the engine under a policy, cuts the power at many points, judges
// what is left, and returns what is left at the end, as a Delta, if it has a log.
func engineStory(t *testing.T, base, lines, spec string) []byte {
	t.Helper()
	tk := sched.NewTask("crash")
	dev, err := blockdev.Open(base, blockdev.ReadOnly)
	interop.Must(t, err)
	defer dev.Close()
	r, err := crash.NewRecorder(tk, []blockdev.Device{dev}, crash.Options{FS: engine.Options{Policy: policy.MustParse(spec)}})
	interop.Must(t, err)
	for _, l := range script.Steps(lines) {
		verb, path, _ := strings.Cut(l, " ")
		op := crash.Op{Text: l, Promise: crash.PromiseOf(verb)}
		if verb == "fsync" {
			op.Path = path
		}
		do := func() error { return script.MustParse(l).Run(tk, r.FS) }
		if dir, ok := strings.CutPrefix(l, "rm -r "); ok { // of sh's, not of a script's
			do = func() error { return r.FS.Rmdir(tk, dir) }
		}
		interop.Must(t, r.Do(tk, op, do))
	}
	rec, err := r.End(tk)
	interop.Must(t, err)
	for _, s := range rec.States(crash.Choice{PerFlush: 4, Points: true, Seed: 1}) {
		loss, err := rec.Judge(tk, s)
		interop.Must(t, err)
		if loss != nil {
			t.Fatalf("%s under %s, power cut at %s: %s", lines, spec, s, loss)
		}
	}
	return leftOf(t, tk, base, rec)
}
