package study

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/judge/conform"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/jobs"
)

// bootTime is how long a machine of conform may run, for each run of an operation and for the rest.
const bootTime, operationTime = 5 * time.Minute, 20 * time.Second

// bootConform boots the kernel that --kernel names, records the operations in it, and compares the
// engine with that.
func (a verbs) bootConform(c *conformFlags, ops []*conform.Op) error {
	args := []string{strconv.Itoa(c.runs)}
	for _, op := range ops {
		args = append(args, op.Name)
	}
	text, err := a.boot(c, "conform", len(ops)*c.runs, args)
	if err != nil {
		return err
	}
	recorded, err := conform.ReadRecorded(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("kernel %s: %w", c.kernel, err)
	}
	if c.record != "" {
		if err := c.save(recorded); err != nil {
			return err
		}
	}
	return a.compareRecorded(c, ops, recorded.Expecting())
}

// boot has the kernel that --kernel names do a job of so many operations, and gives the recording.
func (a verbs) boot(c *conformFlags, job string, operations int, args []string) ([]byte, error) {
	k, err := kernels.Find(c.kernel)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	limit, end := context.WithTimeout(context.Background(), bootTime+time.Duration(operations)*operationTime)
	defer end()
	ctx, cancel := a.Context(limit)
	defer cancel()
	r, err := kernels.Run(ctx, &kernels.Machine{Kernel: k, Program: program, Args: jobs.Args(job, args...)})
	if stop := a.Interrupted(); stop != nil {
		return nil, stop
	}
	if err != nil {
		return nil, err
	}
	if r.Exit != 0 {
		return nil, fmt.Errorf("kernel %s: %s", k.Release, strings.TrimPrefix(strings.TrimSpace(r.Errors), "btrlab: "))
	}
	return r.Files[jobs.RecordFile], nil
}

// compareRecorded compares the engine with a recorded kernel, and prints.
func (a verbs) compareRecorded(c *conformFlags, ops []*conform.Op, k *conform.Recorded) error {
	pol := cmp.Or(c.policy, conform.DefaultPolicy(k.Version()))
	r := conform.Report{Kernel: k.Release, Policy: pol, Missing: k.Missing()}
	if !k.Functions {
		r.Refused = "Linux " + k.Release + " has no events at the entry of functions"
	}
	once := *c
	once.runs, once.record = 1, ""
	return a.compareConform(&once, ops, r, func(op *conform.Op) (*conform.Result, error) { return k.Compare(op, pol) }, nil)
}

// runBetween prints what differs between two recorded kernels.
func (a verbs) runBetween(cmd *cobra.Command, c *conformFlags, ops []*conform.Op) error {
	if len(c.between) != 2 || c.stored || c.kernel != "" || c.record != "" || c.policy != "" {
		return app.Usagef(cmd, "--between wants two recorded versions, and no --recorded, --kernel, --record or --policy")
	}
	var sides [2]*conform.Recorded
	for i, v := range c.between {
		k, err := conform.OpenRecordedKernel(v)
		if err != nil {
			return app.Usagef(cmd, "--between: %v", err)
		}
		sides[i] = k
	}
	if sides[0].Release == sides[1].Release {
		return app.Usagef(cmd, "--between: bad versions, have Linux %s twice want two kernels", sides[0].Release)
	}
	results := make([]*conform.Result, 0, len(ops))
	for _, op := range ops {
		x, err := conform.Between(sides[0], sides[1], op)
		if err != nil {
			return err
		}
		results = append(results, x)
	}
	if c.asJSON {
		r := conform.Report{Kernel: sides[0].Release, Policy: sides[1].Release, Results: results}
		return a.PrintJSON(r.JSON())
	}
	if len(c.ops) == 0 {
		return conform.WriteBetween(a.Out, sides[0], sides[1], results)
	}
	return a.printConform(&conform.Report{Results: results}, c)
}
