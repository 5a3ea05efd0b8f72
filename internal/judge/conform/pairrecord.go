package conform

import (
	"bufio"
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"btrlab/internal/hostio"
	"btrlab/internal/prose"
)

// What a kernel was seen to do in pairs is a text, compressed by gzip: "# Linux 6.18.15",
// "# functions" if it shows their steps, for each pair "== NAME", and before the steps of each run
// "-- first", "-- other" or "-- together".
//
//go:embed pairs/*.gz
var pairText embed.FS

// PairRecord is what a kernel was seen to do in pairs.
type PairRecord struct {
	Release   string
	Functions bool
	Runs      []*PairRun
}

// OpenPairs gives the recorded pairs of Linux KnownRelease.
func OpenPairs() (*PairRecord, error) {
	b, err := pairText.ReadFile("pairs/" + KnownRelease + ".txt.gz")
	if err != nil {
		return nil, err
	}
	return ReadPairs(bytes.NewReader(b))
}

// ReadPairs reads recorded pairs, compressed or not. Pairs that are not in the table are left out.
func ReadPairs(in io.Reader) (*PairRecord, error) {
	in, err := uncompressed(in)
	if err != nil {
		return nil, err
	}
	r := &PairRecord{}
	run, steps := &PairRun{}, new([]PairStep)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		mark, rest, _ := strings.Cut(lines.Text(), " ")
		switch mark {
		case "#":
			if release, ok := strings.CutPrefix(rest, "Linux "); ok {
				r.Release = release
			}
			r.Functions = r.Functions || rest == "functions"
		case "==":
			run = &PairRun{Pair: FindPair(rest)}
			if run.Pair != nil {
				r.Runs = append(r.Runs, run)
			}
		case "--":
			switch rest {
			case "first":
				steps = &run.Alone[0]
			case "other":
				steps = &run.Alone[1]
			default:
				run.Together = append(run.Together, nil)
				steps = &run.Together[len(run.Together)-1]
			}
		default:
			s, err := parsePairStep(lines.Text())
			if err != nil {
				return nil, err
			}
			*steps = append(*steps, s)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if r.Release == "" {
		return nil, errors.New("bad recording of pairs, have no line \"# Linux VERSION\"")
	}
	return r, nil
}

// Write writes what ReadPairs reads.
func (r *PairRecord) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Linux %s\n", r.Release)
	if r.Functions {
		b.WriteString("# functions\n")
	}
	for _, run := range r.Runs {
		fmt.Fprintf(&b, "== %s\n", run.Pair.Name)
		for i, steps := range append(run.Alone[:], run.Together...) {
			fmt.Fprintf(&b, "-- %s\n", [...]string{"first", "other", "together"}[min(i, 2)])
			for j := range steps {
				fmt.Fprintln(&b, &steps[j])
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// kept is how many traces of a pair a recording keeps: those in which the tasks take turns most,
// each once.
const kept = 4

// RecordPair does both operations of a pair at once as often as runs says, and each alone, on the
// kernel. Next is called before each of the runs, and an error of it ends that.
func (k *Kernel) RecordPair(p *Pair, runs int, next func(run int) error) (*PairRun, error) {
	img, err := makeImage(DefaultSize)
	if err != nil {
		return nil, err
	}
	r := &PairRun{Pair: p}
	for l := range r.Alone {
		events, err := k.runPair(img, p.only(l), 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		r.Alone[l] = stepsOf(lockLate(events))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for run := range runs {
		if err := next(run); err != nil {
			return nil, err
		}
		events, err := k.runPair(img, p, rng.IntN(2*mostEarly)-mostEarly)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		r.Together = append(r.Together, stepsOf(lockLate(events)))
	}
	r.Together = keep(r.Together)
	return r, nil
}

// keep are the traces that a recording keeps of these: see kept.
func keep(traces [][]PairStep) (list [][]PairStep) {
	seen := map[string]bool{}
	for _, steps := range traces {
		if text := fmt.Sprint(steps); !seen[text] {
			seen[text] = true
			list = append(list, steps)
		}
	}
	slices.SortStableFunc(list, func(a, b []PairStep) int { return cmp.Compare(mixed(b), mixed(a)) })
	return list[:min(kept, len(list))]
}

// mostEarly is to how much one task counts at most before it begins after the other one: some
// microseconds.
const mostEarly = 4000

// PairResult is a pair, compared.
type PairResult struct {
	Pair     *Pair    `json:"-"`
	Name     string   `json:"name"`
	Traces   int      `json:"traces"`   // of the kernel
	Accepted int      `json:"accepted"` // of which the engine has a schedule with the same steps
	Turns    int      `json:"turns"`    // how often the tasks take turns in one, at most
	Steps    int      `json:"steps"`    // of all traces
	Dropped  int      `json:"dropped"`  // of these: not compared, see PairRun.single
	Mutants  int      `json:"mutants"`  // traces that were changed
	Rejected int      `json:"rejected"` // of which the engine has no schedule
	Why      []string `json:"why,omitempty"`
}

// Judge looks for a schedule of the engine for each trace, and for each of as many changed ones.
func (r *PairRun) Judge(pol string, mutants int) (*PairResult, error) {
	img, err := makeImage(DefaultSize)
	if err != nil {
		return nil, err
	}
	drop, err := r.single(img, pol)
	if err != nil {
		return nil, err
	}
	x := &PairResult{Pair: r.Pair, Name: r.Pair.Name, Traces: len(r.Together)}
	name := fnv.New64()
	io.WriteString(name, r.Pair.Name)
	rng := rand.New(rand.NewPCG(3, name.Sum64())) // each pair has changes of its own
	for _, trace := range r.Together {
		want := slices.DeleteFunc(slices.Clone(trace), func(s PairStep) bool { return drop[s.String()] })
		x.Steps += len(trace)
		x.Dropped += len(trace) - len(want)
		x.Turns = max(x.Turns, mixed(trace))
		ok, why, err := accepts(img, r.Pair, pol, want, drop)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Pair.Name, err)
		}
		if !ok {
			x.Why = append(x.Why, why)
			continue
		}
		x.Accepted++
		seen := map[string]bool{}
		for range mutants {
			changed, how := r.Pair.mutant(want, rng, seen)
			if changed == nil {
				continue
			}
			ok, _, err := accepts(img, r.Pair, pol, changed, drop)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Pair.Name, err)
			}
			x.changed(how, ok)
		}
	}
	return x, nil
}

// changed counts a trace that was changed.
func (x *PairResult) changed(how string, accepted bool) {
	if x.Mutants++; accepted {
		x.Why = append(x.Why, "accepted with "+how)
	} else {
		x.Rejected++
	}
}

// mutant is a changed trace that is not in seen, where it is put, or nil if nothing that was drawn
// could be changed. Of two tasks that do the same, what one does the other one may do as well.
func (p *Pair) mutant(trace []PairStep, rng *rand.Rand, seen map[string]bool) (changed []PairStep, how string) {
	for range 20 {
		changed, how = mutate(trace, rng)
		if changed == nil || p.First == p.Other && strings.HasPrefix(how, otherTask) {
			continue
		}
		if text := fmt.Sprint(changed); !seen[text] {
			seen[text] = true
			return changed, how
		}
	}
	return nil, ""
}

const otherTask = "a step of the other task: "

// mutate changes one thing of a trace, which no schedule can do: it leaves a step out, has it
// twice, gives it to the other task, or lets a task have a lock before the other one lets it go.
// Nil where the trace does not have what was drawn.
func mutate(trace []PairStep, rng *rand.Rand) (changed []PairStep, how string) {
	if len(trace) == 0 {
		return nil, ""
	}
	i := rng.IntN(len(trace))
	s := trace[i]
	changed = slices.Clone(trace)
	switch rng.IntN(4) {
	case 0:
		return slices.Delete(changed, i, i+1), "a step left out: " + s.String()
	case 1:
		return slices.Insert(changed, i, s), "a step twice: " + s.String()
	case 2:
		if s.Lane == Elsewhere {
			return nil, ""
		}
		changed[i].Lane = Second - s.Lane
		return changed, otherTask + s.String()
	}
	for n := range len(trace) {
		if at, to, ok := handedOver(trace, (i+n)%len(trace)); ok {
			s = trace[to]
			return slices.Insert(slices.Delete(changed, to, to+1), at, s), "a lock taken too early: " + s.String()
		}
	}
	return nil, ""
}

// handedOver says that step at lets a lock go that another task takes at step to, and that the
// order of what lies between does not keep it from doing so before.
func handedOver(trace []PairStep, at int) (_, to int, ok bool) {
	gives := &trace[at]
	if !strings.HasPrefix(gives.Name, "unlock") && !strings.HasPrefix(gives.Name, "inode_unlock") {
		return 0, 0, false
	}
	for to := at + 1; to < len(trace); to++ {
		s := &trace[to]
		if s.Lane == gives.Lane || !s.depends(gives) {
			continue
		}
		ok = gives.inode && s.inode && strings.HasPrefix(s.Name, "inode_lock") && !(strings.HasSuffix(s.Name, "_shared") && strings.HasSuffix(gives.Name, "_shared")) ||
			s.Name == "lock" && gives.Name == "unlock" && lockBit(s) == lockBit(gives)
		for k := at + 1; k < to; k++ { // its own steps before come first
			ok = ok && trace[k].Lane != s.Lane
		}
		return at, to, ok
	}
	return 0, 0, false
}

// lockBit is the bit of a step that locks a range.
func lockBit(s *PairStep) string {
	bit, _, _ := strings.Cut(s.What, " ")
	return bit
}

// RecordPairs asks the kernel for the pairs of these names, all if there are none, each as often as
// runs says. Progress, which may be nil, is called before each run, and an error of it ends that.
func (k *Kernel) RecordPairs(names []string, runs int, progress func(pair string, done, of int) error) (*PairRecord, error) {
	r := &PairRecord{Release: k.DebianRelease(), Functions: k.Refused() == nil}
	list := pairsOf(names)
	for i, p := range list {
		next := func(run int) error {
			if progress == nil {
				return nil
			}
			return progress(p.Name, i*runs+run, len(list)*runs)
		}
		run, err := k.RecordPair(p, runs, next)
		for again := 0; errors.Is(err, hostio.ErrDropped) && again < 3; again++ {
			run, err = k.RecordPair(p, runs, next)
		}
		if err != nil {
			return nil, err
		}
		r.Runs = append(r.Runs, run)
	}
	return r, nil
}

// pairsOf are the pairs of these names, all if there are none.
func pairsOf(names []string) (list []*Pair) {
	for i := range Pairs {
		if len(names) == 0 || slices.Contains(names, Pairs[i].Name) {
			list = append(list, &Pairs[i])
		}
	}
	return list
}

// Only keeps the pairs of these names, all if there are none.
func (r *PairRecord) Only(names []string) {
	list := pairsOf(names)
	r.Runs = slices.DeleteFunc(r.Runs, func(x *PairRun) bool { return !slices.Contains(list, x.Pair) })
}

// WritePairs writes the table of the record's pairs, and why a trace was not accepted, or a changed
// one was.
func WritePairs(w io.Writer, r *PairRecord, pol string, results []*PairResult) error {
	var b strings.Builder
	table := [][]string{{"pair", "traces", "turns", "steps", "compared", "accepted", "changed", "rejected"}}
	total := &PairResult{Name: "all"}
	row := func(x *PairResult) {
		turns := fmt.Sprint(x.Turns)
		if x.Pair == nil {
			turns = ""
		}
		table = append(table, []string{x.Name, fmt.Sprint(x.Traces), turns, fmt.Sprint(x.Steps), fmt.Sprint(x.Steps - x.Dropped), fmt.Sprint(x.Accepted), fmt.Sprint(x.Mutants), fmt.Sprint(x.Rejected)})
	}
	for _, x := range results {
		row(x)
		total.Traces += x.Traces
		total.Accepted += x.Accepted
		total.Steps += x.Steps
		total.Dropped += x.Dropped
		total.Mutants += x.Mutants
		total.Rejected += x.Rejected
	}
	row(total)
	about := fmt.Sprintf("Linux %s and the engine, policy %s. A trace is of two tasks at once; accepted is one that a schedule of the engine makes as well, "+
		"and rejected a changed one that none makes. Turns is how often the tasks take turns, at most.", r.Release, pol)
	if !r.Functions {
		about += " This kernel shows no functions: i_rwsem and waits for direct I/O are not compared."
	}
	fmt.Fprintf(&b, "%s\n\n%s", prose.Wrap(about, prose.Width), prose.Table(1, table))
	for _, x := range results {
		for _, why := range x.Why {
			fmt.Fprintf(&b, "\n%s\n", prose.Wrap(x.Name+": "+why, prose.Width))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
