package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/need"
)

const clusterDir = "../../testdata/cluster"

// A jobFile is one of testdata/cluster, and how its scheduler starts a shard.
type jobFile struct {
	name, index, count string
	command            func(t *testing.T, file string) []string
}

var jobFiles = []jobFile{
	{"slurm.sh", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", func(_ *testing.T, file string) []string { return []string{"bash", file} }},
	{"kubernetes.yaml", "JOB_COMPLETION_INDEX", "SHARDS", func(t *testing.T, file string) []string {
		m := regexp.MustCompile(`(?m)^ +args:\n +- (exec .*)$`).FindStringSubmatch(readDoc(t, file))
		if m == nil {
			t.Fatalf("%s has no command", file)
		}
		return []string{"/bin/sh", "-euc", m[1]}
	}},
	// parallel starts all shards; a shell takes its place here, which knows this call only
	{"parallel.sh", "", "SHARDS", func(_ *testing.T, file string) []string { return []string{"sh", file, "--jobs", "2"} }},
}

// fakeParallel does for each line of its input what the last argument says.
const fakeParallel = `#!/bin/sh
for last; do :; done
while read -r n; do sh -c "$(printf %s "$last" | sed "s/{}/$n/g")" || exit; done
`

// clusterEnv is a folder with btrlab in it, and GNU parallel if the machine has none, and the
// environment of a shard of work there.
func clusterEnv(t *testing.T, work string) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// testscript.Main runs a command when the program is called by its name.
	if err := os.Symlink(self, filepath.Join(dir, "btrlab")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "parallel"), []byte(fakeParallel), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "WORK="+work)
}

// The job files are run as their schedulers would run them, as processes of their own at once: the
// shards together find what one search finds.
func TestClusterFiles(t *testing.T) {
	const shards = 4
	for _, job := range jobFiles {
		file, err := filepath.Abs(filepath.Join(clusterDir, job.name))
		if err != nil {
			t.Fatal(err)
		}
		for pol, verdict := range map[string]string{"unlocked": "violated", "unlocked-drain": "exhausted"} {
			dir, env := clusterEnv(t, "explore truncate-race --policy "+pol)
			started := shards
			if job.index == "" {
				started = 1
			}
			var cmds []*exec.Cmd
			for i := range started {
				args := job.command(t, file)
				c := exec.Command(args[0], args[1:]...)
				c.Dir, c.Env, c.Stderr = dir, append(env[:len(env):len(env)], fmt.Sprintf("%s=%d", job.count, shards), fmt.Sprintf("%s=%d", job.index, i)), os.Stderr
				if job.index == "" {
					c.Env = c.Env[:len(c.Env)-1]
				}
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				cmds = append(cmds, c)
			}
			for i, c := range cmds {
				if err := c.Wait(); err != nil { // also of a shard that has found something
					t.Fatalf("%s %s shard %d: %v", job.name, pol, i, err)
				}
			}
			files, code := []string{}, 0
			for i := range shards {
				files = append(files, filepath.Join(dir, fmt.Sprintf("part-%d.json", i)))
			}
			if verdict == "violated" {
				code = 1
			}
			var r scenario.Result
			if err := json.Unmarshal([]byte(verb(t, code, append([]string{"merge", "--json"}, files...)...)), &r); err != nil {
				t.Fatal(err)
			}
			if string(r.Verdict) != verdict || verdict == "violated" && (r.Preemptions != 1 || r.Replay == "") {
				t.Errorf("%s %s: %+v", job.name, pol, r)
			}
			r = scenario.Result{}
			// a part that is missing may have what was not found
			without := map[int]int{0: 2, 1: 1}[code]
			if err := json.Unmarshal([]byte(verb(t, without, append([]string{"merge", "--json"}, files[0], files[2], files[3])...)), &r); err == nil && code == 0 &&
				(r.Verdict != "bounded" || !strings.Contains(r.Bound.String(), "1 of 4 shards missing")) {
				t.Errorf("%s %s without a part: %+v", job.name, pol, r)
			}
		}
	}
}

// TestClusterCommands: what the job files run and tell the reader to run exists, for every kind of
// work that the guide's page names.
func TestClusterCommands(t *testing.T) {
	work := regexp.MustCompile(`(?:WORK="([^"]+)"|value: (explore .*))`)
	merge := regexp.MustCompile(`#   (btrlab merge [^#\n]*)`)
	check := func(at, text string) {
		c := commandsOf(at, "    "+text)
		if len(c) != 1 {
			t.Fatalf("%s: %s is no command", at, text)
		}
		if err := c[0].exists(nil); err != nil {
			t.Errorf("%s: %s: %v", at, text, err)
		}
	}
	kinds := map[string]bool{}
	for _, name := range []string{filepath.Join(clusterDir, "slurm.sh"), filepath.Join(clusterDir, "parallel.sh"), filepath.Join(clusterDir, "kubernetes.yaml"), "../../labs/guide/cluster.md"} {
		text := readDoc(t, name)
		m := work.FindAllStringSubmatch(text, -1)
		if len(m) == 0 {
			t.Errorf("%s names no work", name)
		}
		for _, m := range m {
			kinds[strings.Fields(m[1] + m[2])[0]] = true
			check(name, "btrlab "+m[1]+m[2]+" --shard 0/4 --out part-0.json")
		}
		if strings.HasSuffix(name, ".md") {
			continue
		}
		if m := merge.FindStringSubmatch(text); m == nil {
			t.Errorf("%s does not say how the files are joined", name)
		} else {
			check(name, m[1])
		}
	}
	if !kinds["explore"] || !kinds["crash"] {
		t.Errorf("the work is %v", kinds)
	}
}

// A shard that is stopped says how far its file is, and the same command goes on there.
func TestClusterStopped(t *testing.T) {
	dir, env := clusterEnv(t, "crash --bounded 2")
	file, err := filepath.Abs(filepath.Join(clusterDir, "slurm.sh"))
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(dir, "part-0.json")
	start := func() (*exec.Cmd, *strings.Builder) {
		var says strings.Builder
		c := exec.Command("bash", file)
		c.Dir, c.Stderr = dir, &says
		c.Env = append(env, "SLURM_ARRAY_TASK_ID=0", "SLURM_ARRAY_TASK_COUNT=400")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c, &says
	}
	lines := func() int {
		b, err := os.ReadFile(part)
		if err != nil {
			return 0
		}
		return strings.Count(string(b), "\n")
	}
	c, says := start()
	for lines() < 3 && c.ProcessState == nil {
		if b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(c.Process.Pid), "stat")); err != nil || strings.Contains(string(b), ") Z ") {
			break // it has ended
		}
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != 130 || !strings.Contains(says.String(), "of 8 items, and the same command goes on") {
		t.Fatalf("%v: %s", err, says)
	}
	if verb(t, 2, "merge", part); lines() < 3 {
		t.Errorf("%d lines are kept", lines())
	}
	c, says = start()
	if err := c.Wait(); err != nil || lines() != 10 {
		t.Errorf("%v, %d lines: %s", err, lines(), says)
	}
}

// Shards divide the work: without a method by name each does a part of the search, not nearly all
// of it again, as the parts of method bound do, which know nothing of what the others have seen.
func TestShardsDivide(t *testing.T) {
	need.Long(t)
	args := []string{"explore", "two-writers-truncate", "--policy", "unlocked-drain"}
	schedules := func(code int, args ...string) int {
		t.Helper()
		var r scenario.Result
		if err := json.Unmarshal([]byte(verb(t, code, append(args, "--json")...)), &r); err != nil || r.Verdict == "violated" {
			t.Fatal(err, r.Verdict)
		}
		return r.Schedules
	}
	whole := schedules(0, append(args, "--method", "dpor")...)
	files := shards(t, 4, args...)
	for _, f := range files {
		if n := schedules(2, "merge", f); n > 3*whole/4 {
			t.Errorf("%s has %d schedules, the whole %d", f, n, whole)
		}
	}
	t.Logf("%d schedules in 4 shards, the whole search %d", schedules(0, append([]string{"merge"}, files...)...), whole)
}
