package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/measure/profile"
	"btrlab/internal/measure/rig"
	"btrlab/internal/policy"
)

// profiles are the profile flags of bench and compare.
type profiles struct {
	paths profile.Paths
	addr  string
}

func (p *profiles) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.paths.CPU, "cpuprofile", "", "write a CPU profile to this file")
	f.StringVar(&p.paths.Mutex, "mutexprofile", "", "write Go's mutex profile to this file")
	f.StringVar(&p.paths.Block, "blockprofile", "", "write Go's block profile to this file")
	f.StringVar(&p.paths.Lock, "lockprofile", "", "write lock waits by class, operation and policy to this file, for go tool pprof")
	f.StringVar(&p.addr, "pprof", "", "serve net/http/pprof on this address while it runs, such as localhost:6060")
}

// around runs f while the profiles record.
func (p *profiles) around(a *app, f func() error) (err error) {
	if p.addr != "" {
		s, err := profile.Serve(p.addr)
		if err != nil {
			return err
		}
		defer s.Close()
		fmt.Fprintf(a.err, "btrlab: profiles on http://%s/debug/pprof/\n", s.Addr())
	}
	stop, err := profile.Start(p.paths)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return f()
}

// parsePolicies checks a list of policies.
func parsePolicies(cmd *cobra.Command, list []string) error {
	for _, p := range list {
		if _, err := policy.Parse(p); err != nil {
			return usagef(cmd, "%v", err)
		}
	}
	return nil
}

func parseModel(cmd *cobra.Command, model string) error {
	if err := rig.CheckModel(model); err != nil {
		return usagef(cmd, "%v", err)
	}
	return nil
}
