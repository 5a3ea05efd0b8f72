package conform

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recordedTable is a row for each recorded run: the engine under the policy of its era beside it.
func recordedTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, k := range recordings() {
		r := Report{Kernel: k.Release}
		for i := range Ops {
			x, err := k.Compare(&Ops[i], DefaultPolicy(k.Version()))
			if err != nil {
				t.Fatal(err)
			}
			r.Results = append(r.Results, x)
		}
		total := r.Totals()
		shows := "no"
		if k.Functions {
			shows = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %s | %s | %d | %d of %d |\n", k.Release, shows, total.Kernel, total.Engine, total.Same,
			percent(total.Same, total.Kernel), percent(total.Same, total.Kernel+total.Engine-total.Same), total.Open+total.Gone, control(t, k), controls)
	}
	return b.String()
}

// The page of the reference says what the tables of the code say, and the figures of the recorded
// run. -rewrite writes its tables.
func TestPage(t *testing.T) {
	path := filepath.Join("..", "..", "..", "labs", "reference", "13-conform.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	k := OpenRecorded()
	r := Report{Kernel: k.Release, Policy: Policy}
	for i := range Ops {
		x, err := k.Compare(&Ops[i], Policy)
		if err != nil {
			t.Fatal(err)
		}
		r.Results = append(r.Results, x)
	}
	total := r.Totals()
	var parts, ops, named, left strings.Builder
	for g := range Groups {
		fmt.Fprintf(&parts, "| %s | %d | %d |\n", g, total.Cells[g], total.Agreeing[g])
	}
	all, agree := total.cells()
	fmt.Fprintf(&parts, "| all | %d | %d |\n", all, agree)
	for _, x := range r.Results {
		fmt.Fprintf(&ops, "| `%s` | %s | %d | %d | %d | %s |\n", x.Op.Name, x.Op.About, x.Kernel, x.Engine, x.Same, x.parts())
	}
	fmt.Fprintf(&ops, "| all | | %d | %d | %d | |\n", total.Kernel, total.Engine, total.Same)
	for _, d := range Differences() {
		fmt.Fprintf(&named, "| %s | %s | %d | %s |\n", d.Name, d.Of(), total.Named[d.Name], d.Why)
	}
	for _, l := range LeftOut() {
		fmt.Fprintf(&left, "| %s | %s |\n", strings.ReplaceAll(l.Name, "_*", "_\\*"), l.Why)
	}
	for _, table := range []struct{ head, rows string }{
		{"| part | operations | agree |\n|---|---|---|\n", parts.String()},
		{"| operation | | kernel | engine | same | parts that differ |\n|---|---|---|---|---|---|\n", ops.String()},
		{"| difference | Linux | rows | why |\n|---|---|---|---|\n", named.String()},
		{"| Linux | functions | kernel | engine | same | of the kernel | of both | open or gone | control |\n|---|---|---|---|---|---|---|---|---|\n", recordedTable(t)},
		{"| not compared | why |\n|---|---|\n", left.String()},
	} {
		from := strings.Index(page, table.head)
		if from < 0 {
			t.Fatalf("%s has no table %q", path, table.head)
		}
		from += len(table.head)
		to := from
		for strings.HasPrefix(page[to:], "|") {
			to += strings.Index(page[to:], "\n") + 1
		}
		if page[from:to] != table.rows {
			if !*rewrite {
				t.Errorf("%s, table %.30q is another one (-rewrite writes it):\n%s", path, table.head, diff(page[from:to], table.rows))
			}
			page = page[:from] + table.rows + page[to:]
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sentence := fmt.Sprintf("%d of %d steps of the kernel, %s,", total.Same, total.Kernel, percent(total.Same, total.Kernel))
	if !strings.Contains(strings.Join(strings.Fields(page), " "), sentence) {
		t.Errorf("%s does not say %q", path, sentence)
	}
}
