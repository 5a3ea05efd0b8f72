package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/fs"
	"btrlab/internal/measure/rig"
	"btrlab/internal/policy"
)

// serving are the flags of mount and serve, which serve an image to other programs until they are
// ended.
type serving struct {
	profiles
	ro     bool
	policy string
	memory byteSize
	commit time.Duration
	model  string

	p policy.Policy // of the flag
}

func (o *serving) flags(cmd *cobra.Command, ro string) {
	f := cmd.Flags()
	f.BoolVar(&o.ro, "ro", false, ro)
	f.StringVar(&o.policy, "policy", "locked", policyUsage())
	f.Var(&o.memory, "memory", "memory of btrlab for file contents and metadata (default a quarter of RAM, at most 1G)")
	f.DurationVar(&o.commit, "commit", fs.DefaultCommitInterval, "commit what is older than this; 0 is never")
	modelFlag(cmd, &o.model)
	o.profiles.flags(cmd)
	completePolicies(cmd, "policy")
}

// parse checks the flags.
func (o *serving) parse(a *app, cmd *cobra.Command) (err error) {
	if o.p, err = policy.Parse(o.policy); err != nil {
		return usagef(cmd, "%v", err)
	}
	if err := parseModel(cmd, o.model); err != nil {
		return err
	}
	switch {
	case o.memory.set && o.memory.n < minCache:
		return usagef(cmd, "bad --memory, have %d want at least %d", o.memory.n, minCache)
	case o.commit < 0:
		return usagef(cmd, "bad --commit, have %v want 0 or more", o.commit)
	}
	a.cache, a.model = o.memory, o.model
	return nil
}

// open runs f on the image while the profiles record. badCopy is fs.Options.
func (o *serving) open(a *app, image string, badCopy func(error), f func(x *fs.FS) error) error {
	if err := a.fitAddresses(); err != nil {
		return err
	}
	o.ro = o.ro || a.noReplay || a.degraded
	opt := fs.Options{ReadOnly: o.ro, Policy: &o.p, Memory: a.cacheSize(), Subvol: a.subvol.id, SubvolPath: a.subvol.path, CommitInterval: o.commit, BadCopy: badCopy}
	defer a.limitHeap()()
	return a.openFS(image, o.deviceFlags(), opt, func(x *fs.FS) error { return o.around(a, func() error { return f(x) }) })
}

func (o *serving) deviceFlags() (flags blockdev.Flags) {
	if o.ro {
		flags = blockdev.ReadOnly
	}
	return flags
}

func modelFlag(cmd *cobra.Command, model *string) {
	cmd.Flags().StringVar(model, "device-model", "none", "latency model over the device: "+strings.Join(rig.Models(), ", "))
	completeFixed(cmd, "device-model", rig.Models())
}

// over puts the layers on a device that --fault and --device-model ask for.
func (a *app) over(dev blockdev.Device) (blockdev.Device, error) {
	if a.live {
		f := dm.NewFlakey(dev, a.faults...)
		a.flakeys = append(a.flakeys, f)
		dev = f
	} else {
		dev = a.faults.on(dev)
	}
	if a.model == "" || a.model == "none" {
		return dev, nil
	}
	p, err := dm.Parse(a.model)
	if err != nil {
		return nil, err
	}
	return dm.New(a.t, dev, p), nil
}
