package policy

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata with what the code says")

// plan is the plan of an operation, as text.
type plan struct{ w []string }

func (p *plan) add(on bool, s string) {
	if on {
		p.w = append(p.w, s)
	}
}

func (p *plan) guard(g *Guard) {
	p.add(true, "lock="+g.Lock.String())
	p.add(g.Lock.Range(), fmt.Sprintf("from=%d", g.RangeFrom))
	p.add(g.DrainDirect, "drain_direct")
}

// has adds those of the switches that the plan has.
func (p *plan) has(s *Set, list ...Switch) {
	for _, x := range list {
		p.add(s.Has(x), x.String())
	}
}

// planText prints what of a plan matters for its operation.
func planText(op string, f Facts, pol *Policy) string {
	var p plan
	switch op {
	case "write":
		pl := ForWrite(f, pol)
		p.guard(&pl.Guard)
		p.add(pl.DIOBegin, "dio_begin")
		p.add(pl.Prewait, "prewait")
		p.add(pl.BalanceLast, "balance_outside")
		p.add(true, fmt.Sprintf("batch=%d", pl.BatchPages))
		p.add(!pl.StableWait, "no_stable_wait")
		p.add(pl.Unsupported, "unsupported")
		p.add(pl.MustCOW, "must_cow")
		p.has(&pl.Set, NowaitTryPages, NowaitTryOrdered, NowaitTryPrivs, NowaitTryExpand, NowaitTryFault, NowaitTryQuota)
		p.add(true, "\n   "+orderText(pl.Steps[:]))
	case "direct-write", "direct-read":
		var pl DirectPlan
		if op == "direct-write" {
			pl.ForWrite(&f, pol)
		} else {
			pl.ForRead(&f, pol)
		}
		p.guard(&pl.Guard)
		p.has(&pl.Set, DIOLocked, DIOCsumBuffered)
		p.add(pl.HoldReads, "hold_reads")
		p.add(pl.MustCOW, "must_cow")
		p.has(&pl.Set, NowaitTryPrivs, NowaitTryExpand, NowaitTryFault, NowaitCheckTry, NowaitCheckWhole, NowaitCheckOnce, NowaitPastEOF,
			NowaitOneExtent, NocowAskAlways, NowaitAsyncExt, NowaitTryRange, NowaitContext, NowaitNoFlush, NowaitTryTree,
			NocowPathReuse, NocowPathFree, NocowEarlyRelease)
		p.has(&pl.Set, NowaitBuffered)
		p.add(pl.ForceWait, "force_wait")
		p.add(pl.Unaligned != UnalignedBuffered, "unaligned="+pl.Unaligned.String())
		p.add(pl.Unaligned != UnalignedBuffered && pl.Drain, "drain")
		p.has(&pl.Set, DIONofault)
		p.add(pl.SyncHeld, "sync_held")
		p.add(pl.SyncMark != MarkTask, "mark="+pl.SyncMark.String())
	case "setsize":
		pl := ForSetsize(f, pol)
		p.guard(&pl.Guard)
		p.add(!pl.StableWait, "no_stable_wait")
		p.add(pl.HoldReads, "hold_reads")
		p.add(true, orderText(pl.Steps[:]))
	case "fallocate", "punch":
		pl := ForAlloc(f, pol)
		p.guard(&pl.Guard)
		p.has(&pl.Set, PunchRecheckOE)
		p.add(op == "fallocate", orderText(pl.Steps[:]))
	case "fsync":
		pl := ForFsync(pol)
		p.add(pl.Log, "log")
		p.add(pl.LogFirst, "log_first")
	}
	return strings.ReplaceAll(strings.Join(p.w, " "), " \n", "\n")
}

func orderText[S interface {
	~uint8
	String() string
}](steps []S) string {
	var w []string
	for _, s := range steps {
		if s != NoStep {
			w = append(w, s.String())
		}
	}
	return strings.Join(w, ",")
}

// TestPlans reads testdata/plans.txt: "operation key=value ..." , "----", then the plan of each
// policy; with policy=SPEC, of that one.
func TestPlans(t *testing.T) {
	const file = "testdata/plans.txt"
	in, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimSpace(string(in)), "\n\n") {
		lines := strings.Split(block, "\n")
		var f Facts
		words := strings.Fields(lines[0])
		pols := Presets
		for _, w := range words[1:] {
			k, v, _ := strings.Cut(w, "=")
			var n uint64
			fmt.Sscan(v, &n)
			switch k {
			case "start":
				f.Start = n
			case "end":
				f.End = n
			case "isize":
				f.ISize = n
			case "newsize":
				f.NewSize = n
			case "held":
				f.InodeHeld = true
			case "nowait":
				f.Nowait = true
			case "may_nocow":
				f.MayNocow = true
			case "may_privs":
				f.MayPrivs = true
			case "all":
				pols = slices.Concat(Presets, NowaitPresets)
			case "subblock":
				f.SubBlock = true
			case "nodatasum":
				f.NoDataSum = true
			case "policy":
				pols = []Policy{*MustParse(v)}
			default:
				t.Fatalf("%s: unknown fact %q", file, k)
			}
		}
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "%s\n----\n", lines[0])
		for j := range pols {
			fmt.Fprintf(&out, "%-14s %s\n", pols[j].Name, planText(words[0], f, &pols[j]))
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if out.String() != string(in) {
		t.Errorf("plans differ from %s (-rewrite to accept):\n%s", file, out.String())
	}
}

// A switch without a row in the table, or with a row that says too little, cannot be added.
func TestToggles(t *testing.T) {
	seen := map[string]bool{}
	for x := range Switches() {
		g := x.Toggle()
		if g.Name == "" || g.Does == "" || g.Effect == "" || g.Source == "" || g.Kernel == "" || g.Scenario == "" && !strings.Contains(g.Shows, "no scenario: ") {
			t.Errorf("switch %d has the row %+v: a name, what it does, what it prevents or allows, source, kernel function, and a scenario or why there is none must be given", x, *g)
		}
		if base, err := Parse(g.Base); (g.Scenario == "") != (g.Base == "") || g.Base != "" && (err != nil || x.Wrong() && base.Has(x)) {
			t.Errorf("%s: scenario %q with the policy %q: %v", g.Name, g.Scenario, g.Base, err)
		}
		// Does is what happens with the switch on, and Effect says the same way round what comes of
		// it.
		verb, _, _ := strings.Cut(g.Effect, " ")
		if x.Wrong() && verb != "allows" || verb != "allows" && verb != "prevents" || strings.HasPrefix(g.Does, "without") || g.Does == g.Shows {
			t.Errorf("%s: it does %q, effect %q: what is so with the switch on, and what it prevents or allows", g.Name, g.Does, g.Effect)
		}
		if seen[g.Name] || x.Wrong() != strings.HasPrefix(g.Name, "WRONG_") {
			t.Errorf("%s: two switches have the name, or it does not say whether it is a wrong order", g.Name)
		}
		seen[g.Name] = true
		if y, ok := Find(g.Name); !ok || y != x {
			t.Errorf("Find(%s) is %v, %v", g.Name, y, ok)
		}
	}
}

// The course is about ten, none of them wrong, and each stands in one group with its neighbours.
func TestCourse(t *testing.T) {
	n := 0
	seen := map[Group]int{}
	for x := range Switches() {
		if x.Toggle().Course {
			n++
		}
		if x.Toggle().Course && x.Wrong() || x.Wrong() != (x.Group() == GroupWrong) {
			t.Errorf("%v is of the course and wrong, or in the group %v", x, x.Group())
		}
		seen[x.Group()]++
	}
	if n != 10 || len(seen) != len(groupNames) {
		t.Errorf("%d toggles of the course in %d groups, want 10 in %d", n, len(seen), len(groupNames))
	}
}

// A set has what was put into it and no more, and All tells it in order.
func TestSet(t *testing.T) {
	for x := range Switches() {
		s := Of(x)
		for y := range Switches() {
			if s.Has(y) != (x == y) {
				t.Fatalf("the set of %v: has %v is %v", x, y, s.Has(y))
			}
		}
		if l := slices.Collect(s.All()); !slices.Equal(l, []Switch{x}) {
			t.Errorf("the set of %v has %v", x, l)
		}
		if s.Put(x, false); s != (Set{}) {
			t.Errorf("%v stays", x)
		}
	}
	a, b := Of(FsyncLog, Switch(WrongLogShareEarly)), Of(Switch(WrongLogShareEarly), BufUnlockInEOF)
	if a.Or(b) != Of(FsyncLog, Switch(WrongLogShareEarly), BufUnlockInEOF) || a.Without(b) != Of(FsyncLog) {
		t.Errorf("have %v and %v", a.Or(b), a.Without(b))
	}
}

// TestCheckOrder: what no execution is needed for. Every order that a plan can have passes,
// throttled outside or not.
func TestCheckOrder(t *testing.T) {
	right := MustParse("locked")
	order := func(p *Policy) []WriteStep {
		pl := ForWrite(Facts{}, p)
		return pl.Steps[:]
	}
	for x := range Switches() {
		p := *right
		if p.Put(x, true); !x.Wrong() {
			continue
		}
		if err := CheckWriteOrder(order(&p)); err != nil {
			t.Errorf("%v: %v", x, err)
		}
	}
	steps := func(edit func(s []WriteStep) []WriteStep) []WriteStep {
		return edit(order(right))
	}
	for _, tt := range []struct {
		name, want string
		steps      []WriteStep
	}{
		{"missing", "policy.BalanceDirty is missing", steps(func(s []WriteStep) []WriteStep { return s[:len(s)-1] })},
		{"repeated", "policy.Reserve comes twice", steps(func(s []WriteStep) []WriteStep { s[5] = Reserve; return s })},
		{"unknown", "bad step 3, have policy.WriteStep(77) want one of policy.FaultIn, policy.Reserve, ", steps(func(s []WriteStep) []WriteStep { s[2] = 77; return s })},
		{"none", "bad step 1, have policy.WriteStep(0) want ", []WriteStep{NoStep}},
		{"too long", "have 11 steps, want at most 10", steps(func(s []WriteStep) []WriteStep { return append(s, FaultIn) })},
	} {
		if err := CheckWriteOrder(tt.steps); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: have %v want %s", tt.name, err, tt.want)
		}
	}
	if err := CheckSetsizeOrder([]SetsizeStep{TruncateSetsize}); err == nil || !strings.HasPrefix(err.Error(), "bad step 1, have policy.TruncateSetsize want ") {
		t.Errorf("the whole of truncate_setsize: %v", err)
	}
	if s := fmt.Sprint(WriteStep(77), ISizeWrite, SetsizeStep(7), AllocStep(9)); s != "policy.WriteStep(77) i_size_write policy.SetsizeStep(7) policy.AllocStep(9)" {
		t.Error(s)
	}
}

// TestStudentOrder: an order that a lab fills in goes into the plan as it is.
func TestStudentOrder(t *testing.T) {
	for _, name := range Names() {
		p := MustParse(name)
		p.WriteSteps = WriteOrder{DropPages, FaultIn, BalanceDirty}
		if pl := ForWrite(Facts{}, p); pl.Steps != p.WriteSteps || pl.BalanceLast {
			t.Errorf("%s: have %v, balance outside %v", name, pl.Steps, pl.BalanceLast)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ spec, on, err string }{
		{spec: "locked", on: "PUNCH_RECHECK_OE FSYNC_LOG"},
		{spec: "unlocked+SETSIZE_DRAIN_FIRST", on: "BUF_UNLOCK_IN_EOF SETSIZE_DRAIN_FIRST PUNCH_RECHECK_OE FSYNC_LOG"},
		{spec: "range-lock!PUNCH_RECHECK_OE+BALANCE_OUTSIDE", on: "BALANCE_OUTSIDE WRITE_RANGE_LOCK EXTENT_LOCK_BACK_OFF FSYNC_LOG"},
		{spec: "nope", err: `unknown policy "nope", want one of locked, unlocked, unlocked-drain, prewait, range-lock, modern, or another of 'btrlab policy list'`},
		{spec: "", err: `unknown policy "", want one of locked, unlocked, unlocked-drain, prewait, range-lock, modern, or another of 'btrlab policy list'`},
		{spec: "locked+", err: `unknown toggle "" in policy "locked+", btrlab policy list --all shows all`},
		{spec: "locked+!PUNCH_RECHECK_OE", err: `unknown toggle "" in policy "locked+!PUNCH_RECHECK_OE", btrlab policy list --all shows all`},
		{spec: "locked+NOPE", err: `unknown toggle "NOPE" in policy "locked+NOPE", btrlab policy list --all shows all`},
	} {
		p, err := Parse(c.spec)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: have error %v, want %s", c.spec, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
		}
		if have := strings.Join(p.On(), " "); have != c.on {
			t.Errorf("%s: have %s, want %s", c.spec, have, c.on)
		}
		if p.Name != c.spec {
			t.Errorf("name: have %s, want %s", p.Name, c.spec)
		}
	}
}

// TestShortages walks the table of what a write does when space is short, labs/reference 5.5: each
// step, blocking and with NOWAIT, for ENOSPC and EDQUOT, in Linux and with its gap closed.
func TestShortages(t *testing.T) {
	const file = "testdata/shortages.txt"
	want, err := os.ReadFile(file)
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-18s %-9s %-8s %-8s %s\n", "step", "request", "ENOSPC", "EDQUOT", "EDQUOT with NOWAIT_EDQUOT")
	linux, closed := MustParse("nowait-6.1"), MustParse("nowait-6.1+NOWAIT_EDQUOT")
	for s := BufferedData; s <= DirectMetadata; s++ {
		for _, nowait := range []bool{false, true} {
			if closed.OnShortage(s, nowait, false) != linux.OnShortage(s, nowait, false) {
				t.Errorf("%v: a toggle of EDQUOT changes the answer to ENOSPC", s)
			}
			if nowait && s == DirectData {
				continue // such a write reserves none
			}
			request := "blocking"
			if nowait {
				request = "nowait"
			}
			fmt.Fprintf(&out, "%-18v %-9s %-8v %-8v %v\n", s, request, linux.OnShortage(s, nowait, false), linux.OnShortage(s, nowait, true),
				closed.OnShortage(s, nowait, true))
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if out.String() != string(want) {
		t.Errorf("the answers differ from %s (-rewrite to accept):\n%s", file, out.String())
	}
	if p := MustParse("nowait-6.1+WRONG_NOWAIT_ENOSPC"); p.OnShortage(BufferedMetadata, true, false) != Fail || p.OnShortage(BufferedMetadata, false, false) != Fail {
		t.Error("WRONG_NOWAIT_ENOSPC does not show ENOSPC")
	}
}

// TestContracts is the table of what the thread of seed 002 argued about.
func TestContracts(t *testing.T) {
	want := map[string]Contract{
		"locked":                   {AtomRequest, true},
		"unlocked":                 {AtomBatch, false},
		"unlocked-drain":           {AtomBatch, true},
		"prewait":                  {AtomRequest, true},
		"range-lock":               {AtomRequest, true},
		"modern":                   {AtomRequest, true},
		"modern+BUF_UNLOCK_IN_EOF": {AtomPage, false},
	}
	for spec, w := range want {
		if have := MustParse(spec).Contract(); have != w {
			t.Errorf("%s: have %v %v, want %v %v", spec, have.WriteAtom, have.TruncateHolds, w.WriteAtom, w.TruncateHolds)
		}
	}
}

func TestForDoesNotAllocate(t *testing.T) {
	p := MustParse("range-lock")
	if n := testing.AllocsPerRun(100, func() { ForWrite(Facts{Start: 0, End: 4096, ISize: 8192}, p) }); n != 0 {
		t.Errorf("%v allocations per plan", n)
	}
}

// TestReferenceTables: the tables of labs/reference 11 have every preset and every toggle, and a
// cross where a preset has a toggle.
func TestReferenceTables(t *testing.T) {
	b, err := os.ReadFile("../../labs/reference/11-policies.md")
	if err != nil {
		t.Fatal(err)
	}
	presets := All()
	quoted := regexp.MustCompile("`([^`]+)`")
	shown := map[string]bool{}
	for _, table := range regexp.MustCompile(`(?m)^\| toggle \|.*\n(\|.*\n)+`).FindAllString(string(b), -1) {
		lines := strings.Split(strings.TrimSpace(table), "\n")
		var columns []*Policy
		for _, m := range quoted.FindAllStringSubmatch(lines[0], -1) {
			i := slices.IndexFunc(presets, func(p Policy) bool { return p.Name == m[1] })
			if i < 0 {
				t.Fatalf("a column %s, which is no preset", m[1])
			}
			columns = append(columns, &presets[i])
			shown[m[1]] = true
		}
		want := make([]map[string]bool, len(columns)) // the crosses of each column
		for i := range want {
			want[i] = map[string]bool{}
		}
		for _, line := range lines[2:] {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for _, name := range togglesOf(t, strings.TrimSpace(cells[0]), presets) {
				shown[name] = true
				for i := range columns {
					if strings.TrimSpace(cells[1+i]) == "x" {
						want[i][name] = true
					}
				}
			}
		}
		for i, p := range columns {
			for x := range firstWrong {
				if have := p.Has(x); have != want[i][x.String()] {
					t.Errorf("%v of %s: have %v want %v, as labs/reference 11 has it", x, p.Name, have, want[i][x.String()])
				}
			}
		}
	}
	for i := range presets {
		if !shown[presets[i].Name] {
			t.Errorf("labs/reference 11 has no column %s", presets[i].Name)
		}
	}
	for _, g := range toggles[:firstWrong] {
		if !shown[g.Name] {
			t.Errorf("labs/reference 11 has no row %s", g.Name)
		}
	}
}

// togglesOf are the toggles that the first cell of a row names: names, "D0 to D7", "the toggles of
// `modern`".
func togglesOf(t *testing.T, cell string, presets []Policy) (names []string) {
	t.Helper()
	if of, ok := strings.CutPrefix(cell, "the toggles of `"); ok {
		i := slices.IndexFunc(presets, func(p Policy) bool { return p.Name == strings.TrimSuffix(of, "`") })
		return presets[i].On()
	}
	for _, w := range strings.Split(cell, ", ") {
		n := len(names)
		series := regexp.MustCompile(`^([A-Z])[01] to [A-Z]\d$`).FindStringSubmatch(w)
		for _, g := range toggles[:firstWrong] {
			if g.Name == w || series != nil && g.Name[:1] == series[1] && g.Name[2] == '_' {
				names = append(names, g.Name)
			}
		}
		if len(names) == n {
			t.Errorf("labs/reference 11 has a row %s, which is no toggle", w)
		}
	}
	return names
}
