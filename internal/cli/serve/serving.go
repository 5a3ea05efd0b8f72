package serve

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
)

// serving are the flags of mount and serve, which serve an image to other programs until they are
// ended.
type serving struct {
	app.Profiles
	ro     bool
	policy string
	memory app.ByteSize
	commit time.Duration
	// discard punches holes for what is freed.
	discard bool
	model   string

	p policy.Policy // of the flag
}

func (o *serving) flags(cmd *cobra.Command, ro string) {
	f := cmd.Flags()
	f.BoolVar(&o.ro, "ro", false, ro)
	f.StringVar(&o.policy, "policy", "locked", app.PolicyUsage())
	f.Var(&o.memory, "memory", "memory of btrlab for file contents and metadata (default a quarter of RAM, at most 1G)")
	f.DurationVar(&o.commit, "commit", fs.DefaultCommitInterval, "commit what is older than this; 0 is never")
	f.BoolVar(&o.discard, "discard", false, "give the place of what is deleted back with each commit: holes in the image file")
	app.ModelFlag(cmd, &o.model)
	o.Profiles.Flags(cmd)
	app.CompletePolicies(cmd, "policy")
}

// parse checks the flags.
func (o *serving) parse(a verbs, cmd *cobra.Command) (err error) {
	if o.p, err = policy.Parse(o.policy); err != nil {
		return app.Usagef(cmd, "%v", err)
	}
	if err := app.ParseModel(cmd, o.model); err != nil {
		return err
	}
	a.Cache, a.Model = o.memory, o.model
	return app.Check(cmd,
		app.AtLeast(o.memory.N, app.MinCache, "bad --memory, have %d want at least %d").If(o.memory.Given),
		app.AtLeast(o.commit, 0, "bad --commit, have %v want 0 or more"))
}

// open runs f on the image while the profiles record. badCopy is fs.Options.
func (o *serving) open(a verbs, image string, badCopy func(error), f func(x *fs.FS) error) error {
	if err := a.fitAddresses(); err != nil {
		return err
	}
	o.ro = o.ro || a.NoReplay
	opt := fs.Options{ReadOnly: o.ro, Policy: &o.p, Memory: a.CacheSize(), Subvol: a.Subvol.ID, SubvolPath: a.Subvol.Path, CommitInterval: o.commit, Discard: o.discard, BadCopy: badCopy}
	defer a.LimitHeap()()
	return a.OpenFS(image, o.deviceFlags(), opt, func(x *fs.FS) error { return o.Around(a.Run, func() error { return f(x) }) })
}

// degraded is the line for the one who mounts or serves a file system of which devices are missing;
// empty if none is. Models what btrfs_report_missing_device() logs.
func degraded(image string, x *fs.FS) string {
	missing := x.Missing()
	if len(missing) == 0 {
		return ""
	}
	ids := strings.Trim(fmt.Sprint(missing), "[]")
	return fmt.Sprintf("warning: %s: degraded, without the missing devid %s", image, ids)
}

func (o *serving) deviceFlags() (flags blockdev.Flags) {
	if o.ro {
		flags = blockdev.ReadOnly
	}
	return flags
}
