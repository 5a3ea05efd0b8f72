package study

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/judge/conform"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
)

// mutants is how many changed traces are made of each trace that a pair has.
const mutants = 3

// pairs is conform --pairs.
func (a verbs) pairs(cmd *cobra.Command, c *conformFlags) error {
	err := app.Check(cmd,
		app.NotEmpty("kernel policy op record", "--%s is empty"),
		app.Excludes("list", "op recorded kernel policy between record runs json", "--list compares nothing: it goes with --pairs only"),
		app.Excludes("pairs", "between coverage", "--pairs goes not with --between or --coverage"),
		app.Excludes("record", "recorded", "--record is for the running kernel, not for --recorded"),
		app.Excludes("runs", "recorded", "--runs is for a kernel that is asked, not for --recorded"),
		app.Not(c.runs < 1, "--runs %d, want 1 or more", c.runs),
		app.Not(c.stored && c.kernel != "" && c.kernel != conform.KnownRelease, "--kernel %s, want "+conform.KnownRelease+", of which pairs are recorded", c.kernel))
	if err != nil {
		return err
	}
	if c.list {
		return a.listPairs()
	}
	for _, name := range c.ops {
		if conform.FindPair(name) == nil {
			return app.Usagef(cmd, "pair %q, want one of those that --pairs --list names", name)
		}
	}
	if c.policy != "" {
		if _, err := policy.Parse(c.policy); err != nil {
			return app.Usagef(cmd, "--policy: %v", err)
		}
	}
	if !cmd.Flags().Changed("runs") {
		c.runs = pairTimes
	}
	return a.runPairs(c)
}

// pairTimes is how often the kernel does a pair, if --runs does not say.
const pairTimes = 10

// runPairs compares pairs of operations that two tasks do at once.
func (a verbs) runPairs(c *conformFlags) (err error) {
	record, err := a.pairRecord(c)
	if err != nil {
		return err
	}
	if c.record != "" {
		if err := app.ReplaceFile(c.record, record.Write); err != nil {
			return err
		}
	}
	pol := cmp.Or(c.policy, conform.Policy)
	bar := a.NewBar("conform", true)
	defer bar.Done()
	var results []*conform.PairResult
	for i, run := range record.Runs {
		if err := a.unanswered(); err != nil {
			return err
		}
		bar.Set(run.Pair.Name, uint64(i), uint64(len(record.Runs)))
		x, err := run.Judge(pol, mutants)
		if err != nil {
			return err
		}
		results = append(results, x)
	}
	bar.Done()
	if c.asJSON {
		err = a.PrintJSON(results)
	} else {
		err = conform.WritePairs(a.Out, record, pol, results)
	}
	for _, x := range results {
		if x.Accepted < x.Traces || x.Rejected < x.Mutants {
			return errors.Join(err, app.ErrFound)
		}
	}
	return err
}

// pairRecord is what the kernel that the flags name does in the pairs that --op names.
func (a verbs) pairRecord(c *conformFlags) (r *conform.PairRecord, err error) {
	switch {
	case c.stored:
		if r, err = conform.OpenPairs(); err != nil {
			return nil, err
		}
	case c.kernel != "":
		text, err := a.boot(c, "pairs", len(conform.Pairs)*c.runs, append([]string{strconv.Itoa(c.runs)}, c.ops...))
		if err != nil {
			return nil, err
		}
		if r, err = conform.ReadPairs(bytes.NewReader(text)); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", c.kernel, err)
		}
	default:
		return a.recordPairs(c)
	}
	r.Only(c.ops)
	return r, nil
}

// recordPairs asks the running kernel.
func (a verbs) recordPairs(c *conformFlags) (r *conform.PairRecord, err error) {
	k, err := conform.Open(os.TempDir())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	bar := a.NewBar("record", true)
	defer bar.Done()
	return k.RecordPairs(c.ops, c.runs, func(pair string, done, of int) error {
		bar.Set(pair, uint64(done), uint64(of))
		return a.unanswered()
	})
}

// unanswered is ErrNothing after SIGINT: conform prints when all is compared.
func (a verbs) unanswered() error {
	if a.Interrupted() != nil {
		return app.ErrNothing
	}
	return nil
}

// listPairs names the pairs.
func (a verbs) listPairs() error {
	var table [][]string
	for i := range conform.Pairs {
		p := &conform.Pairs[i]
		table = append(table, []string{p.Name, p.First, p.Other, p.About})
	}
	_, err := io.WriteString(a.Out, prose.Table(4, table))
	return err
}
