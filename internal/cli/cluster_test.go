package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/need"
)

// indexedCommand is the shell text of the Kubernetes job.
func indexedCommand(t *testing.T) string {
	b, err := os.ReadFile("../../testdata/cluster/explore-job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "            - |\n")
	if !ok {
		t.Fatal("explore-job.yaml has no command")
	}
	var l []string
	for line := range strings.SplitSeq(rest, "\n") {
		if !strings.HasPrefix(line, "              ") {
			break
		}
		l = append(l, strings.TrimSpace(line))
	}
	return strings.Join(l, "\n")
}

// The two job files are run as their schedulers would run them, as processes of their own at once:
// the parts together find what one search finds, and a part that is missing is said to be.
func TestClusterFiles(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	slurm, err := filepath.Abs("../../testdata/cluster/explore-slurm.sh")
	if err != nil {
		t.Fatal(err)
	}
	const shards = 4
	for _, job := range []struct {
		name, index, count string
		args               []string
	}{
		{"slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", []string{"bash", slurm}},
		{"kubernetes", "JOB_COMPLETION_INDEX", "SHARDS", []string{"/bin/sh", "-euc", indexedCommand(t)}},
	} {
		for pol, verdict := range map[string]string{"unlocked": "violated", "unlocked-drain": "exhausted"} {
			dir := t.TempDir()
			// testscript.Main runs a command when the program is called by its name.
			if err := os.Symlink(self, filepath.Join(dir, "btrlab")); err != nil {
				t.Fatal(err)
			}
			env := append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "SCENARIO=truncate-race", "POLICY="+pol, fmt.Sprintf("%s=%d", job.count, shards))
			var cmds []*exec.Cmd
			for i := range shards {
				c := exec.Command(job.args[0], job.args[1:]...)
				c.Dir, c.Env, c.Stderr = dir, append(env[:len(env):len(env)], fmt.Sprintf("%s=%d", job.index, i)), os.Stderr
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				cmds = append(cmds, c)
			}
			for i, c := range cmds {
				if err := c.Wait(); err != nil {
					t.Fatalf("%s %s shard %d: %v", job.name, pol, i, err)
				}
			}
			merge := func(files ...string) (r scenario.Result) {
				c := exec.Command("btrlab", append([]string{"explore", "merge"}, files...)...)
				c.Path, c.Dir, c.Env = filepath.Join(dir, "btrlab"), dir, env
				out, err := c.Output()
				if c.ProcessState.ExitCode() > 1 {
					t.Fatalf("%s %s: merge: %v", job.name, pol, err)
				}
				if err := json.Unmarshal(out, &r); err != nil {
					t.Fatalf("%s %s: merge printed %q: %v", job.name, pol, out, err)
				}
				if (c.ProcessState.ExitCode() == 1) != (r.Verdict == "violated") {
					t.Fatalf("%s %s: exit code %d for %s", job.name, pol, c.ProcessState.ExitCode(), r.Verdict)
				}
				return r
			}
			r := merge("part-0.json", "part-1.json", "part-2.json", "part-3.json")
			if string(r.Verdict) != verdict || verdict == "violated" && (r.Preemptions != 1 || r.Replay == "") {
				t.Errorf("%s %s: %+v", job.name, pol, r)
			}
			if r := merge("part-0.json", "part-2.json", "part-3.json"); verdict == "exhausted" && (r.Verdict != "bounded" || !strings.Contains(r.Bound.String(), "1 of 4 shards missing")) {
				t.Errorf("%s %s without a part: %+v", job.name, pol, r)
			}
		}
	}
}

// A part that its time limit ends is kept, and the merge says that not everything was searched.
func TestClusterStopped(t *testing.T) {
	slurm, err := filepath.Abs("../../testdata/cluster/explore-slurm.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var files []string
	for i := range 2 {
		c := exec.Command("bash", slurm)
		c.Dir, c.Stderr = dir, os.Stderr
		c.Env = append(os.Environ(), "PATH="+filepath.Dir(program(t))+":"+os.Getenv("PATH"), "SCENARIO=two-writers-truncate", "POLICY=unlocked-drain",
			fmt.Sprintf("SLURM_ARRAY_TASK_ID=%d", i), "SLURM_ARRAY_TASK_COUNT=2", "LIMIT=1ns")
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(dir, fmt.Sprintf("part-%d.json", i)))
	}
	var r scenario.Result
	if err := json.Unmarshal([]byte(verb(t, 0, append([]string{"explore", "merge"}, files...)...)), &r); err != nil {
		t.Fatal(err)
	}
	if r.Verdict != "bounded" || !strings.Contains(r.Bound.String(), "of 2 shards (limit reached)") {
		t.Errorf("%+v", r)
	}
}

// Shards divide the work: without a method by name each does a part of the search, not nearly all
// of it again, as the parts of method bound do, which know nothing of what the others have seen.
func TestShardsDivide(t *testing.T) {
	need.Long(t)
	search := func(more ...string) (r scenario.Result) {
		t.Helper()
		args := append([]string{"explore", "two-writers-truncate", "--policy", "unlocked-drain", "--json"}, more...)
		if err := json.Unmarshal([]byte(verb(t, 0, args...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	whole := search("--method", "dpor")
	const shards = 4
	sum := 0
	for i := range shards {
		r := search("--shard", fmt.Sprintf("%d/%d", i, shards))
		if r.Verdict != whole.Verdict || r.Schedules > 3*whole.Schedules/4 {
			t.Errorf("shard %d of %d: %s; the whole is %s", i, shards, r.Bound, whole.Bound)
		}
		sum += r.Schedules
	}
	t.Logf("%d schedules in %d shards, the whole search %d", sum, shards, whole.Schedules)
}
