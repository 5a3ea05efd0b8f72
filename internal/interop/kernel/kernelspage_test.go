package kernel

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/judge/conform"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/jobs"
)

var kernelsKeep = flag.Bool("kernels.keep", false, "keep what is measured in testdata/kernels.json, and write the tables of labs/reference 13.6 and 13.7")

// measured is what the tests found of a kernel. What was not asked is nil.
type measured struct {
	Release  string            `json:"release"`
	Images   *imageCounts      `json:"images,omitempty"`
	Logs     *logCounts        `json:"logs,omitempty"` // of random workloads
	Bounded  *logCounts        `json:"bounded,omitempty"`
	Stories  map[string]string `json:"stories,omitempty"` // by the commit that mends it
	Verdicts *verdictRows      `json:"verdicts,omitempty"`
}

type imageCounts struct {
	Clean   int      `json:"clean"`
	Refused []string `json:"refused,omitempty"` // features
}

// logCounts is what was found of the logs of workloads.
type logCounts struct {
	Workloads int `json:"workloads"` // that the kernel did
	TheirLogs int `json:"their_logs"`
	// Of random workloads those, and of bounded ones the logs, in which the engine finds what it
	// should.
	TheirsSame int `json:"theirs_same"`
	Ours       int `json:"ours"`      // logs of ours
	OursSame   int `json:"ours_same"` // of them the kernel finds what the engine does
}

// verdictRows are the answers to writes that must not wait, a text for each file: three letters
// buffered, three direct.
type verdictRows struct {
	Kernel map[string]string `json:"kernel"`
	Era    map[string]string `json:"era"` // of the engine under the policy of the kernel's era
	Modern map[string]string `json:"modern"`
}

// foundKernels is what this run has found, by version.
var foundKernels = map[string]*measured{}

const keptKernels = "testdata/kernels.json"

// keep notes what a test has found of a kernel.
func keep(t *testing.T, k *kernels.Kernel, put func(m *measured)) {
	t.Helper()
	note := func(all map[string]*measured) {
		if all[k.Version] == nil {
			all[k.Version] = &measured{}
		}
		all[k.Version].Release = k.Release
		put(all[k.Version])
	}
	note(foundKernels)
	if !*kernelsKeep || t.Failed() {
		return
	}
	all := readKept(t)
	note(all)
	b, err := json.MarshalIndent(all, "", "\t")
	interop.Must(t, err)
	interop.Must(t, os.WriteFile(keptKernels, append(b, '\n'), 0o644))
}

func readKept(t *testing.T) map[string]*measured {
	t.Helper()
	all := map[string]*measured{}
	b, err := os.ReadFile(keptKernels)
	if errors.Is(err, fs.ErrNotExist) {
		return all
	}
	interop.Must(t, err)
	interop.Must(t, json.Unmarshal(b, &all))
	return all
}

// kernelTable is a table of the page.
type kernelTable struct {
	head string // up to its second column, by which the page's is found
	text string
}

// kernelTables are the tables of labs/reference 13.6 and 13.7.
func kernelTables(all map[string]*measured) []kernelTable {
	versions := slices.SortedFunc(maps.Keys(all), kernels.Compare)
	var list []kernelTable
	add := func(head []string, rows [][]string) {
		var b strings.Builder
		line := func(cells []string) {
			for _, c := range cells {
				b.WriteString(strings.TrimRight("| "+c, " ") + " ")
			}
			b.WriteString("|\n")
		}
		line(head)
		b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
		for _, r := range rows {
			line(r)
		}
		list = append(list, kernelTable{"| " + head[0] + " | " + head[1] + " |", b.String()})
	}
	// Verdicts.
	agree := [2][]string{{"agree with `modern`"}, {"agree with the policy of its era"}}
	var differ [][]string
	rows := make([][]string, len(jobs.NowaitStates))
	modern := ""
	for _, v := range versions {
		m := all[v].Verdicts
		if m == nil {
			continue
		}
		var same [2]int
		for i := range jobs.NowaitStates {
			name := jobs.NowaitStates[i].Name
			if rows[i] == nil {
				rows[i] = []string{name}
			}
			rows[i] = append(rows[i], m.Kernel[name])
			for j, engine := range []string{m.Modern[name], m.Era[name]} {
				for at := range min(len(engine), len(m.Kernel[name])) {
					if engine[at] == m.Kernel[name][at] && engine[at] != ' ' {
						same[j]++
					}
				}
			}
			if m.Era[name] != m.Kernel[name] {
				differ = append(differ, []string{name, v, m.Kernel[name], m.Era[name]})
			}
		}
		for j := range agree {
			agree[j] = append(agree[j], fmt.Sprint(same[j]))
		}
		modern = v
	}
	if modern != "" {
		head := append([]string{"file"}, versions...)
		for i := range rows {
			rows[i] = append(rows[i], all[modern].Verdicts.Modern[jobs.NowaitStates[i].Name])
		}
		add(append(head, "`modern`"), append(rows, append(agree[0], ""), append(agree[1], "")))
		if len(differ) == 0 {
			differ = [][]string{{"none", "", "", ""}}
		}
		add([]string{"differs from the policy of its era", "Linux", "kernel", "engine"}, differ)
	}
	// Images and random logs; bounded ones; stories.
	var images, bounded [][]string
	for _, v := range versions {
		m := all[v]
		if m.Images != nil || m.Logs != nil {
			row := make([]string, 6) // empty: was not asked
			row[0] = v
			if i := m.Images; i != nil {
				row[1], row[2] = fmt.Sprint(i.Clean), fmt.Sprint(len(i.Refused))
				if len(i.Refused) > 0 {
					row[2] += " (" + strings.Join(i.Refused, ", ") + ")"
				}
			}
			if l := m.Logs; l != nil {
				row[3], row[4], row[5] = fmt.Sprintf("%d of %d", l.TheirsSame, l.Workloads), fmt.Sprint(l.TheirLogs), fmt.Sprintf("%d of %d", l.OursSame, l.Ours)
			}
			images = append(images, row)
		}
		if b := m.Bounded; b != nil {
			bounded = append(bounded, []string{v, fmt.Sprint(b.Workloads), fmt.Sprintf("%d of %d", b.TheirsSame, b.TheirLogs), fmt.Sprintf("%d of %d", b.OursSame, b.Ours)})
		}
	}
	add([]string{"Linux", "images clean", "refused, as it should", "its crashes replayed by ours", "of them with a log", "ours replayed by it"}, images)
	add([]string{"Linux", "workloads of one operation", "of its logs, the engine finds the same", "of ours, it finds the same"}, bounded)
	var stories [][]string
	for _, s := range crashStories {
		row := []string{s.name, "`" + s.commit + "`, " + s.since}
		for _, v := range versions {
			row = append(row, all[v].Stories[s.commit])
		}
		stories = append(stories, row)
	}
	add(append([]string{"sequence", "mended by"}, versions...), stories)
	return list
}

// The tables of the page say what was measured last with -kernels.keep, which writes them. Without
// kernels this is what is left to ask: that nobody changed the page by hand. What this run has
// found is printed.
func TestKernelPage(t *testing.T) {
	if len(foundKernels) > 0 {
		for _, table := range kernelTables(foundKernels) {
			t.Logf("measured:\n%s", table.text)
		}
	}
	path := filepath.Join("..", "..", "..", "labs", "reference", "13-conform.md")
	b, err := os.ReadFile(path)
	interop.Must(t, err)
	page := string(b)
	for _, table := range kernelTables(readKept(t)) {
		from := strings.Index(page, table.head)
		if from < 0 {
			t.Errorf("%s has no table %q", path, table.head)
			continue
		}
		to := from
		for strings.HasPrefix(page[to:], "|") {
			to += strings.Index(page[to:], "\n") + 1
		}
		if page[from:to] != table.text && !*kernelsKeep {
			t.Errorf("%s has another table %q than %s (-kernels.keep writes it), want\n%s", path, table.head, keptKernels, table.text)
		}
		page = page[:from] + table.text + page[to:]
	}
	if *kernelsKeep && page != string(b) {
		interop.Must(t, os.WriteFile(path, []byte(page), 0o644))
	}
}

// verdictRowsOf groups verdicts by the file.
func verdictRowsOf(said map[string]string) map[string]string {
	rows := map[string]string{}
	for i := range jobs.NowaitStates {
		s := &jobs.NowaitStates[i]
		var ways []string
		for _, way := range jobs.NowaitWays {
			row := ""
			for _, cache := range jobs.NowaitCaches {
				row += verdictLetter(said[(&jobs.NowaitCell{State: s, Way: way, Cache: cache}).Key()])
			}
			ways = append(ways, row)
		}
		rows[s.Name] = strings.Join(ways, " ")
	}
	return rows
}

// eraOf is the policy that models a kernel: that of its era, which for 6.18 modern follows.
func eraOf(k *kernels.Kernel) string {
	if p := conform.Eras[k.Version]; p != "" {
		return p
	}
	return "linux-" + k.Version
}
