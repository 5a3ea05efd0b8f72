package kernel

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/cli"
	"btrlab/internal/interop"
	"btrlab/internal/measure/reproduce"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/testing/need"
)

// The page of a seed, and that of virtual time, show what `reproduce` prints. It is the same on
// every machine, so the page is wrong as soon as a constant of virtual time, of the device or of
// the write path moves one figure. The runs on small files are held by every `go test`, the others
// by make bench.

var reproducedTable = regexp.MustCompile(`clat (p|avg)|(read|write|iops) +simulated|iops +of unlocked|choice +change`)

var reproduced = regexp.MustCompile("`(reproduce 00[0-9][^`\n]*)`")

// shownRuns are the commands in the pages that have a table after them, and the lines of it.
func shownRuns(t *testing.T) map[string][]string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join("..", "..", "..", "labs", "reference", "12-seed-*.md"))
	interop.Must(t, err)
	runs := map[string][]string{}
	for _, page := range append(pages, filepath.Join("..", "..", "..", "labs", "guide", "virtual-time.md")) {
		b, err := os.ReadFile(page)
		interop.Must(t, err)
		parts := strings.Split(string(b), "```")
		for i := 1; i < len(parts); i += 2 {
			if !reproducedTable.MatchString(parts[i]) {
				continue
			}
			l := reproduced.FindAllStringSubmatch(strings.ReplaceAll(parts[i-1], "\n", " "), -1)
			if len(l) == 0 {
				t.Fatalf("%s: no command before the table\n%s", page, parts[i])
			}
			for line := range strings.Lines(parts[i]) {
				if line = strings.TrimSpace(line); line != "" {
					runs[l[len(l)-1][1]] = append(runs[l[len(l)-1][1]], line)
				}
			}
		}
	}
	return runs
}

// TestReadmeGains holds the gains in README to those in the pages, rounded as there.
func TestReadmeGains(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	interop.Must(t, err)
	rows := regexp.MustCompile(`(?m)^\| \[(\d+)\]\((labs/reference/12-seed-\d+\.md)\).*? \| ([\d.]+) \| ([\d.]+) \|`).FindAllStringSubmatch(string(b), -1)
	if len(rows) != 5 {
		t.Fatalf("README has the gains of %d seeds, want 5", len(rows))
	}
	gain := regexp.MustCompile(`published ([\d.]+), simulated ([\d.]+), error`)
	for _, r := range rows {
		b, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(r[2])))
		interop.Must(t, err)
		first := gain.FindStringSubmatch(string(b))
		if first == nil || !rounds(first[1], r[3]) || !rounds(first[2], r[4]) {
			t.Errorf("README says %s and %s of seed %s, its page %q", r[3], r[4], r[1], first)
		}
	}
}

// rounds reports whether short is long, rounded to as many places as it has.
func rounds(long, short string) bool {
	f, err := strconv.ParseFloat(long, 64)
	_, places, _ := strings.Cut(short, ".")
	return err == nil && strconv.FormatFloat(f, 'f', len(places), 64) == short
}

// holds runs the command and looks for each line of the page in what it prints.
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
			t.Errorf("the page says of %s:\n%s\nwhich it does not print:\n%s", command, line, out.String())
			return
		}
	}
}

// TestPagesReproduce holds the run on a small file: some seconds.
func TestPagesReproduce(t *testing.T) {
	need.Long(t)
	if testing.Short() {
		t.Skip("some seconds")
	}
	n := 0
	for command, lines := range shownRuns(t) {
		if strings.Contains(command, "--size") {
			holds(t, command, lines)
			n++
		}
	}
	if n == 0 {
		t.Error("the pages have no run with --size")
	}
}

// TestPagesSensitivity: the page of seed 002 shows lines of the table of choices, and each is of a
// choice that there still is, in the table's order.
func TestPagesSensitivity(t *testing.T) {
	var lines []string
	for command, l := range shownRuns(t) {
		if strings.Contains(command, " --sensitivity") {
			lines = l
		}
	}
	if len(lines) < 10 {
		t.Fatalf("the page has %d lines of reproduce 002 --sensitivity, want at least 10", len(lines))
	}
	at := -1
	for _, line := range lines[2:] { // two lines of headings
		if strings.HasSuffix(line, ":") { // a kind of choices
			continue
		}
		i := slices.IndexFunc(reproduce.Choices(), func(name string) bool { return strings.HasPrefix(line, name+" ") })
		if i < at || i < 0 {
			t.Errorf("%q is of no choice, or out of order; the choices are %q", line, reproduce.Choices())
		}
		at = i
	}
}

// recordedSurface is a surface as reproduce --surface --json printed it when the page was written.
func recordedSurface(t *testing.T, seed string) *reproduce.Surface {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "measure", "reproduce", "testdata", "surface", "seed-"+seed+".json"))
	interop.Must(t, err)
	s := new(reproduce.Surface)
	interop.Must(t, json.Unmarshal(b, s))
	return s
}

// TestPagesSurface: the pages of seeds 000 and 003 have the gains of the recorded surface, each
// line of it in a line of their table, and its picture.
func TestPagesSurface(t *testing.T) {
	for _, seed := range []string{"000", "003"} {
		s := recordedSurface(t, seed)
		dir := filepath.Join("..", "..", "..", "labs", "reference")
		page, err := os.ReadFile(filepath.Join(dir, "12-seed-"+seed+".md"))
		interop.Must(t, err)
		for _, line := range s.Table(s.Panels[0])[1:] {
			gains := " | " + strings.Join(line[1:len(line)-1], " | ") + " |"
			if !strings.Contains(string(page), gains) {
				t.Errorf("seed %s: the page has no line with%s", seed, gains)
			}
		}
		want, err := s.PNG()
		interop.Must(t, err)
		have, err := os.ReadFile(filepath.Join(dir, "seed-"+seed+"-surface.png"))
		interop.Must(t, err)
		if !bytes.Equal(have, want) {
			t.Errorf("seed %s: the picture is not that of the recorded surface", seed)
		}
	}
}

// TestNumbersSurface runs that of seed 000 again: a quarter of an hour of processor time. A point
// of seed 003 moves by 4 % with the order of events; its surface is not held.
func TestNumbersSurface(t *testing.T) {
	interop.Measurement(t)
	seed := seeds.Get("000")
	s, err := reproduce.Map(seed, reproduce.Options{Calibration: seed.Study.Calibration})
	interop.Must(t, err)
	want := recordedSurface(t, "000")
	for i, p := range s.Panels {
		for y, line := range p.Points {
			for x, q := range line {
				if w := want.Panels[i].Points[y][x]; *q != *w {
					t.Errorf("%s: have %+v want %+v", p.Name, *q, *w)
				}
			}
		}
	}
}

// TestNumbersReproduce holds all of them, the table of choices too: half an hour of processor time.
func TestNumbersReproduce(t *testing.T) {
	interop.Measurement(t)
	runs := shownRuns(t)
	if len(runs) < 2 {
		t.Errorf("the pages have %d runs with a table, want more", len(runs))
	}
	for command, lines := range runs {
		holds(t, command, lines)
	}
}
