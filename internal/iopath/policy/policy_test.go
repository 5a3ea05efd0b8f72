package policy

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata with what the code says")

// planText prints what of a plan matters for its operation.
func planText(op Op, p Plan) string {
	var w []string
	add := func(on bool, s string) {
		if on {
			w = append(w, s)
		}
	}
	nowait := func() {
		v := reflect.ValueOf(p.Nowait)
		for i := range v.NumField() {
			add(v.Field(i).Bool(), v.Type().Field(i).Name)
		}
	}
	w = append(w, "lock="+p.Lock.String())
	if p.Lock.Range() {
		w = append(w, fmt.Sprintf("from=%d", p.RangeFrom))
	}
	add(p.DrainDirect, "drain_direct")
	switch op {
	case Write:
		add(p.DIOBegin, "dio_begin")
		add(p.Prewait, "prewait")
		add(p.BalanceOutside, "balance_outside")
		w = append(w, fmt.Sprintf("batch=%d", p.BatchPages))
		add(!p.StableWait, "no_stable_wait")
		add(!p.ISizeUnderLock, "stale_i_size")
		add(!p.ForceRead, "no_forced_read")
		add(!p.NoSnapshot, "snapshot_unlocked")
		nowait()
		w = append(w, "\n   "+orderText(p.WriteSteps[:]))
	case DirectWrite, DirectRead:
		add(p.DIOLocked, "dio_locked")
		add(p.CsumBuffered, "csum_buffered")
		add(p.HoldReads, "hold_reads")
		nowait()
		add(p.ForceWait, "force_wait")
		add(p.Unaligned != UnalignedBuffered, "unaligned="+p.Unaligned.String())
		add(p.Unaligned != UnalignedBuffered && p.Drain, "drain")
		add(!p.RecheckPages, "no_recheck")
		add(p.ReserveLate, "reserve_late")
		add(p.NeedsSpace, "needs_space")
		add(p.Nofault, "nofault")
		add(!p.SplitOrdered, "whole_ordered")
		add(p.ChecksAgain, "checks_again")
		add(p.SyncHeld, "sync_held")
		add(p.SyncMark != MarkTask, "mark="+p.SyncMark.String())
	case SetSize:
		add(!p.StableWait, "no_stable_wait")
		add(!p.LockDiskISize, "disk_i_size_unlocked")
		add(p.HoldReads, "hold_reads")
		w = append(w, orderText(p.SetsizeSteps[:]))
	default:
		add(p.RecheckOrdered, "recheck_ordered")
		if op == Fallocate {
			w = append(w, orderText(p.AllocSteps[:]))
		}
	}
	return strings.ReplaceAll(strings.Join(w, " "), " \n", "\n")
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
		var op Op
		words := strings.Fields(lines[0])
		for o, n := range []string{"write", "setsize", "fallocate", "punch", "direct-write", "direct-read"} {
			if n == words[0] {
				op = Op(o)
			}
		}
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
			fmt.Fprintf(&out, "%-14s %s\n", pols[j].Name, planText(op, For(op, f, &pols[j])))
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

// TestTogglesCoverPolicy holds that a field without an entry, or an entry without a source, cannot
// be added.
func TestTogglesCoverPolicy(t *testing.T) {
	var p Policy
	seen := map[*bool]string{}
	for _, g := range Toggles {
		if g.Source == "" || g.Kernel == "" || g.Scenario == "" {
			t.Errorf("%s: source, kernel function and scenario must be given", g.Name)
		}
		if other := seen[g.Field(&p)]; other != "" {
			t.Errorf("%s and %s switch the same field", g.Name, other)
		}
		seen[g.Field(&p)] = g.Name
	}
	v := reflect.ValueOf(&p).Elem()
	bools := 0
	for i := 0; i < v.NumField(); i++ {
		if v.Field(i).Kind() == reflect.Bool {
			bools++
			if seen[v.Field(i).Addr().Interface().(*bool)] == "" {
				t.Errorf("field %s has no toggle", v.Type().Field(i).Name)
			}
		}
	}
	if bools != len(Toggles) {
		t.Errorf("%d fields, %d toggles", bools, len(Toggles))
	}
}

// TestCheckOrder: what no execution is needed for. Every order that a plan can have passes,
// throttled outside or not.
func TestCheckOrder(t *testing.T) {
	right := MustParse("locked")
	order := func(p *Policy) []WriteStep {
		pl := For(Write, Facts{}, p)
		return pl.WriteSteps[:]
	}
	for i := range Wrongs {
		p := *right
		*Wrongs[i].Field(&p) = true
		if err := CheckWriteOrder(order(&p)); err != nil {
			t.Errorf("%s: %v", Wrongs[i].Name, err)
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
		if pl := For(Write, Facts{}, p); pl.WriteSteps != p.WriteSteps || pl.BalanceOutside {
			t.Errorf("%s: have %v, balance outside %v", name, pl.WriteSteps, pl.BalanceOutside)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ spec, on, err string }{
		{spec: "locked", on: "PUNCH_RECHECK_OE FSYNC_LOG"},
		{spec: "unlocked+SETSIZE_DRAIN_FIRST", on: "BUF_UNLOCK_IN_EOF SETSIZE_DRAIN_FIRST PUNCH_RECHECK_OE FSYNC_LOG"},
		{spec: "range-lock!PUNCH_RECHECK_OE+BALANCE_OUTSIDE", on: "BALANCE_OUTSIDE WRITE_RANGE_LOCK EXTENT_LOCK_BACK_OFF FSYNC_LOG"},
		{spec: "nope", err: `unknown policy "nope", want one of locked, unlocked, unlocked-drain, prewait, range-lock, modern, nowait-4.13, nowait-5.8, nowait-5.19, nowait-6.1, nowait-strict, unaligned-exclusive, unaligned-check-first, unaligned-retry, fsync-commit, fsync-5.17, fsync-5.18`},
		{spec: "", err: `unknown policy "", want one of locked, unlocked, unlocked-drain, prewait, range-lock, modern, nowait-4.13, nowait-5.8, nowait-5.19, nowait-6.1, nowait-strict, unaligned-exclusive, unaligned-check-first, unaligned-retry, fsync-commit, fsync-5.17, fsync-5.18`},
		{spec: "locked+", err: `unknown toggle "" in policy "locked+", btrlab policy list shows all`},
		{spec: "locked+!PUNCH_RECHECK_OE", err: `unknown toggle "" in policy "locked+!PUNCH_RECHECK_OE", btrlab policy list shows all`},
		{spec: "locked+NOPE", err: `unknown toggle "NOPE" in policy "locked+NOPE", btrlab policy list shows all`},
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
	if n := testing.AllocsPerRun(100, func() { For(Write, Facts{Start: 0, End: 4096, ISize: 8192}, p) }); n != 0 {
		t.Errorf("%v allocations per plan", n)
	}
}

// TestReferenceTables: the tables of labs/reference 11 have every preset and every toggle, and a
// cross where a preset has a toggle.
func TestReferenceTables(t *testing.T) {
	b, err := os.ReadFile("../../../labs/reference/11-policies.md")
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
			for _, g := range Toggles {
				if have := *g.Field(p); have != want[i][g.Name] {
					t.Errorf("%s of %s: have %v want %v, as labs/reference 11 has it", g.Name, p.Name, have, want[i][g.Name])
				}
			}
		}
	}
	for i := range presets {
		if !shown[presets[i].Name] {
			t.Errorf("labs/reference 11 has no column %s", presets[i].Name)
		}
	}
	for _, g := range Toggles {
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
		for _, g := range Toggles {
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
