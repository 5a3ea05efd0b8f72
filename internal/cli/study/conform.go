package study

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/judge/conform"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
)

// conformFlags are the flags of conform.
type conformFlags struct {
	ops     []string
	list    bool
	record  string
	runs    int
	stored  bool
	pairs   bool
	asJSON  bool
	kernel  string
	policy  string
	between []string
	reach   bool
}

func (a verbs) conform() *cobra.Command {
	var c conformFlags
	cmd := &cobra.Command{
		Use:   "conform",
		Short: "compare the engine with the running kernel, step by step",
		Long: `Conform runs a table of operations twice: on a loop mount of btrfs under the running kernel's tracepoints, and on the engine
with policy ` + conform.Policy + `, which tells the same steps under the same names: bits of io trees, ordered extents, reservations, locks of tree blocks,
copies of blocks, delayed references, pages and bios. A kernel with CONFIG_FPROBE_EVENTS that is not locked down shows functions as well: i_rwsem,
i_size, waits for direct I/O and for ordered extents, folios, the snapshot lock. Addresses are left out; the two sequences are aligned, and what differs is marked: missing
and extra are steps of one side, order and count steps of both in another order or not as often, value a step with another range, size or bit.
A difference has a name where its reason is known, which is printed. A name holds for rows that are listed one by one, with the step and its place,
for Linux ` + conform.KnownRelease + `: a row that is not listed is open, and a listed one that is not there is gone. Where the order of the kernel's own workers
changes its steps, there are several lists, and the nearest counts; an operation whose steps fit none is done again, up to three times.
With --recorded the kernel's side is a run of Linux ` + conform.KnownRelease + ` that is in the program: it needs neither root nor Linux. --record saves this run's,
and with --runs every sequence that as many runs of each operation show; with --op the file keeps its other operations.
With --kernel VERSION another kernel, which make kernels has fetched, is booted under qemu, without root, and asked; a folder of an unpacked package
does as well. With --recorded it is one of the recorded ones: ` + strings.Join(conform.RecordedVersions(), ", ") + `. --between A B shows what has changed in the operations between two of these.
With --coverage it says which of these steps the operations reach, in the recorded kernel and in the engine, and which steps of a plan the engine takes.
With --pairs two tasks do two operations at once, several times; for each trace of the kernel the explorer looks for a schedule of the engine that makes
the same steps, and for none of those traces that have been changed: a step left out, twice or by the other task, a lock taken too early.
With --op the two sequences of an operation are printed side by side; --list names the operations and what is not compared, with the reasons.
Otherwise it needs root, btrfs in the kernel, and tracepoints that may be read. An image is made in the folder for temporary files.
Exit code 1 means that a difference is open, or an expected one is gone.`,
		Example: `  sudo btrlab conform
  sudo btrlab conform --op write-inside --op fsync-fast
  sudo btrlab conform --json > conform.json
  btrlab conform --recorded --op write-inside
  btrlab conform --recorded --kernel 5.10
  btrlab conform --between 5.10 7.3 --op fsync-fast
  btrlab conform --pairs --recorded --op write-write
  btrlab conform --list`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(c.between) == 1 { // --between 5.10 7.3
				return cobra.MaximumNArgs(1)(cmd, args)
			}
			return cobra.NoArgs(cmd, args)
		},
	}
	c.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if c.pairs {
			return a.pairs(cmd, &c)
		}
		err := app.Check(cmd,
			app.NotEmpty("kernel policy between op record", "--%s is empty"),
			app.Excludes("list", "op recorded kernel policy between record runs json", "--list compares nothing: it goes with no other flag"),
			app.Excludes("coverage", "op list record runs between pairs", "--coverage is of all operations, and of a recorded kernel"),
			app.Excludes("record", "recorded", "--record is for the running kernel, not for --recorded"),
			app.Not(c.runs < 1 || c.runs > 1 && c.record == "", "--runs %d, want 1 or more, and more with --record only", c.runs))
		if err != nil {
			return err
		}
		if c.list {
			return a.listConform()
		}
		ops, err := c.operations(cmd)
		if err != nil {
			return err
		}
		if c.policy != "" {
			if _, err := policy.Parse(c.policy); err != nil {
				return app.Usagef(cmd, "--policy: %v", err)
			}
		}
		if c.reach {
			return a.coverage(&c)
		}
		if c.between = append(c.between, args...); len(c.between) > 0 {
			return a.runBetween(cmd, &c, ops)
		}
		return a.runConform(&c, ops)
	}
	return cmd
}

func (c *conformFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&c.ops, "op", nil, "print this operation's sequences; several, with commas")
	f.BoolVar(&c.list, "list", false, "list the operations, and what is not compared")
	f.BoolVar(&c.reach, "coverage", false, "say which steps the operations reach, in a recorded kernel and in the engine")
	f.BoolVar(&c.stored, "recorded", false, "compare with the recorded run of the kernel, not with the one that runs")
	f.StringVar(&c.kernel, "kernel", "", "another kernel: a version or a folder, which is booted; with --recorded a recorded version")
	f.StringVar(&c.policy, "policy", "", "the engine's policy (default: "+conform.Policy+")")
	f.StringSliceVar(&c.between, "between", nil, "compare two recorded kernels: --between 5.10,7.3")
	f.StringVar(&c.record, "record", "", "write the kernel's side to this file, compressed if it ends in .gz; with --op, those there stay")
	app.OutputFlag(cmd, "record")
	f.IntVar(&c.runs, "runs", 1, "with --record or --pairs: how often the kernel does each operation (--pairs: 10 times)")
	app.JSONFlag(cmd, &c.asJSON)
	names := make([]string, 0, len(conform.Ops)+len(conform.Pairs))
	for _, op := range conform.Ops {
		names = append(names, op.Name)
	}
	for _, p := range conform.Pairs {
		names = append(names, p.Name)
	}
	_ = cmd.RegisterFlagCompletionFunc("op", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	f.BoolVar(&c.pairs, "pairs", false, "compare pairs of operations that two tasks do at once; --op names pairs then")
}

// operations are those of --op, or all.
func (c *conformFlags) operations(cmd *cobra.Command) (list []*conform.Op, err error) {
	for _, name := range c.ops {
		op := conform.Find(name)
		if op == nil {
			return nil, app.Usagef(cmd, "op %q, want one of those that --list names", name)
		}
		list = append(list, op)
	}
	for i := range conform.Ops {
		if len(c.ops) == 0 {
			list = append(list, &conform.Ops[i])
		}
	}
	return list, nil
}

// coverage prints what the operations reach.
func (a verbs) coverage(c *conformFlags) error {
	k, err := conform.OpenRecordedKernel(cmp.Or(c.kernel, conform.KnownRelease))
	if err != nil {
		return err
	}
	ops, err := c.operations(nil)
	if err != nil {
		return err
	}
	x, err := k.Cover(ops, cmp.Or(c.policy, conform.DefaultPolicy(k.Version())))
	if err != nil {
		return err
	}
	if c.asJSON {
		return a.PrintJSON(x)
	}
	return x.WriteText(a.Out)
}

func (a verbs) listConform() error {
	for _, op := range conform.Ops {
		fmt.Fprintf(a.Out, "%-21s %s\n", op.Name, op.About)
	}
	fmt.Fprintln(a.Out, "\nNot compared:")
	for _, l := range conform.LeftOut() {
		for _, line := range prose.Hang("  ", "      ", l.Name+": "+l.Why, prose.Width) {
			fmt.Fprintln(a.Out, line)
		}
	}
	return nil
}

func (a verbs) runConform(c *conformFlags, ops []*conform.Op) (err error) {
	if c.kernel != "" && !c.stored {
		return a.bootConform(c, ops)
	}
	if c.stored {
		k, err := conform.OpenRecordedKernel(cmp.Or(c.kernel, conform.KnownRelease))
		if err != nil {
			return err
		}
		return a.compareRecorded(c, ops, k)
	}
	k, err := conform.Open(os.TempDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	k.SetPolicy(cmp.Or(c.policy, conform.Policy))
	r := conform.Report{Kernel: k.Release(), Policy: cmp.Or(c.policy, conform.Policy), Missing: k.Missing()}
	if err := k.Refused(); err != nil {
		r.Refused = err.Error()
	}
	write := func(r *conform.Recorder, w io.Writer) error { return r.WriteKernel(w, k) }
	compare := k.Compare
	if c.record != "" {
		compare = k.CompareOnce
	}
	return a.compareConform(c, ops, r, compare, write)
}

// compareConform fills the report and prints it.
func (a verbs) compareConform(c *conformFlags, ops []*conform.Op, r conform.Report, compare func(op *conform.Op) (*conform.Result, error), write func(r *conform.Recorder, w io.Writer) error) error {
	bar := a.NewBar("conform", len(ops) > 1)
	defer bar.Done()
	var record conform.Recorder
	for i, op := range ops {
		bar.Set(op.Name, uint64(i), uint64(len(ops)))
		for run := range c.runs {
			if err := a.unanswered(); err != nil {
				return err
			}
			x, err := compare(op)
			if err != nil {
				return err
			}
			record.Add(x)
			if run == 0 {
				r.Results = append(r.Results, x)
			}
		}
	}
	bar.Done()
	if c.record != "" {
		var text bytes.Buffer
		if err := write(&record, &text); err != nil {
			return err
		}
		recorded, err := conform.ReadRecorded(&text)
		if err != nil {
			return err
		}
		if err := c.save(recorded); err != nil {
			return err
		}
	}
	if err := a.printConform(&r, c); err != nil {
		return err
	}
	if t := r.Totals(); t.Open+t.Gone > 0 {
		return app.ErrFound
	}
	return nil
}

// save writes a recording to the file of --record. With --op, one of the same kernel that is there
// keeps its other operations.
func (c *conformFlags) save(r *conform.Recorded) error {
	old, err := os.ReadFile(c.record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var kept io.Reader
	if len(c.ops) > 0 && len(old) > 0 {
		kept = bytes.NewReader(old)
	}
	err = app.ReplaceFile(c.record, func(w io.Writer) error { return r.PutInto(kept, w, strings.HasSuffix(c.record, ".gz")) })
	if err != nil {
		return fmt.Errorf("%s: %w", c.record, err)
	}
	return nil
}

func (a verbs) printConform(r *conform.Report, c *conformFlags) error {
	if c.asJSON {
		return a.PrintJSON(r.JSON())
	}
	if len(c.ops) == 0 {
		return r.WriteText(a.Out)
	}
	for i, x := range r.Results {
		if i > 0 {
			fmt.Fprintln(a.Out)
		}
		if err := x.WriteText(a.Out); err != nil {
			return err
		}
	}
	return nil
}
