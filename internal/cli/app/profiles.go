package app

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/measure/profile"
)

// Profiles are the profile flags of bench and compare.
type Profiles struct {
	paths profile.Paths
	addr  string
	locks bytes.Buffer // the text of --lockprofile -
	down  bool
	where bytes.Buffer // the tables of --breakdown
}

const downUsage = "then print where the time went: processor time by part of the program, and waits by lock"

const lockUsage = "write lock waits by class, operation and policy to this file, for go tool pprof; - prints the longest as a text"

// Flags adds the flags to cmd.
func (p *Profiles) Flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.paths.CPU, "cpuprofile", "", "write a CPU profile to this file")
	f.StringVar(&p.paths.Mutex, "mutexprofile", "", "write Go's mutex profile to this file")
	f.StringVar(&p.paths.Block, "blockprofile", "", "write Go's block profile to this file")
	f.StringVar(&p.paths.Lock, "lockprofile", "", lockUsage)
	f.BoolVar(&p.down, "breakdown", false, downUsage)
	f.StringVar(&p.addr, "pprof", "", "serve net/http/pprof on this address while it runs, such as localhost:6060")
}

// ProfileFlags gives a verb that has its RunE the flags cpuprofile and, with locks, lockprofile,
// and runs it while they record. A verb under the explorer, which has no time, has no lock waits.
func ProfileFlags(a *Run, cmd *cobra.Command, locks bool) {
	p := &Profiles{}
	f := cmd.Flags()
	f.StringVar(&p.paths.CPU, "cpuprofile", "", "write a CPU profile to this file, for go tool pprof")
	OutputFlag(cmd, "cpuprofile")
	if locks {
		f.BoolVar(&p.down, "breakdown", false, downUsage)
		f.StringVar(&p.paths.Lock, "lockprofile", "", lockUsage)
		OutputFlag(cmd, "lockprofile")
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := p.Around(a, func() error { return run(cmd, args) })
		return errors.Join(err, p.Print(cmd, a))
	}
}

// Print prints the text of --lockprofile - and the tables of --breakdown, if they were asked for:
// after the result, or on standard error where that is for a program.
func (p *Profiles) Print(cmd *cobra.Command, a *Run) error {
	w := a.Out
	if len(given(cmd, "json benchstat")) > 0 {
		w = a.Err
	}
	for _, text := range []*bytes.Buffer{&p.locks, &p.where} {
		if text.Len() > 0 {
			if _, err := fmt.Fprintf(w, "\n%s", text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Around runs f while the profiles record.
func (p *Profiles) Around(a *Run, f func() error) (err error) {
	if p.addr != "" {
		s, err := profile.Serve(p.addr)
		if err != nil {
			return err
		}
		defer s.Close()
		fmt.Fprintf(a.Err, "btrlab: profiles on http://%s/debug/pprof/\n", s.Addr())
	}
	p.paths.LockText = &p.locks
	if p.down {
		p.paths.Breakdown = &p.where
	}
	stop, err := profile.Start(p.paths)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return f()
}
