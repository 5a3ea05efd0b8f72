package app

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/prose"
	"btrlab/internal/shard"
)

// ShardFlags are the flags of a verb whose work can be cut into shards.
type ShardFlags struct{ text, out string }

// Flags adds them to cmd. What says what is cut.
func (s *ShardFlags) Flags(cmd *cobra.Command, what string) {
	f := cmd.Flags()
	f.StringVar(&s.text, "shard", "", "do part I of N of "+what+", as I/N with I from 0, and write it to --out; btrlab merge joins the files")
	f.StringVar(&s.out, "out", "", "with --shard: the file; one that is there goes on where it ends, and a whole one is left as it is")
	OutputFlag(cmd, "out")
}

// On reports whether the work is cut.
func (s *ShardFlags) On() bool { return s.text != "" }

// Part is the shard that is named.
func (s *ShardFlags) Part() (shard.Part, error) { return shard.Parse(s.text) }

// Rules are those of the flags.
func (s *ShardFlags) Rules() []Rule {
	_, err := shard.Parse(s.text)
	return []Rule{
		Not(s.On() && err != nil, "bad --shard, have %q want I/N with 0 <= I < N, as 3/16", s.text),
		Needs("shard", "out json", "--shard needs --out FILE, or --json to write it to standard output"),
		Needs("out", "shard", "--out is the file of a --shard"),
	}
}

// Cut is the work of a verb, for shards.
type Cut struct {
	Kind  string // what the work is called in a file, and in Joiners
	Asked any    // what the verb was asked for, as an object
	Items int
	Jobs  int                      // with --jobs; without it a shard is the work of one processor
	Item  func(n int) (any, error) // as of shard.Doing
}

// DoShard does the items of a shard that its file does not have yet, and says how far it is. What
// was found is for merge to say: the exit code is that of the work, so that a cluster does not take
// a finding for a failure.
func (a *Run) DoShard(cmd *cobra.Command, s *ShardFlags, c Cut) error {
	p, err := shard.Parse(s.text)
	if err != nil {
		return Usagef(cmd, "%v", err)
	}
	w, err := shard.New(c.Kind, cmd.Root().Version, c.Asked, c.Items)
	if err != nil {
		return err
	}
	d := shard.Doing{Item: c.Item, Jobs: 1}
	if cmd.Flags().Changed("jobs") {
		d.Jobs = c.Jobs
	}
	bar := a.NewBar("shard", true)
	d.Stop = a.Stop.Load
	d.Progress = func(done, all int) { bar.Set("shard "+s.text, uint64(done), uint64(all)) }
	var done shard.Done
	if s.out == "" {
		done, err = shard.Write(a.Out, w, p, d)
	} else {
		done, err = shard.Do(s.out, w, p, d)
	}
	bar.Done()
	asJSON, _ := cmd.Flags().GetBool("json") // without such a flag: false
	var bad *shard.FileError
	switch {
	case errors.As(err, &bad):
		return Usagef(cmd, "%v", err)
	case err != nil:
		return err
	case !done.Whole && s.out == "":
		return ErrNothing
	case !done.Whole:
		return Interruption(fmt.Sprintf("interrupted; %s has %d of %s, and the same command goes on", s.out, done.Items, prose.Count(done.All, "item")))
	case s.out != "" && asJSON:
		return a.PrintJSON(struct {
			File  string `json:"file"`
			Shard string `json:"shard"`
			Items int    `json:"items"`
			Had   int    `json:"had"`
		}{s.out, s.text, done.Items, done.Had})
	case s.out != "":
		fmt.Fprintf(a.Out, "%s: shard %s is whole: %s", s.out, s.text, prose.Count(done.All, "item"))
		if done.Had > 0 {
			fmt.Fprintf(a.Out, ", %d of them were there", done.Had)
		}
		fmt.Fprintln(a.Out)
	}
	return nil
}

// Joiners print what shards have found together, by the kind of their work.
type Joiners map[string]Joiner

// Joiner prints what the shards of a verb's work have found together.
type Joiner func(cmd *cobra.Command, s *shard.Set, asJSON bool) error
