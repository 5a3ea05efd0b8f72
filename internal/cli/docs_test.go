package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/policy"
	"btrlab/internal/script"
	"btrlab/internal/study/course"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/need"
)

// A page that prints a command must print one that exists: the verb, its flags, and the seed,
// scenario, policy, exhibit or lab that it names.

// printed is a command in a document.
type printed struct {
	at   string // file and line
	text string
	args []string // without the program
}

var (
	inlineCommand = regexp.MustCompile("`((?:btrlab|make) [^`]+)`")
	lineCommand   = regexp.MustCompile(`^(?:\$ )?((?:btrlab|make) .*)$`)
	afterCommand  = regexp.MustCompile(`\s+#\s.*|\s{2,}.*|\s*(?:&&|\||;|>|2>).*`)
)

// commandsOf are the commands that a document prints: in blocks and between backticks. A
// placeholder, which is upper case or "...", ends one.
func commandsOf(name, text string) []printed {
	var all []printed
	add := func(line int, text string) {
		c := printed{at: fmt.Sprintf("%s:%d", name, line), text: afterCommand.ReplaceAllString(text, "")}
		words, err := script.Words(c.text)
		if err != nil {
			words = strings.Fields(c.text) // a part of a command
		}
		for _, w := range words[1:] {
			if strings.Contains(w, "...") || w == "VERB" {
				if n := len(c.args); n > 0 && strings.HasPrefix(c.args[n-1], "--") {
					c.args = c.args[:n-1] // the flag whose value is left out
				}
				break
			}
			c.args = append(c.args, w)
		}
		all = append(all, c)
	}
	fence := false
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		for j := i + 1; fence && strings.HasSuffix(line, `\`) && j < len(lines); j++ { // it goes on
			line = strings.TrimSuffix(line, `\`) + strings.TrimSpace(lines[j])
		}
		if strings.HasPrefix(line, "```") {
			fence = !fence
		} else if m := lineCommand.FindStringSubmatch(strings.TrimSpace(line)); m != nil && (fence || strings.HasPrefix(line, "    ")) {
			add(i+1, m[1])
		} else if !fence {
			for _, m := range inlineCommand.FindAllStringSubmatch(line, -1) {
				add(i+1, m[1])
			}
		}
	}
	return all
}

var placeholder = regexp.MustCompile(`^[A-Z]+$`)

// exists says why there is no such command.
func (c printed) exists(targets []string) error {
	if strings.HasPrefix(c.text, "make ") {
		if len(c.args) > 0 && !slices.Contains(targets, c.args[0]) {
			return fmt.Errorf("no target %s in the Makefile", c.args[0])
		}
		return nil
	}
	if len(c.args) == 0 {
		return nil
	}
	a := newCmdline(nil, nil, nil)
	root := a.root()
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(aliased(c.args))
	if err != nil || cmd == root {
		return fmt.Errorf("no verb %s (%w)", c.args[0], err)
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	args := cmd.Flags().Args()
	if cmd.Name() != "lab" && len(args) > 0 {
		if err := cmd.ValidateArgs(args); err != nil {
			return err
		}
	}
	if f := cmd.Flags().Lookup("policy"); f != nil && f.Changed {
		for _, name := range strings.Split(strings.Trim(f.Value.String(), "[]"), ",") {
			dirs, _ := cmd.Flags().GetStringArray(policyDirFlag) // has the folder's name
			if _, err := policy.Parse(name); err != nil && !placeholder.MatchString(name) && !slices.Contains(dirs, name) {
				return err
			}
		}
	}
	if len(args) == 0 || placeholder.MatchString(args[0]) {
		return nil
	}
	return known(cmd, args[0])
}

// known says why the first argument of cmd names nothing.
func known(cmd *cobra.Command, arg string) error {
	var err error
	switch path := strings.TrimPrefix(cmd.CommandPath(), "btrlab "); {
	case path == "compare" || path == "reproduce":
		if !slices.Contains(cmd.ValidArgs, arg) {
			err = fmt.Errorf("no seed %s, have %v", arg, cmd.ValidArgs)
		}
	case path == "explore" || path == "replay" || path == "step":
		_, err = scenario.Lookup(arg)
	case path == "museum":
		if arg != "all" && !slices.ContainsFunc(scenario.Museum, func(e scenario.Exhibit) bool { return fmt.Sprint(e.Number) == arg }) {
			err = fmt.Errorf("no exhibit %s", arg)
		}
	case path == "policy show":
		if _, ok := policy.Find(arg); !ok {
			_, err = policy.Parse(arg)
		}
	case strings.HasPrefix(path, "lab ") && path != "lab init": // which takes a folder
		var n int
		if n, err = strconv.Atoi(arg); err == nil {
			_, err = course.Lookup(n)
		}
	}
	return err
}

// TestDocCommands: every command that a page prints exists.
func TestDocCommands(t *testing.T) {
	root := filepath.Join("..", "..")
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(readDoc(t, filepath.Join(root, "Makefile")), -1) {
		targets = append(targets, m[1])
	}
	verbs := map[string]int{}
	for _, pattern := range []string{"*.md", "labs/*.md", "labs/*/*.md", "labs/*/instructor/*.md", "labs/*/instructor/*/*.md", "notebooks/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			for _, c := range commandsOf(name, readDoc(t, name)) {
				if len(c.args) > 0 {
					verbs[c.args[0]]++
				}
				if err := c.exists(targets); err != nil {
					t.Errorf("%s: %s: %v", c.at, c.text, err)
				}
			}
		}
	}
	for _, v := range []string{"compare", "reproduce", "explore", "replay", "museum", "lab", "crash", "demo"} {
		if verbs[v] == 0 {
			t.Errorf("no page prints the command %s, want the pages to show it", v)
		}
	}
}

const nameOfVerb = "without a scenario: the name of the verb"

// What labs print and TestLabCommands does not run, by how the command begins.
var notRun = map[string]string{
	"make":          "builds, or grades",
	"lab grade":     "builds and explores for up to minutes; package course has the solutions and the starters",
	"step":          "wants a terminal; TestStepTruncateRace has its screens",
	"bench":         "measures for seconds, or is a part of a longer command",
	"compare":       "measures for a minute and more",
	"replay":        nameOfVerb,
	"explore":       nameOfVerb,
	"lab debug":     nameOfVerb,
	"museum NUMBER": "what a reader fills in",
	"replay SCENARIO SCHEDULE --policy POLICY --kernel 5.10 --recorded": "what a reader fills in",
	"serve measure": "measures in real time for half a minute; the script serve has it",
	"check":         "of an image that lab images has made; the script fsck.txtar runs it",
	"dump":          "of an image, likewise",
	"edit":          "of an image, likewise",
	"rescue":        "of an image, likewise",
	"explore two-writers-truncate --policy unlocked-drain": "takes 8 s and more; a row of package scenario's matrix",
}

// What a command of a lab ends with, unless it is 0.
var labExits = map[string]int{
	"explore nowait-dio-range --policy nowait-5.8": app.ExitFailed, // the kernel slept
	// the bytes of two writes mix
	"explore two-writers-overlap --policy unlocked": app.ExitFailed,
	"lab run 0 lost-update 2:1":                     app.ExitFailed, // lost
	// ... in the place of a policy
	"explore truncate-race --policy unlocked": app.ExitFailed,
	// the answer to question 1 of lab 01
	"explore truncate-race --policy unlocked --preemptions 0": app.ExitOK,
}

// TestLabCommands: what the texts of the labs tell a student to run ends as the text says.
func TestLabCommands(t *testing.T) {
	need.Long(t)
	names, err := filepath.Glob(filepath.Join("..", "..", "labs", "*", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir, ran, left := t.TempDir(), map[string]bool{}, map[string]bool{}
	if err := os.WriteFile(filepath.Join(dir, "answers.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, c := range commandsOf(name, readDoc(t, name)) {
			words := strings.Fields(strings.TrimPrefix(c.text, "btrlab "))
			line := strings.Join(words, " ")
			if line = strings.Replace(line, "--policy ...", "--policy unlocked", 1); ran[line] {
				continue
			}
			if skip := unrun(line); skip != "" {
				left[skip] = true
				continue
			}
			ran[line] = true
			args := strings.Fields(line)
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			if strings.HasPrefix(line, "lab run") {
				args = append(args, "--dir", dir) // where an answer that wins is kept
			}
			if strings.HasPrefix(line, "lab images") {
				args[3] = filepath.Join(dir, args[3])
			}
			var out, errw bytes.Buffer
			if code := Main(args, strings.NewReader(""), &out, &errw); code != labExits[line] {
				t.Errorf("%s: %s: exit code %d, want %d\n%s%s", c.at, line, code, labExits[line], out.String(), errw.String())
			}
		}
	}
	for line := range labExits {
		if !ran[line] {
			t.Errorf("no lab prints %q any more", line)
		}
	}
	for skip := range notRun {
		if !left[skip] {
			t.Errorf("no lab prints %q any more, which is not run", skip)
		}
	}
	if len(ran) < 25 {
		t.Errorf("%d commands, want all", len(ran))
	}
}

// unrun is the row of notRun for a command, or empty.
func unrun(line string) string {
	for begin, why := range notRun {
		if line == begin || why != nameOfVerb && strings.HasPrefix(line, begin+" ") {
			return begin
		}
	}
	return ""
}

// TestSeedPages: each of the five seeds has a page that says what was published, when, and what
// became of it, and ends with commands.
func TestSeedPages(t *testing.T) {
	for n := range 5 {
		name := fmt.Sprintf("12-seed-%03d", n) + ".md"
		text := readDoc(t, filepath.Join("..", "..", "labs", "reference", name))
		for _, want := range []string{fmt.Sprintf("# 12.%d Seed %03d: ", n, n), "**Published.**", "**Measured there.**", "**What became of it.**", "**Here.**"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
		_, here, _ := strings.Cut(text, "**Here.**")
		if parts := strings.SplitN(here, "```", 3); len(parts) < 3 || len(commandsOf(name, "```\n"+parts[1])) < 3 {
			t.Errorf("%s: under Here there are not three commands or more", name)
		}
	}
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestMakeGrade: make grade without a lab says what to write, and which labs there are.
func TestMakeGrade(t *testing.T) {
	out, err := exec.Command("make", "-C", filepath.Join("..", ".."), "grade", "LAB=").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "make grade LAB=4") {
		t.Fatalf("make grade: %v\n%s\nwant an error that says make grade LAB=4", err, out)
	}
	for _, l := range course.Labs {
		if !strings.Contains(string(out), l.Folder) {
			t.Errorf("make grade does not name lab %s:\n%s", l.Folder, out)
		}
	}
}

// TestReadmePicture: the picture of the README is what its command draws today, and README shows it
// with the command.
func TestReadmePicture(t *testing.T) {
	root := filepath.Join("..", "..")
	const picture, command = "labs/reference/truncate-race.svg", "replay truncate-race 11:1 --policy unlocked --out "
	if readme := readDoc(t, filepath.Join(root, "README.md")); !strings.Contains(readme, "]("+picture+")") || !strings.Contains(readme, "`btrlab "+command+picture+"`") {
		t.Errorf("README does not show %s with the command that draws it", picture)
	}
	if !strings.Contains(readDoc(t, filepath.Join(root, "Makefile")), command+picture) {
		t.Errorf("the Makefile does not draw %s", picture)
	}
	fresh := filepath.Join(t.TempDir(), "race.svg")
	var out, errw bytes.Buffer
	if code := Main(strings.Fields(command+fresh), strings.NewReader(""), &out, &errw); code != app.ExitFailed {
		t.Fatalf("replay: exit %d: %s", code, errw.String())
	}
	if readDoc(t, fresh) != readDoc(t, filepath.Join(root, picture)) {
		t.Errorf("%s is not what btrlab draws now, want make picture", picture)
	}
}
