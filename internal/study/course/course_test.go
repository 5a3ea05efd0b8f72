package course

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
)

func root(t *testing.T) string {
	t.Helper()
	r, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func lab(t *testing.T, n int) *Lab {
	t.Helper()
	l, err := Lookup(n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestPredict: answers are kept, and come back beside what is right.
func TestPredict(t *testing.T) {
	l, dir := lab(t, 4), t.TempDir()
	copyIn := func(name string) {
		b, err := os.ReadFile(filepath.Join(l.Dir(root(t)), name))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(l.Dir(dir), name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	copyIn("predict.json")
	if b, err := os.ReadFile(filepath.Join(l.Dir(dir), "predict.json")); err != nil || strings.Contains(string(b), `"answer"`) {
		t.Errorf("the answers lie beside what the student changes: %v", err)
	}
	if l.prediction(dir) != nil {
		t.Error("a prediction that nobody made")
	}
	for _, bad := range [][]string{{"a"}, {"a", "b", "z"}, {"a", "b", ""}, {"a", "b", "ab"}} {
		if l.Predict(dir, bad) == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if err := l.Predict(dir, []string{"a", "B", "c"}); err != nil {
		t.Fatal(err)
	}
	if p := l.prediction(dir); len(p) != 3 || p[1].Said != "b" || p[1].Right != "" {
		t.Errorf("without the instructor's file: %+v", p)
	}
	sealed := l.Seal([]byte(`[{"answer": "b", "why": "w"}, {"answer": "b"}, {"answer": "a"}]`))
	if strings.Contains(string(sealed), "answer") {
		t.Errorf("sealed answers can be read: %s", sealed)
	}
	file := filepath.Join(l.Dir(dir), SealedFile)
	if err := os.WriteFile(file, sealed, 0o644); err != nil {
		t.Fatal(err)
	}
	if p := l.prediction(dir); len(p) != 3 || p[0].Said != "a" || p[0].Right != "b" || p[0].Why != "w" || p[2].Said != "c" || p[2].Right != "a" {
		t.Errorf("a handout says %+v", p)
	}
	if err := os.WriteFile(file, []byte("!"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Questions(dir); err == nil || !strings.Contains(err.Error(), "bad seal") {
		t.Errorf("a broken seal: %v", err)
	}
}

func text(r *Report) string {
	var b strings.Builder
	_ = r.WriteText(&b)
	return b.String()
}

// TestUntouched: a clone has no say in what its starters are; a handout knows them by their
// digests.
func TestUntouched(t *testing.T) {
	l, dir := lab(t, 4), t.TempDir()
	file := filepath.Join(l.Dir(dir), l.File)
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want bool) {
		t.Helper()
		if got, err := l.Untouched(dir); err != nil || got != want {
			t.Errorf("have %v, %v, want %v", got, err, want)
		}
	}
	write(file, "mine")
	want(true)
	write(filepath.Join(dir, judges.HandoutFile), fmt.Sprintf("%x  labs/%s/%s\n", sha256.Sum256([]byte("starter")), l.Folder, l.File))
	want(false)
	write(file, "starter")
	want(true)
}

// TestNothing: a folder without files is an error for people, and a report without points for an
// autograder.
func TestNothing(t *testing.T) {
	for _, l := range Labs {
		for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
			_, err := Grade(t.Context(), root(t), l, Options{Dir: dir})
			var none *sandbox.NoFilesError
			if !errors.As(err, &none) {
				t.Errorf("lab %d: %v", l.N, err)
				continue
			}
			if r := l.Nothing(none); r.Pass || r.Score != 0 || r.Max != judges.Points(l.judge) || !strings.Contains(r.Rows[0].Result, dir) {
				t.Errorf("lab %d: %+v", l.N, r)
			}
		}
	}
}

// TestCancel: a grading that is cancelled ends with the context's error and leaves no file.
func TestCancel(t *testing.T) {
	r := root(t)
	left := func() []string {
		l, err := filepath.Glob(filepath.Join(r, "labs", "_grade", "04-*"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	before := left()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Grade(ctx, r, lab(t, 4), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("have %v want %v", err, context.Canceled)
	}
	if after := left(); len(after) > len(before) {
		t.Errorf("left %v, before %v", after, before)
	}
}

// TestTexts: every lab has its text with all sections, three hints, and predictions with their
// answers.
func TestTexts(t *testing.T) {
	r := root(t)
	for _, l := range Labs {
		readme, err := l.Text(r)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, h := range []string{"## Outcomes", "## Story", "## Invariants", "## Prediction", "## Tasks", "## Checkpoint", "## Questions", "## In the real kernel", fmt.Sprintf("%d minutes", l.Minutes)} {
			if !strings.Contains(readme, h) {
				t.Errorf("lab %d: README.md has no %q", l.N, h)
			}
		}
		for level := range MaxHint {
			if h, err := l.Hint(r, level+1); err != nil || len(h) < 40 {
				t.Errorf("lab %d, hint %d: %q, %v", l.N, level+1, h, err)
			}
		}
		qs, err := l.Questions(r)
		if err != nil || len(qs) < 2 {
			t.Errorf("lab %d: %d questions, %v", l.N, len(qs), err)
		}
		for _, q := range qs {
			if q.Ask == "" || q.Why == "" || len(q.Answer) != 1 || q.Answer[0] < 'a' || int(q.Answer[0]-'a') >= len(q.Choices) {
				t.Errorf("lab %d: question %+v", l.N, q)
			}
		}
	}
}

// TestTable: what all rows say stands once below the table, and a task that was left out is one
// line.
func TestTable(t *testing.T) {
	at := explore.Switches{"i_rwsem", "page"}
	rep := Report{Lab: 1, Title: "Be the scheduler", Unpredicted: true, Rows: []grade.Row{
		{Name: "a", Asks: "first", Max: 40, Score: 40, Pass: true, Result: "exhausted: 3 schedules", Switch: at},
		{Name: "b", Asks: "second", Max: 40, Score: 40, Pass: true, Result: "exhausted: 4 schedules", Switch: at},
		{Name: "c", Asks: "third", Max: 20, Result: judges.NoAnswer}}}
	rep.sum()
	got := text(&rep)
	for want, n := range map[string]int{"  a, b: i_rwsem, page\n": 1, "switched at": 1, judges.NoAnswer: 1, "c: third\n": 1, "  btrlab lab predict 1\n": 1} {
		if have := strings.Count(got, want); have != n {
			t.Errorf("%q comes %d times, want %d\n%s", want, have, n, got)
		}
	}
}

// TestGradescope: results.json has the points and says what failed.
func TestGradescope(t *testing.T) {
	rep := Report{Lab: 4, Title: "The truncate race", Rows: []grade.Row{
		{Name: "a", Asks: "b", Max: 40, Score: 40, Pass: true, Result: "exhausted: 3 schedules"},
		{Name: "c", Asks: "d", Max: 60, Result: "violated", Schedule: "4:1", Replay: "btrlab lab grade 4 --replay c=4:1"}}}
	rep.sum()
	var b strings.Builder
	if err := rep.WriteGradescope(&b, 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Score          float64
		Execution_time float64
		Tests          []struct {
			Status     string
			Max_score  float64
			Output     string
			Visibility string
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Score != 40 || len(got.Tests) != 2 || got.Tests[0].Status != "passed" || got.Tests[1].Status != "failed" || got.Tests[1].Max_score != 60 ||
		!strings.Contains(got.Tests[1].Output, "--replay c=4:1") || rep.Pass || got.Execution_time != 1.5 || got.Tests[0].Visibility != "visible" {
		t.Errorf("%+v\n%s", got, b.String())
	}
	b.Reset()
	if err := (&Report{}).WriteGradescope(&b, 0); err != nil || !strings.Contains(b.String(), `"tests": []`) {
		t.Errorf("a report without rows has no list of tests: %v\n%s", err, b.String())
	}
}

// TestLimit: a grading that is out of time has a report that says so, and no error; one that is
// cancelled has no report.
func TestLimit(t *testing.T) {
	r, err := Grade(t.Context(), root(t), lab(t, 4), Options{Options: sandbox.Options{Limit: time.Nanosecond}})
	if err != nil || len(r.Rows) != 1 || r.Score != 0 || r.Max != 100 || r.Rows[0].Result != "stopped: the grading took longer than 1ns" {
		t.Errorf("%+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Grade(ctx, root(t), lab(t, 4), Options{Options: sandbox.Options{Limit: time.Hour}}); !errors.Is(err, context.Canceled) {
		t.Errorf("have %v, want %v", err, context.Canceled)
	}
}

// TestExploredOnce: of a class in which two have the same code it is explored once, and the table
// and the report say so.
func TestExploredOnce(t *testing.T) {
	need.Long(t)
	class, l := t.TempDir(), lab(t, 4)
	const src = "package p\n\nimport \"btrlab/internal/policy\"\n\nfunc Steps() []policy.SetsizeStep { return []policy.SetsizeStep{policy.DIOWait} }\n" +
		"func Answers() map[string]string { all := map[string]string{}; return all }\n"
	for name, text := range map[string]string{"ada/setsize.go": src, "bob/setsize.go": strings.ReplaceAll(src, "all", "none"), "eve/setsize.go": strings.Replace(src, "DIOWait", "SetISize", 1)} {
		put(t, class, name, text)
	}
	var names []string
	all, err := GradeAll(t.Context(), root(t), l, class, false, Options{}, nil, func(x []Submission) error { names = append(names, x[len(x)-1].Name); return nil })
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v %v", all, err)
	}
	const shared = " (same code as ada, explored once: 1 row shared)"
	if !strings.HasSuffix(all[1].Result, shared) || strings.TrimSuffix(all[1].Result, shared) != all[0].Result || strings.Contains(all[2].Result, "same code") {
		t.Errorf("%q, %q, %q", all[0].Result, all[1].Result, all[2].Result)
	}
	r := &Report{Lab: 4, Rows: []grade.Row{{Name: "a", Shared: "ada"}, {Name: "b", Shared: "ada"}, {Name: "text"}}}
	if s := text(r); !strings.Contains(strings.Join(strings.Fields(s), " "), "The code is that of ada but for comments, layout and local names, and was explored once; shared with it: a, b.") {
		t.Error(s)
	}
}

// TestClusters: who is alike is one group, also by way of a third; groups that meet become one, and
// their numbers have no gap. A table of before has no such column, and is read.
func TestClusters(t *testing.T) {
	words := func(from, to int) map[string]bool {
		m := map[string]bool{}
		for i := from; i < to; i++ {
			m[fmt.Sprint(i)] = true
		}
		return m
	}
	// b is like a and like d, which are not alike; c and f are the same
	all := []Submission{{Name: "a", print: print{tokens: words(0, 100)}}, {Name: "c", print: print{tokens: words(500, 600)}}, {Name: "d", print: print{tokens: words(20, 120)}}, {Name: "e", print: print{tokens: words(900, 950)}},
		{Name: "f", print: print{tokens: words(500, 600)}}, {Name: "b", print: print{tokens: words(10, 110)}}, {Name: "g", print: print{}}}
	for j := range all {
		for i := range j {
			if likeness(all[i].print, all[j].print) >= alike {
				join(all[:j+1], i, j)
			}
		}
	}
	l := Clusters(all)
	if have := fmt.Sprint(l); have != "[{[c f] 1 true} {[a d b] 0.6666666666666666 false}]" {
		t.Error(have)
	}
	two := []Submission{{Cluster: 1}, {Cluster: 2}, {Cluster: 3}, {Cluster: 2}, {}}
	if join(two, 0, 1); fmt.Sprint(two[0].Cluster, two[1].Cluster, two[2].Cluster, two[3].Cluster, two[4].Cluster) != "1 1 2 1 0" {
		t.Errorf("%+v", two)
	}
	old := "name,score,max,pass,digest,result,like,likeness\nada,1,2,false,d,ok,bob,1.00\n"
	if x, err := ReadCSV(strings.NewReader(old)); err != nil || len(x) != 1 || x[0].Like != "bob" {
		t.Errorf("%+v %v", x, err)
	}
}

// TestPage: the page has what was proved and measured, the student's text, and the rubric with a
// line for the teacher.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "REPORT.md"), []byte("# Mine\n\n## Idea\n\nPages | keep writers apart. <!-- not this -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &Report{Lab: 12, Title: "A policy of one's own", Dir: "mine", Score: 25, Max: 90, Teacher: 10, Rows: []grade.Row{
		{Name: "writers", Asks: "two writers", Max: 10, Score: 10, Pass: true, Result: "1 scenario kept", Parts: []grade.Part{{Name: "two-writers-same", Pass: true, Result: "exhausted: 3 schedules"}}},
		{Name: "holes", Asks: "holes", Max: 6, Result: "long-write-punch: violated\nmore", Parts: []grade.Part{{Name: "long-write-punch", Pass: false, Result: "violated"}}, Replay: "btrlab lab grade 12 --replay long-write-punch=1:1"},
		{Name: "time-alone", Asks: "one writer", Max: 5, Score: 5, Pass: true, Result: "2.00 times locked", Times: []grade.Time{{Policy: grade.Yours, Nanos: 5e5}, {Policy: "locked", Nanos: 1e6}},
			Locks: []grade.Wait{{Policy: grade.Yours, Lock: "i_rwsem", Count: 3, Nanos: 2500}}, Holds: []grade.Wait{{Policy: grade.Yours, Lock: "range", Count: 2, Nanos: 1_500_000}}},
		lab(t, 12).Essay.Row(dir)}}
	var b strings.Builder
	if err := lab(t, 12).WriteMarkdown(&b, r, dir, "x.lock.pprof"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Report of lab 12: A policy of one's own\n", "25 of 100 points before the teacher",
		"| writers | 10 of 10 | 1 scenario kept |\n", "| two-writers-same | yes | exhausted: 3 schedules |\n",
		"| holes | 0 of 6 | long-write-punch: violated |\n", "| long-write-punch | **no** | violated |\n\n`btrlab lab grade 12 --replay long-write-punch=1:1`",
		"| **yours** | 2.00 | 0.50 |\n| locked | 1.00 | 1.00 |\n", "waited for:\n\n| lock or event | waits | ms |\n|---|---|---|\n| i_rwsem | 3 | 0.003 |\n",
		"held:\n\n| lock | times | ms |\n|---|---|---|\n| range | 2 | 1.500 |\n", "go tool pprof -top -tagroot=lock x.lock.pprof",
		"### Idea\n\nPages | keep writers apart.\n", "### Invariants\n\n(empty)\n",
		"| time-alone: one writer | 5 | 5 |  |\n", "| 10 | 0 | _____ of 10 |\n", "| sum | 100 | 25 | |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "not this") {
		t.Error("a comment is in the page")
	}
}

// TestKept: the last grade of a lab, and whether its files are still those that were graded; a
// report of one's own counts as a file.
func TestKept(t *testing.T) {
	l, dir := lab(t, 12), t.TempDir()
	if k, _, err := l.Kept(dir); k != nil || err != nil {
		t.Errorf("nothing was graded: %+v, %v", k, err)
	}
	own := l.Dir(dir)
	put(t, own, "policy.go", "package p\n")
	put(t, own, "REPORT.md", "## Idea\n")
	o := Options{Student: "ada"}
	if err := l.Keep(dir, &Report{Score: 30, Max: 100}, o, l.Digest(dir, o)); err != nil {
		t.Fatal(err)
	}
	want := func(want bool) {
		t.Helper()
		if k, changed, err := l.Kept(dir); err != nil || k.Score != 30 || k.Max != 100 || changed != want {
			t.Errorf("%+v, changed %v, want %v; %v", k, changed, want, err)
		}
	}
	want(false)
	put(t, own, "REPORT.md", "## Idea\nmore\n")
	want(true)
	put(t, own, "REPORT.md", "## Idea\n")
	want(false)
	put(t, own, "personal.txt", "1 = a\n")
	want(true)
	put(t, dir, "labs/_grade/score-12.json", "{")
	if _, _, err := l.Kept(dir); err == nil || !strings.Contains(err.Error(), "score-12.json") {
		t.Errorf("a broken file: %v", err)
	}
}

// TestCapstone: the lab with the student's own text, wherever it stands in the list.
func TestCapstone(t *testing.T) {
	if c := Capstone(); c.N != 12 || c.Essay == nil {
		t.Errorf("the capstone is lab %d", c.N)
	}
}

// TestFormulas: a spreadsheet runs a cell that begins with one of these characters, and a terminal
// what follows an escape. The names of folders are a class's.
func TestFormulas(t *testing.T) {
	names := []string{"=cmd|' /C calc'!A0", "+1", "-1", "@sum(a1)", "'quoted", "''twice", "ada"}
	class := t.TempDir()
	for _, n := range append(names, "\tb", "c\x1b[2J") {
		put(t, class, filepath.Join(strings.ReplaceAll(n, "/", "÷"), "answers.txt"), "lost-update = never\n")
	}
	all, err := GradeAll(t.Context(), root(t), lab(t, 0), class, false, Options{}, nil, func([]Submission) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	all[0].Result, all[1].Like = "\r=1", "=x"
	var b strings.Builder
	if err := WriteCSV(&b, all); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, c := range row {
			if strings.ContainsAny(c, "\x1b\t") || c != "" && strings.ContainsAny(c[:1], "=+-@\t\r\n") {
				t.Errorf("a cell is %q", c)
			}
		}
	}
	got, err := ReadCSV(strings.NewReader(b.String()))
	if err != nil || len(got) != len(all) {
		t.Fatal(got, err)
	}
	for i := range all {
		if got[i].Name != all[i].Name || got[i].Result != all[i].Result || got[i].Like != all[i].Like {
			t.Errorf("read back %+v, want %+v", got[i], all[i])
		}
	}
}

// TestMarkdownPlain: what a submission says is no HTML and no control character on a report's page.
func TestMarkdownPlain(t *testing.T) {
	l, dir := Capstone(), t.TempDir()
	put(t, dir, l.Essay.File, "## "+l.Essay.Sections[0]+"\n\na < b <script>alert(1)</script> \x1b[2J\n")
	var b strings.Builder
	r := &Report{Rows: []grade.Row{{Name: "a", Result: "<img src=x>|b"}}}
	if err := l.WriteMarkdown(&b, r, dir, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`a < b &lt;script>alert(1)&lt;/script> \x1b[2J`, `&lt;img src=x>\|b`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.ContainsAny(b.String(), "\x1b") {
		t.Error("an escape is left")
	}
}
