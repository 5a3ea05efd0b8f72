package interop

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/cli"
	"btrlab/internal/measure/reproduce"
)

// README shows what `reproduce` prints. It is the same on every machine, so README is wrong as soon as a constant of virtual time, of the
// device or of the write path moves one figure. The run on a small file is held by every `go test`, the other one by make bench.

var reproducedTable = regexp.MustCompile(`clat (p|avg)|(read|iops) +simulated|choice +from`)

var reproduced = regexp.MustCompile("`(reproduce 00[0-9] [^`\n]*)`")

// readmeRuns are the commands in README that have a table after them, and the lines of it.
func readmeRuns(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	must(t, err)
	runs := map[string][]string{}
	parts := strings.Split(string(b), "```")
	for i := 1; i < len(parts); i += 2 {
		if !reproducedTable.MatchString(parts[i]) {
			continue
		}
		l := reproduced.FindAllStringSubmatch(parts[i-1], -1)
		if len(l) == 0 {
			t.Fatalf("README: no command before the table\n%s", parts[i])
		}
		for line := range strings.Lines(parts[i]) {
			if line = strings.TrimSpace(line); line != "" {
				runs[l[len(l)-1][1]] = append(runs[l[len(l)-1][1]], line)
			}
		}
	}
	return runs
}

// holds runs the command and looks for each line of README in what it prints.
func holds(t *testing.T, command string, lines []string) {
	t.Helper()
	var out, errw bytes.Buffer
	if code := cli.Main(strings.Fields(command), strings.NewReader(""), &out, &errw); code != 0 {
		t.Fatalf("%s: exit %d: %s", command, code, errw.String())
	}
	printed := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		printed[strings.TrimSpace(line)] = true
	}
	for _, line := range lines {
		if !printed[line] {
			t.Errorf("README says of %s:\n%s\nwhich it does not print:\n%s", command, line, out.String())
			return
		}
	}
}

// TestReadmeReproduce holds the run on a small file: some seconds.
func TestReadmeReproduce(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	n := 0
	for command, lines := range readmeRuns(t) {
		if strings.Contains(command, "--size") {
			holds(t, command, lines)
			n++
		}
	}
	if n == 0 {
		t.Error("README has no run with --size")
	}
}

// TestReadmeSensitivity: README shows lines of the table of choices, and each is of a choice that there still is, in the table's order. A choice that
// the command has and that is not in README moves neither row by much, README says.
func TestReadmeSensitivity(t *testing.T) {
	var lines []string
	for command, l := range readmeRuns(t) {
		if strings.Contains(command, " --sensitivity") {
			lines = l
		}
	}
	if len(lines) < 10 {
		t.Fatalf("README has %d lines of reproduce 002 --sensitivity, want at least 10", len(lines))
	}
	at := -1
	for _, line := range lines[1:] {
		i := slices.IndexFunc(reproduce.Choices(), func(name string) bool { return strings.HasPrefix(line, name+"  ") })
		if i < at || i < 0 {
			t.Errorf("README: %q is of no choice, or out of order; the choices are %q", line, reproduce.Choices())
		}
		at = i
	}
}

// TestNumbersReproduce holds all of them, the table of choices too: a quarter of an hour of processor time.
func TestNumbersReproduce(t *testing.T) {
	measurement(t)
	runs := readmeRuns(t)
	if len(runs) < 2 {
		t.Errorf("README has %d runs of reproduce 002 with a table, want 2", len(runs))
	}
	for command, lines := range runs {
		holds(t, command, lines)
	}
}
