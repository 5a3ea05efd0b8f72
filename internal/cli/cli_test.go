package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	testscript.Main(m, programs)
}

// programs are the programs that this test binary is, by the name it is called by.
var programs = map[string]func(){
	"btrlab": func() { os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
}

// TestScripts runs the verbs as people do, one process each. The scripts need neither root nor
// btrfs-progs.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "../../testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("LANG", "C.UTF-8")
			// Of make drawn: the programs have the fault.
			for _, name := range []string{"BTRLAB_FAULT", "BTRLAB_FAULT_REACHED"} {
				if v := os.Getenv(name); v != "" {
					env.Setenv(name, v)
				}
			}
			return nil
		},
		Condition: func(c string) (bool, error) { // [!long:NAME] skip
			name, ok := strings.CutPrefix(c, "long:")
			if !ok {
				return false, fmt.Errorf("unknown condition %q, want long:NAME", c)
			}
			return need.Drawn(t, name), nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "damage": damage, "cut": cut, "random": random, "logged": logged,
		},
	})
}

// exits CODE PROGRAM ARGS... wants that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want := args[0]; strconv.Itoa(code) != want {
		ts.Fatalf("exit code %d, want %s", code, want)
	}
}

// damage FILE OFFSET flips a byte.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	off, err := strconv.ParseInt(args[1], 0, 64)
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR, 0)
	ts.Check(err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, off)
	ts.Check(err)
	b[0] ^= 0xff
	_, err = f.WriteAt(b, off)
	ts.Check(err)
}

// cut FILE SIZE sets the size of a host file.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.ParseInt(args[1], 0, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// random FILE SIZE SEED makes a host file that does not compress and is the same every time.
func random(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	x, err := strconv.ParseUint(args[2], 0, 64)
	ts.Check(err)
	b := make([]byte, n)
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o644))
}

// logged STORY FILE makes the image that Linux left with a log after a story of
// internal/data/treelog/testdata/log.
func logged(ts *testscript.TestScript, neg bool, args []string) {
	f, err := os.Open("../data/treelog/testdata/log/" + args[0] + ".blocks.gz")
	ts.Check(err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	ts.Check(err)
	b, err := io.ReadAll(z)
	ts.Check(err)
	out, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	defer out.Close()
	const block, word = 4096, 8
	end := len(b) - word
	ts.Check(out.Truncate(int64(binary.LittleEndian.Uint64(b[end:]))))
	for i := 0; i < end; i += word + block {
		_, err := out.WriteAt(b[i+word:i+word+block], int64(binary.LittleEndian.Uint64(b[i:])))
		ts.Check(err)
	}
}

// TestEveryVerbExplained: a verb has a line, an example that names it, and --help that works.
func TestEveryVerbExplained(t *testing.T) {
	a := newCmdline(nil, nil, nil)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "help" || c.Name() == "completion" {
			return
		}
		if c.Short == "" || !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: short %q, example %q; want both, and the verb in the example", c.CommandPath(), c.Short, c.Example)
		}
		var out, errw bytes.Buffer
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		if code := Main(args, strings.NewReader(""), &out, &errw); code != 0 || !strings.Contains(out.String(), "Examples:") {
			t.Errorf("%v: exit code %d, output %q %q", args, code, out.String(), errw.String())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root := a.root()
	if n := len(root.Commands()); n < 19 {
		t.Errorf("%d verbs, want all", n)
	}
	walk(root)
}

// The examples in the help work. Those of the explorer are run, as a shell does, and find what they
// are examples for: a schedule in one gets stale when the write path takes another step. Of the
// others the flags and the number of arguments are looked at.
func TestExamples(t *testing.T) {
	need.Long(t)
	found := regexp.MustCompile(`truncate-race( 11:1.*)? --policy unlocked( --out|$)|--all`)
	// These take their time; with fewer schedules they say the same.
	short := strings.NewReplacer("explore --all", "explore --all --schedules 20", "btrlab museum all", "btrlab museum all --schedules 1000")
	bin := filepath.Dir(program(t))
	dir := t.TempDir()
	ran := 0
	run := func(verb, line string) {
		ran++
		c := exec.Command("sh", "-c", short.Replace(line))
		c.Dir, c.Env = dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		var out, errw bytes.Buffer
		c.Stdout, c.Stderr = &out, &errw
		_ = c.Run() // the exit code says it
		want := 0
		switch {
		case verb == "step": // it gets as far as the screen
			if want = 1; !strings.Contains(errw.String(), "no terminal") {
				t.Errorf("%s: %s", line, errw.String())
			}
		case found.MatchString(line) && !strings.Contains(line, "--shard"):
			want = 1 // of shards merge says it
		}
		if got := c.ProcessState.ExitCode(); got != want || out.Len() == 0 && verb != "step" {
			t.Errorf("%s: exit code %d, want %d: %s%s", line, got, want, out.String(), errw.String())
		}
	}
	parse := func(root *cobra.Command, line string) {
		_, line, _ = strings.Cut(line, "btrlab ")
		if i := strings.IndexAny(line, "|>&;"); i >= 0 {
			line = line[:i]
		}
		cmd, rest, err := root.Find(strings.Fields(line))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	var walk func(c *cobra.Command, verb string)
	walk = func(c *cobra.Command, verb string) {
		for line := range strings.Lines(c.Example) {
			line = strings.TrimSpace(line)
			// These boot a kernel.
			led := strings.Contains(line, "--kernel") || strings.Contains(line, "--confirm")
			switch {
			case slices.Contains([]string{"explore", "replay", "step", "museum"}, verb) && !led:
				run(verb, line)
			default:
				parse(newCmdline(nil, io.Discard, io.Discard).root(), line)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub, verb)
		}
	}
	root := newCmdline(nil, io.Discard, io.Discard).commands()
	for _, c := range root.Commands() {
		walk(c, c.Name())
	}
	if ran < 10 {
		t.Errorf("%d examples were run", ran)
	}
}

// The help of every verb fits a terminal of 80 columns.
func TestHelpFits(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil || !strings.Contains(out.String(), "Usage:") {
			t.Errorf("%s: %v\n%s", cmd.CommandPath(), err, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > prose.Width {
				t.Errorf("%s: %d characters: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, c := range cmd.Commands() {
			look(c)
		}
	}
	look(newCmdline(nil, io.Discard, io.Discard).root())
}
