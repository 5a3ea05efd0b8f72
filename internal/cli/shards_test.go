package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/cli/app"
	"btrlab/internal/judge/noticed"
	"btrlab/internal/shard"
)

// shards does all shards of a command, and returns their files.
func shards(t *testing.T, of int, args ...string) (files []string) {
	t.Helper()
	dir := t.TempDir()
	for i := range of {
		name := filepath.Join(dir, fmt.Sprintf("part-%d.json", i))
		out := verb(t, 0, append(args, "--shard", fmt.Sprintf("%d/%d", i, of), "--out", name)...)
		if !strings.Contains(out, fmt.Sprintf("part-%d.json: shard %d/%d is whole", i, i, of)) {
			t.Errorf("%s", out)
		}
		files = append(files, name)
	}
	return files
}

// Every command that is cut finds in shards what it finds without them; a shard that ran before is
// left as it is, and one that was killed goes on and has the same bytes.
func TestShards(t *testing.T) {
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{1, "truncate-race, policy unlocked: violated, 1 preemption, in shard", []string{"explore", "truncate-race", "--policy", "unlocked,unlocked-drain"}},
		{1, "are broken.", []string{"explore", "--all", "--policy", "unlocked", "--schedules", "20"}},
		{0, "500 sequences of length 1 in 3 shards under locked", []string{"crash", "--bounded", "1"}},
		{1, "LOST ", []string{"crash", "--bounded", "3", "--sample", "25", "--wrong", "no-flush"}},
	} {
		files := shards(t, 3, c.args...)
		out := verb(t, c.code, append([]string{"merge"}, files...)...)
		if !strings.Contains(strings.Join(strings.Fields(out), " "), c.says) {
			t.Errorf("%v: want %s in\n%s", c.args, c.says, out)
		}
		whole, err := os.ReadFile(files[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{len(whole), len(whole) / 2, 0} {
			if err := os.WriteFile(files[1], whole[:size], 0o644); err != nil {
				t.Fatal(err)
			}
			verb(t, 0, append(c.args, "--shard", "1/3", "--out", files[1])...)
			if again, err := os.ReadFile(files[1]); err != nil || !bytes.Equal(again, whole) {
				t.Fatalf("%v: from %d bytes on the shard is\n%s\nwant\n%s\n%v", c.args, size, again, whole, err)
			}
		}
	}
}

// Faults that make drawn has planted in shards are one table. What make drawn fails for is found:
// an argument that a test refutes, and too few that were noticed.
func TestShardsOfDrawn(t *testing.T) {
	for _, c := range []struct {
		least float64
		wrong string
		code  int
	}{{0.4, "", 0}, {0.6, "", 1}, {0.4, "no difference", 1}} {
		faults := []noticed.Fault{{ID: "a", Dir: "internal/x", By: "TestA", Argued: c.wrong}, {ID: "b", Dir: "internal/x", Verdict: noticed.Survives}}
		w, err := shard.New(noticed.Work, "", noticed.Asked{Draw: 2, Seed: "s", Least: c.least}, len(faults))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		args := []string{"merge"}
		for n := range faults {
			args = append(args, filepath.Join(dir, fmt.Sprint(n)))
			if _, err := shard.Do(args[n+1], w, shard.Part{N: n, Of: 2}, shard.Doing{Jobs: 1, Item: func(n int) (any, error) { return faults[n], nil }}); err != nil {
				t.Fatal(err)
			}
		}
		out := verb(t, c.code, args...)
		if !strings.Contains(out, "noticed 50.0 %") || strings.Contains(out, "and TestA notices it") != (c.wrong != "") {
			t.Errorf("%+v: %s", c, out)
		}
	}
}

// The JSON of a merge is that of the command without shards, and --json without a file writes a
// shard to standard output.
func TestShardsJSON(t *testing.T) {
	name := filepath.Join(t.TempDir(), "part.json")
	args := []string{"explore", "truncate-race", "--policy", "unlocked", "--shard", "0/1", "--json"}
	out := verb(t, 0, args...)
	if err := os.WriteFile(name, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	var r struct{ Verdict, Replay string }
	if err := json.Unmarshal([]byte(verb(t, 1, "merge", "--json", name)), &r); err != nil || r.Verdict != "violated" || r.Replay == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if out := verb(t, 0, append(args, "--out", name)...); !json.Valid([]byte(out)) || !strings.Contains(out, `"had": 4`) {
		t.Errorf("%s", out)
	}
}

// What is no shard, or none of this work, is one line that says so.
func TestShardErrors(t *testing.T) {
	files := shards(t, 3, "crash", "--bounded", "1")
	other := shards(t, 3, "crash", "--bounded", "1", "--policy", "modern")
	whole, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, text []byte) string {
		name = filepath.Join(filepath.Dir(files[0]), name)
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	cut := put("cut.json", whole[:2*len(whole)/3])
	edited := put("edited.json", bytes.Replace(whole, []byte(`"sequences":10`), []byte(`"sequences":90`), 1))
	version := put("version.json", bytes.Replace(whole, []byte(`{"btrlab_shard":1`), []byte(`{"btrlab_shard":2`), 1))
	for _, c := range []struct {
		says string
		args []string
	}{
		{"cut.json: shard 1/3 ends after", []string{"merge", files[0], cut}},
		{"edited.json: bad line 2, which was changed", []string{"merge", files[0], edited}},
		{"version.json: bad format, have 2 want 1", []string{"merge", files[0], version}},
		{`bad policy, have "modern" want "locked"`, []string{"merge", files[0], other[1]}},
		{"shard 0 is there twice", []string{"explore", "merge", files[0], files[0]}},
		{"no file of a shard", []string{"merge", "shards_test.go"}},
		{"edited.json: bad line 2", []string{"crash", "--bounded", "1", "--shard", "1/3", "--out", edited}},
		{"bad bounded, have 1 want 2", []string{"crash", "--bounded", "2", "--shard", "1/3", "--out", files[1]}},
		{"bad shard, have 1/3 want 2/3", []string{"crash", "--bounded", "1", "--shard", "2/3", "--out", files[1]}},
		{"--part is --shard I/N now", []string{"crash", "--bounded", "1", "--part", "3/100"}},
		{`bad --shard, have "4/4"`, []string{"crash", "--bounded", "1", "--shard", "4/4", "--out", cut}},
		{"--shard needs --out FILE", []string{"explore", "truncate-race", "--shard", "0/4"}},
		{"--out is the file of a --shard", []string{"explore", "truncate-race", "--out", cut}},
		{"--time does not go with --shard", []string{"explore", "truncate-race", "--time", "1s", "--shard", "0/4", "--json"}},
	} {
		var out, errw bytes.Buffer
		if code := Main(c.args, strings.NewReader(""), &out, &errw); code != app.ExitUsage || !strings.Contains(errw.String(), c.says) || strings.Count(errw.String(), "\n") != 1 {
			t.Errorf("%v: exit code %d, want %s in\n%s", c.args, code, c.says, errw.String())
		}
	}
	var out, errw bytes.Buffer
	if code := Main([]string{"merge", files[2], files[0]}, strings.NewReader(""), &out, &errw); code != 2 || !strings.Contains(errw.String(), "missing: shard 1 of 3") {
		t.Errorf("exit code %d\n%s%s", code, out.String(), errw.String())
	}
}
