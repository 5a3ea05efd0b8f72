package nb

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/stats"
)

// TestEveryNameBound: a façade name that cells cannot see is a trap for whoever writes the next
// notebook.
func TestEveryNameBound(t *testing.T) {
	fset := token.NewFileSet()
	var files []*ast.File
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, n, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	binds, types := Binds(), Types()
	seen := 0
	want := func(name string, bound bool) {
		if !ast.IsExported(name) {
			return
		}
		seen++
		if !bound {
			t.Errorf("%s is exported and not bound", name)
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					want(d.Name.Name, binds[d.Name.Name].IsValid())
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						want(s.Name.Name, types[s.Name.Name] != nil)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							want(n.Name, binds[n.Name].IsValid())
						}
					}
				}
			}
		}
	}
	if seen != len(binds)+len(types) {
		t.Errorf("%d names exported, %d bound", seen, len(binds)+len(types))
	}
}

func sample() *Comparison {
	res := &experiment.Result{Job: "job", Device: "memory", Model: "none", Rounds: 2, Runtime: 1, Baseline: "locked"}
	for i, p := range []string{"locked", "unlocked"} {
		h := &stats.Hist{}
		for j := range int64(100) {
			h.Add((j + 1) * 1000 * int64(i+1))
		}
		res.Rows = append(res.Rows, &experiment.Row{Policy: p, IOPS: 1000 * float64(i+1), Versus: stats.Versus{Ratio: float64(i + 1), RatioMin: float64(i) + 0.9,
			RatioMax: float64(i) + 1.2}, Waits: map[string]float64{"i_rwsem": 0.5 / float64(i+1), "page": 0.1}, Content: "ok", Check: "clean", Hist: h})
	}
	return &Comparison{res}
}

func TestFigures(t *testing.T) {
	c := sample()
	for name, f := range map[string]func() (Figure, error){"cdf": c.LatencyCDF, "ratios": c.Ratios, "waits": c.WaitPlot} {
		fig, err := f()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		img, err := png.Decode(bytes.NewReader(fig.PNG))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b := img.Bounds(); b.Dx() < 400 || b.Dy() < 200 {
			t.Errorf("%s: %v, want a picture one can read", name, b)
		}
		d := fig.Render()
		if d.Data["text/plain"] == "" || len(d.Data["image/png"].([]byte)) == 0 || d.Metadata["image/png"] == nil {
			t.Errorf("%s: shows %v, %v", name, d.Data["text/plain"], d.Metadata)
		}
	}
}

func TestTables(t *testing.T) {
	c := sample()
	text := c.Table().String()
	for _, want := range []string{"unlocked", "2.00", "1.90..2.20", "clean"} {
		if !strings.Contains(text, want) {
			t.Errorf("table lacks %q:\n%s", want, text)
		}
	}
	if got := c.WaitTable().Head; len(got) != 3 || got[1] != "i_rwsem" {
		t.Errorf("wait classes %v, want i_rwsem first", got)
	}
	long := Table{Head: []string{"a"}, Rows: [][]string{{"a sentence that is longer than a name"}}}
	if h := long.HTML(); !strings.Contains(h, "min-width:12em") || strings.Contains(c.Table().HTML(), "min-width") {
		t.Errorf("columns of sentences, and they alone, have a least width:\n%s", h)
	}
	for _, want := range []string{`<th style="text-align:left;vertical-align:top">policy</th>`, `<td style="text-align:right;vertical-align:top;white-space:nowrap">2,000</td>`, `<div style="overflow-x:auto"><table>`} {
		if h := c.Table().HTML(); !strings.Contains(h, want) {
			t.Errorf("the table lacks %q:\n%s", want, h)
		}
	}
	if h := (Table{Caption: "a<b", Head: []string{"&"}}).HTML(); strings.Contains(h, "a<b") || !strings.Contains(h, "&amp;") {
		t.Errorf("HTML not escaped: %s", h)
	}
	if c.IOPS("unlocked") != 2000 || c.IOPS("none") != 0 || !c.OK() {
		t.Errorf("iops %g and %g, ok %v", c.IOPS("unlocked"), c.IOPS("none"), c.OK())
	}
}

func TestOptionsBounded(t *testing.T) {
	for _, o := range []Options{{Rounds: MaxRounds + 1}, {Rounds: -1}, {Seconds: MaxSeconds * 2}, {Policies: []string{"no such"}}} {
		if _, err := Compare(o); err == nil {
			t.Errorf("Compare(%+v) ran, want an error", o)
		}
	}
}

// TestNotebooksUseTheFacade: every lab.Name in a notebook is bound, and no notebook is stored with
// outputs.
func TestNotebooksUseTheFacade(t *testing.T) {
	files, err := filepath.Glob("../../notebooks/*.ipynb")
	if err != nil || len(files) == 0 {
		t.Fatalf("notebooks: %v, %v", files, err)
	}
	binds, types := Binds(), Types()
	// of ours the kernel has btrlab/lab only
	other := regexp.MustCompile(`"btrlab/(?:[^l]|l[^a])\w*"`)
	name := regexp.MustCompile(`\blab\.([A-Z]\w*)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var book struct {
			Cells []struct {
				Type    string `json:"cell_type"`
				Source  []string
				Outputs []any
			}
		}
		if err := json.Unmarshal(text, &book); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i, c := range book.Cells {
			if len(c.Outputs) > 0 {
				t.Errorf("%s: cell %d has outputs; they are made by make notebooks", file, i)
			}
			if c.Type != "code" {
				continue
			}
			for _, m := range name.FindAllStringSubmatch(strings.Join(c.Source, ""), -1) {
				if !binds[m[1]].IsValid() && types[m[1]] == nil {
					t.Errorf("%s: cell %d uses lab.%s, which is not bound", file, i, m[1])
				}
			}
			if m := other.FindString(strings.Join(c.Source, "")); m != "" {
				t.Errorf("%s: cell %d has %s, want btrlab/lab", file, i, m)
			}
			if src := strings.Join(c.Source, ""); strings.Contains(src, "panic(") {
				t.Errorf("%s: cell %d panics; the functions of btrlab/lab do so with the error", file, i)
			}
		}
		if bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n")))) {
			t.Errorf("%s: has a stored picture", file)
		}
	}
}

// TestCells: a function of btrlab/lab has no error among its results, and ends its cell with it; a
// value that is none stays.
func TestCells(t *testing.T) {
	cells := Cells()
	fails := func(f func()) (text string) {
		defer func() {
			if err, ok := recover().(error); ok {
				text = err.Error()
			}
		}()
		f()
		return ""
	}
	explore := cells["Explore"].Interface().(func(name, spec string) *Exploration)
	if e := explore("truncate-race", "unlocked"); e.Kept() {
		t.Error("truncate-race keeps its rule under unlocked")
	}
	if text := fails(func() { explore("no such", "locked") }); !strings.Contains(text, "no such") {
		t.Errorf("an unknown scenario ends the cell with %q", text)
	}
	for name, f := range cells {
		if typ := f.Type(); typ.Kind() == reflect.Func && typ.NumOut() > 0 && typ.Out(typ.NumOut()-1) == reflect.TypeFor[error]() {
			t.Errorf("%s has an error among its results", name)
		}
	}
	if cells["MaxCPUs"].Int() != MaxCPUs || len(cells) != len(Binds()) {
		t.Errorf("MaxCPUs is %v; %d names of %d", cells["MaxCPUs"], len(cells), len(Binds()))
	}
	if f := Draw(sample().Ratios); len(f.PNG) == 0 {
		t.Error("no picture")
	}
	if text := fails(func() { Draw(func() (Figure, error) { return Figure{}, errors.New("no ink") }) }); text != "no ink" {
		t.Errorf("a picture that cannot be drawn ends the cell with %q", text)
	}
	if Expect("fine", true, 1 < 2) != "fine" {
		t.Error("facts that hold")
	}
	if text := fails(func() { Expect("fine", true, false, true, false) }); !strings.HasSuffix(text, "of the facts in this cell, not: 2 and 4") {
		t.Errorf("facts that do not hold: %q", text)
	}
}

// TestLogs: the job of seed 003 on files of its own: an fsync before the series does more steps
// with the leaf locked, and the figure says how long each level was.
func TestLogs(t *testing.T) {
	c, err := Compare(Options{Seed: "003", CPUs: 8, Model: "nvme", Seconds: 0.02, Rounds: 1, Policies: []string{"fsync-commit", "fsync-5.17", "fsync-5.18"}})
	if err != nil {
		t.Fatal(err)
	}
	if !c.OK() || len(c.LogTable().Rows) != 2 || c.LogSteps("fsync-commit", 0) != 0 || c.LogHeld("fsync-5.18", 0) <= 0 ||
		c.LogSteps("fsync-5.17", 0) < c.LogSteps("fsync-5.18", 0)+5 || c.LogSteps("fsync-5.17", 9) != 0 {
		t.Errorf("%v\n%v", c.Table(), c.LogTable())
	}
	f, err := c.LogPlot()
	if want := fmt.Sprintf("fsync-5.18 %.1f,", c.LogHeld("fsync-5.18", 0)/1000); err != nil || len(f.PNG) == 0 || !strings.Contains(f.Alt, want) {
		t.Errorf("%v: %q, want %q", err, f.Alt, want)
	}
	if _, err := Compare(Options{Seed: "009"}); err == nil {
		t.Error("seed 009: no error")
	}
}
