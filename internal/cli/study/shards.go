package study

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/judge/crash"
	"btrlab/internal/judge/noticed"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/shard"
	"btrlab/internal/study/scenario"
)

// What the work of each verb is called.
const (
	ofSearch = "explore"
	ofMatrix = "explore --all"
	ofCrash  = "crash --bounded"
)

// Joiners are those of the verbs of this room.
func Joiners(a *app.Run) app.Joiners {
	v := verbs{Run: a}
	return app.Joiners{ofSearch: v.joinSearch, ofMatrix: v.joinMatrix, ofCrash: v.joinCrash, noticed.Work: v.joinDrawn}
}

// askedSearch is what a search, or a matrix of them, was asked for.
type askedSearch struct {
	Scenario    string   `json:"scenario,omitempty"` // not of a matrix
	Text        string   `json:"text"`               // the digest of the scenarios
	Policies    []string `json:"policies"`
	Method      string   `json:"method"`
	Preemptions *int     `json:"preemptions,omitempty"`
	Schedules   int      `json:"schedules"`
	Seed        uint64   `json:"seed"`
	Own         bool     `json:"own"`
	Deep        bool     `json:"deep"`
	Limit       string   `json:"limit,omitempty"` // of each cell, in words
	Pieces      int      `json:"pieces,omitempty"`
}

func (s *searchFlags) asked(pols []string, view *viewFlags, l []*scenario.Scenario) askedSearch {
	q := askedSearch{Policies: pols, Method: s.method, Schedules: s.schedules, Seed: s.seed, Own: s.own, Deep: view.deep}
	if s.set("preemptions") {
		q.Preemptions = &s.preemptions
	}
	var text strings.Builder
	for _, x := range l {
		fmt.Fprintf(&text, "%s\n%s\n", x.Name, x.Text())
	}
	q.Text = digest([]byte(text.String()))
	return q
}

// digest tells texts apart.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return fmt.Sprintf("%x", sum[:8])
}

// pieces is into how many pieces a shard of a search by dpor is divided: so much of it, at most, is
// done again when it was stopped. More of them cost more: each doubling of the parts makes a search
// an eighth longer.
const pieces = 4

// shardOfSearch does a shard of the search of s: of every policy its pieces. A piece is searched by
// one task, so that it is the same each time.
func (v *exploring) shardOfSearch(s *scenario.Scenario, o scenario.Options) error {
	q := v.sf.asked(v.policies, &v.view, []*scenario.Scenario{s})
	q.Scenario, q.Pieces = s.Name, pieces
	if v.sf.set("method") && v.sf.method != string(explore.DPOR) {
		q.Pieces = 1 // pieces would repeat each other's work
	}
	q.Method = v.sf.methodOf(true)
	cells, err := scenario.Cells([]*scenario.Scenario{s}, v.policies)
	if err != nil {
		return err
	}
	p, err := v.sf.shard.Part()
	if err != nil {
		return err
	}
	jobs, of := v.sf.cells(&o), q.Pieces*p.Of
	config := o.Config
	return v.DoShard(v.cmd, &v.sf.shard, app.Cut{Kind: ofSearch, Asked: q, Items: len(cells) * of, Jobs: jobs, Item: func(n int) (any, error) {
		o := o
		o.Config = func(c *explore.Config) {
			config(c)
			c.Shard, c.Shards, c.Progress = n%of, of, nil
		}
		return piece(&cells[n/of], o)
	}})
}

// piece searches a cell, or a piece of it. Its result has no time.
func piece(c *scenario.Cell, o scenario.Options) (any, error) {
	r, err := c.Run(o)
	switch {
	case err != nil:
		return nil, err
	case r.Stopped:
		return nil, shard.ErrStopped
	case r.Shards > 1 && r.Bound.Refused:
		return nil, fmt.Errorf("%s under %s: dpor cannot judge yields, NOWAIT and invariants, want --method bound", r.Scenario, r.Policy)
	}
	r.Seconds = 0
	return r, nil
}

func (a verbs) shardOfMatrix(cmd *cobra.Command, sf *searchFlags, view *viewFlags, l []*scenario.Scenario, pols []string, o scenario.Options, limit string, jobs int) error {
	q := sf.asked(pols, view, l)
	q.Limit, q.Method = limit, sf.methodOf(false)
	cells, err := scenario.Cells(l, pols)
	if err != nil {
		return err
	}
	config := o.Config
	o.Config = func(c *explore.Config) { config(c); c.Progress = nil }
	return a.DoShard(cmd, &sf.shard, app.Cut{Kind: ofMatrix, Asked: q, Items: len(cells), Jobs: jobs, Item: func(n int) (any, error) { return piece(&cells[n], o) }})
}

// joinSearch prints the result of a search, of each policy.
func (a verbs) joinSearch(_ *cobra.Command, s *shard.Set, asJSON bool) error {
	l, err := shard.Values[scenario.Result](s)
	if err != nil {
		return err
	}
	found := false
	for first := 0; first < len(l); {
		end := first
		for end < len(l) && l[end].Policy == l[first].Policy {
			end++
		}
		r, err := scenario.Merge(l[first:end])
		if err != nil {
			return err
		}
		if r.Bound.Shard %= s.Shards; first > 0 && !asJSON {
			fmt.Fprintln(a.Out)
		}
		r.Bound.Joined, r.Bound.Missing = s.Shards, len(s.Missing) // shards, not their pieces
		found = found || r.Verdict == explore.Violated
		first = end
		if asJSON {
			if err := a.PrintJSON(r); err != nil {
				return err
			}
			continue
		}
		a.printResult(&r, "")
	}
	return foundIf(found)
}

func foundIf(found bool) error {
	if found {
		return app.ErrFound
	}
	return nil
}

// joinMatrix prints the matrix. The cells of a shard that is missing are as empty as those that no
// search is about.
func (a verbs) joinMatrix(_ *cobra.Command, s *shard.Set, asJSON bool) error {
	l, err := shard.Values[scenario.Result](s)
	if err != nil {
		return err
	}
	var q askedSearch
	if err := s.Asks(&q); err != nil {
		return err
	}
	if asJSON {
		err = a.PrintJSON(l)
	} else {
		err = scenario.WriteMatrix(a.Out, l, q.Policies, q.Limit)
	}
	found := false
	for i := range l {
		found = found || l[i].Verdict == explore.Violated
	}
	if err != nil {
		return err
	}
	return foundIf(found)
}

// askedCrash is what a bounded run was asked for.
type askedCrash struct {
	Bounded int    `json:"bounded"`
	Sample  int    `json:"sample"` // 0: all
	Seed    uint64 `json:"seed"`
	Policy  string `json:"policy"`
	Wrong   string `json:"wrong,omitempty"`
	Image   string `json:"image,omitempty"` // the digest of its superblock, if it is no fresh one
}

func (a verbs) shardOfCrash(cmd *cobra.Command, o *crashFlags, dev blockdev.Device) error {
	q := askedCrash{Bounded: o.bounded, Seed: o.choice.Seed, Policy: o.policy, Wrong: o.wrong}
	if o.bounded == 3 && cmd.Flags().Changed("sample") {
		q.Sample = o.sample
	}
	if cmd.Flags().NArg() > 0 {
		b := make([]byte, format.SuperSize)
		if err := blockdev.Read(a.Task, dev, b, format.SuperOffset); err != nil {
			return err
		}
		q.Image = digest(b)
	}
	l := crash.NewBatches(q.Bounded, q.Sample, q.Seed)
	return a.DoShard(cmd, &o.shard, app.Cut{Kind: ofCrash, Asked: q, Items: l.Len(), Jobs: o.jobs, Item: func(n int) (any, error) {
		b, whole, err := l.Run(sched.NewTask("crash"), dev, o.options(), n, a.Stop.Load)
		if err == nil && !whole {
			err = shard.ErrStopped
		}
		return b, err
	}})
}

// joinCrash prints what a bounded run has lost.
func (a verbs) joinCrash(_ *cobra.Command, s *shard.Set, asJSON bool) error {
	l, err := shard.Values[crash.Batch](s)
	if err != nil {
		return err
	}
	var q askedCrash
	if err := s.Asks(&q); err != nil {
		return err
	}
	var sum crash.Batch
	for i := range l {
		sum.Add(&l[i])
	}
	if asJSON {
		err = a.PrintJSON(sum)
	} else {
		a.Say("", fmt.Sprintf("%d sequences of length %d in %s under %s; %s", sum.Sequences, q.Bounded, prose.Count(s.Shards-len(s.Missing), "shard"), q.Policy,
			prose.Count(sum.States, "crash state")))
		a.printLosing(&sum)
	}
	if err != nil {
		return err
	}
	return foundIf(sum.First != nil)
}

func (a verbs) printLosing(sum *crash.Batch) {
	f := sum.First
	if f == nil {
		fmt.Fprintln(a.Out, "nothing that was promised is lost")
		return
	}
	a.Say("", fmt.Sprintf("%s lose something; the first of them:", prose.Count(sum.Losing, "sequence")))
	a.Say("LOST "+f.Rule+": ", f.Text)
	for _, l := range f.Timeline {
		fmt.Fprintln(a.Out, l)
	}
	fmt.Fprintln(a.Out, "the script, for crash --script FILE --state "+f.State+" IMAGE:")
	for _, l := range f.Script {
		fmt.Fprintln(a.Out, "  "+l)
	}
}

// joinDrawn prints which of the drawn faults the tests have noticed. What make drawn fails for is
// found here: too few, or one that is argued to make no difference.
func (a verbs) joinDrawn(_ *cobra.Command, s *shard.Set, asJSON bool) error {
	l, err := shard.Values[noticed.Fault](s)
	if err != nil {
		return err
	}
	var q noticed.Asked
	if err := s.Asks(&q); err != nil {
		return err
	}
	wrong := noticed.Wrong(l)
	if asJSON {
		err = a.PrintJSON(l)
	} else {
		_, err = fmt.Fprintf(a.Out, "drawn by %q\n%s", q.Seed, noticed.Table(l))
		for _, f := range wrong {
			a.Say("", fmt.Sprintf("%s is argued to be equivalent (%s), and %s notices it", f.ID, f.Argued, f.By))
		}
	}
	if err != nil {
		return err
	}
	return foundIf(len(wrong) > 0 || noticed.Share(l) < q.Least)
}
