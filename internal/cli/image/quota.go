package image

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/sched"
	"btrlab/internal/script"
)

func (a verbs) quota() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "count and limit what subvolumes have",
		Long: `Quota groups count the extents that each subvolume reaches (referenced), and those that no other reaches
(exclusive). With a limit a write that would go over it fails with "disk quota exceeded". The counts and limits are those that
btrfs qgroup show and limit work with.
Simple quotas count what a subvolume allocates from the day they are turned on, for as long as anybody refers to it: they cost a commit
nothing, whatever is shared.`,
		Example: `  btrlab quota enable disk.img
  btrlab quota limit 100M disk.img:/home
  btrlab quota show disk.img`,
	}
	cmd.AddCommand(a.quotaEnable(),
		a.quotaSwitch("disable", "turn quotas off; counts and limits are gone", (*fs.FS).DisableQuota),
		a.quotaSwitch("rescan", "count again from the start", (*fs.FS).RescanQuota), a.quotaLimit(), a.quotaShow())
	return cmd
}

// quotaSwitch makes a verb that changes quotas of the whole image.
func (a verbs) quotaSwitch(name, short string, do func(x *fs.FS, t *sched.Task) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:     name + " IMAGE",
		Short:   short,
		Example: "  btrlab quota " + name + " disk.img",
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.WriteFS(args[0], func(x *fs.FS) error { return quotaError(do(x, a.Task)) })
	}
	return cmd
}

// quotaEnable is the switch with a choice of the kind.
func (a verbs) quotaEnable() *cobra.Command {
	var simple bool
	cmd := a.quotaSwitch("enable", "turn quotas on and count what is there", func(x *fs.FS, t *sched.Task) error {
		if simple {
			return x.EnableSimpleQuota(t)
		}
		return x.EnableQuota(t)
	})
	cmd.Long = `Enable gives each subvolume a qgroup. With --simple it counts what the subvolume allocates from now on; Linux opens the image since 6.7
then, also when quotas are off again.`
	cmd.Flags().BoolVar(&simple, "simple", false, "count what is allocated from now on, by the subvolume that allocates it")
	return cmd
}

// quotaError says what to do when quotas are off.
func quotaError(err error) error {
	if errors.Is(err, qgroup.ErrOff) {
		return fmt.Errorf("%w: run btrlab quota enable first", err)
	}
	return err
}

func (a verbs) quotaLimit() *cobra.Command {
	var excl bool
	cmd := &cobra.Command{
		Use:   "limit [-e] SIZE|none IMAGE[:/subvol]",
		Short: "limit what a subvolume may have",
		Long: `Limit sets how many bytes the extents of a subvolume may have together, or with none takes the limit away. Without a
path it is the top-level subvolume's.`,
		Example: `  btrlab quota limit 1G disk.img
  btrlab quota limit -e 100M disk.img:/snap
  btrlab quota limit none disk.img`,
		Args: cobra.ExactArgs(2),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().BoolVarP(&excl, "exclusive", "e", false, "limit what no other subvolume reaches")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var bytes int64
		none := args[0] == "none"
		if !none {
			var err error
			if bytes, err = script.ParseSize(args[0]); err != nil {
				return app.Usagef(cmd, "%v, or none", err)
			}
		}
		image, path, _ := a.SplitSpec(args[1])
		return a.WriteFS(image, func(x *fs.FS) error {
			at, err := x.Stat(a.Task, path)
			if err == nil && at.Ino != format.FIRST_FREE_OBJECTID {
				err = fmt.Errorf("not the top directory of a subvolume: %w", errno.EINVAL)
			}
			if err == nil {
				err = quotaError(x.LimitQuota(a.Task, at.Subvol, uint64(bytes), excl, none))
			}
			return app.InImage(image, path, err)
		})
	}
	return cmd
}

// qgroupResult is a qgroup in JSON. Limits that do not hold are left out.
type qgroupResult struct {
	Qgroupid      string   `json:"qgroupid"`
	Referenced    uint64   `json:"referenced"`
	Exclusive     uint64   `json:"exclusive"`
	MaxReferenced *uint64  `json:"max_referenced,omitempty"`
	MaxExclusive  *uint64  `json:"max_exclusive,omitempty"`
	Parents       []string `json:"parents,omitempty"`
	Path          string   `json:"path,omitempty"`
}

func qgroupResultOf(g *fs.Qgroup) qgroupResult {
	r := qgroupResult{Qgroupid: format.QgroupName(g.ID), Referenced: g.Rfer, Exclusive: g.Excl, Path: g.Path}
	if g.LimitFlags&format.QgroupLimitMaxRfer != 0 {
		r.MaxReferenced = &g.MaxRfer
	}
	if g.LimitFlags&format.QgroupLimitMaxExcl != 0 {
		r.MaxExclusive = &g.MaxExcl
	}
	for _, p := range g.Parents {
		r.Parents = append(r.Parents, format.QgroupName(p))
	}
	return r
}

func (a verbs) quotaShow() *cobra.Command {
	var asJSON, raw bool
	cmd := &cobra.Command{
		Use:   "show IMAGE",
		Short: "show what each qgroup has and may have",
		Long: `Show lists the qgroups with what they reference and what is theirs alone, the limits of both, the qgroups above, and the
path of the subvolume.`,
		Example: "  btrlab quota show disk.img",
		Args:    cobra.ExactArgs(1),
	}
	app.JSONFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&raw, "raw", false, "show sizes in bytes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.ReadFS(args[0], func(x *fs.FS) error {
			q, err := x.Quotas(a.Task)
			if err != nil {
				return err
			}
			if !q.On && !asJSON {
				return quotaError(qgroup.ErrOff)
			}
			list := make([]qgroupResult, 0, len(q.Groups))
			for i := range q.Groups {
				list = append(list, qgroupResultOf(&q.Groups[i]))
			}
			if asJSON {
				return a.PrintJSON(struct {
					On           bool           `json:"on"`
					Simple       bool           `json:"simple"`
					Inconsistent bool           `json:"inconsistent"`
					Qgroups      []qgroupResult `json:"qgroups"`
				}{q.On, q.Simple, q.Inconsistent || q.Rescan, list})
			}
			if q.Inconsistent || q.Rescan {
				fmt.Fprintf(a.Err, "btrlab: warning: the counts of %s are out of date: run btrlab quota rescan\n", args[0])
			}
			return a.qgroupTable(list, raw)
		})
	}
	return cmd
}

// qgroupTable prints the columns of btrfs qgroup show -pre.
func (a verbs) qgroupTable(list []qgroupResult, raw bool) error {
	size := app.HumanSize
	if raw {
		size = func(n uint64) string { return strconv.FormatUint(n, 10) }
	}
	most := func(n *uint64) string {
		if n == nil {
			return "none"
		}
		return size(*n)
	}
	w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "qgroupid\treferenced\texclusive\tmax referenced\tmax exclusive\tparent\tpath")
	for _, g := range list {
		parents, path := strings.Join(g.Parents, ","), g.Path
		if parents == "" {
			parents = "-"
		}
		if path == "" {
			path = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Qgroupid, size(g.Referenced), size(g.Exclusive), most(g.MaxReferenced), most(g.MaxExclusive), parents, app.Shown(a.Out, path))
	}
	return w.Flush()
}
