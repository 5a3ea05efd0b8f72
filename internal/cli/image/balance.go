package image

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/meta/relocation"
	"btrlab/internal/script"
)

func (a verbs) balance() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "balance",
		Short: "move chunks, or give them another profile",
		Long: `Balance writes what is in chunks anew, into other chunks, and gives the place of the old ones back: few full chunks come
of many that are nearly empty, data moves to devices that were added, and with convert another profile takes the place of the old one.
All of it is done in commits, each of which is a whole file system. A balance that ends early, by a signal, an error or a crash, is
noted in the image: resume goes on with it, and so does Linux at its next mount.`,
		Example: `  btrlab balance start --data=usage=50 disk.img
  btrlab balance start --data=convert=raid1 a.img --device b.img
  btrlab balance resume disk.img`,
	}
	cmd.AddCommand(a.balanceStart(), a.balanceResume(), a.balanceCancel(), a.balanceStatus())
	return cmd
}

// filters is the flag with the filters of a type of chunks.
type filters struct {
	format.BalanceArgs
	on   bool
	text string
}

func (f *filters) String() string { return f.text }
func (f *filters) Type() string   { return "filters" }

// Set reads filters as btrfs balance start has them.
func (f *filters) Set(s string) error {
	f.on, f.text = true, s
	if s == "all" {
		return nil
	}
	for _, word := range strings.Split(s, ",") {
		name, value, _ := strings.Cut(word, "=")
		set, ok := filterNames[name]
		if !ok {
			return fmt.Errorf("filter %q, want one of %s", word, strings.Join(sortedNames(filterNames), ", "))
		}
		if err := set(&f.BalanceArgs, value); err != nil {
			return fmt.Errorf("filter %q, want %s: %v", word, name, err)
		}
	}
	switch {
	case f.Flags&format.BalanceSoft != 0 && f.Flags&format.BalanceConvert == 0:
		return errors.New("filter soft is for convert alone")
	case f.Flags&format.BalanceDrange != 0 && f.Flags&format.BalanceDevid == 0:
		return errors.New("filter drange wants devid")
	}
	return nil
}

func sortedNames[V any](m map[string]V) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// filterNames reads the value of each filter.
var filterNames = map[string]func(a *format.BalanceArgs, v string) error{
	"profiles": func(a *format.BalanceArgs, v string) (err error) {
		a.Flags |= format.BalanceProfiles
		for _, name := range strings.Split(v, "|") {
			p, err := extended(name)
			if err != nil {
				return err
			}
			a.Profiles |= p
		}
		return nil
	},
	"usage": func(a *format.BalanceArgs, v string) error {
		if n, err := strconv.ParseUint(v, 10, 32); err == nil && n <= 100 {
			a.Flags, a.UsageMax = a.Flags|format.BalanceUsage, uint32(n)
			return nil
		}
		lo, hi, err := rangeOf(v, 100)
		a.Flags, a.UsageMin, a.UsageMax = a.Flags|format.BalanceUsageRange, uint32(lo), uint32(hi)
		return err
	},
	"devid": func(a *format.BalanceArgs, v string) (err error) {
		a.Flags |= format.BalanceDevid
		a.Devid, err = strconv.ParseUint(v, 10, 64)
		return err
	},
	"drange": func(a *format.BalanceArgs, v string) (err error) {
		a.Flags |= format.BalanceDrange
		a.Pstart, a.Pend, err = rangeOf(v, math.MaxInt64)
		return err
	},
	"vrange": func(a *format.BalanceArgs, v string) (err error) {
		a.Flags |= format.BalanceVrange
		a.Vstart, a.Vend, err = rangeOf(v, math.MaxInt64)
		return err
	},
	"limit": func(a *format.BalanceArgs, v string) error {
		if n, err := strconv.ParseUint(v, 10, 32); err == nil {
			a.Flags, a.LimitMax = a.Flags|format.BalanceLimit, uint32(n)
			return nil
		}
		lo, hi, err := rangeOf(v, math.MaxUint32)
		a.Flags, a.LimitMin, a.LimitMax = a.Flags|format.BalanceLimitRange, uint32(lo), uint32(hi)
		return err
	},
	"stripes": func(a *format.BalanceArgs, v string) error {
		lo, hi, err := rangeOf(v, math.MaxUint32)
		a.Flags, a.StripesMin, a.StripesMax = a.Flags|format.BalanceStripesRange, uint32(lo), uint32(hi)
		return err
	},
	"convert": func(a *format.BalanceArgs, v string) (err error) {
		a.Flags |= format.BalanceConvert
		a.Target, err = extended(v)
		return err
	},
	"soft": func(a *format.BalanceArgs, v string) error {
		a.Flags |= format.BalanceSoft
		if v != "" {
			return errors.New("no value")
		}
		return nil
	},
}

// extended is a profile by its name.
func extended(name string) (uint64, error) {
	var names []string
	for _, p := range format.Profiles() {
		if p.Name == name {
			return format.ExtendedProfile(p.Flag), nil
		}
		names = append(names, p.Name)
	}
	return 0, fmt.Errorf("profile %q, want one of %s", name, strings.Join(names, ", "))
}

// rangeOf reads A..B, where either may be missing, or one number for both; B is at most top.
func rangeOf(v string, top uint64) (lo, hi uint64, err error) {
	if v == "" {
		return 0, 0, errors.New("a number or a range")
	}
	from, to, two := strings.Cut(v, "..")
	if !two {
		to = from
	}
	hi = top
	if from != "" {
		if lo, err = sizeOf(from); err != nil {
			return 0, 0, err
		}
	}
	if to != "" {
		if hi, err = sizeOf(to); err != nil {
			return 0, 0, err
		}
	}
	if v == ".." || lo > hi || hi > top {
		return 0, 0, fmt.Errorf("range %q, want FROM..TO, at most %d", v, top)
	}
	return lo, hi, nil
}

func sizeOf(s string) (uint64, error) {
	n, err := script.ParseSize(s)
	return uint64(n), err
}

// FiltersLong gives the filters of btrfs balance start, which follow their letter at once
// (-dusage=50), the name that reads them.
func FiltersLong(args []string) []string {
	if len(args) < 2 || args[0] != "balance" || args[1] != "start" {
		return args
	}
	names := map[byte]string{'d': "data", 'm': "metadata", 's': "system"}
	out := slices.Clone(args)
	for i, s := range out[2:] {
		if s == "--" {
			break
		}
		if attachedFilters.MatchString(s) {
			out[2+i] = "--" + names[s[1]] + "=" + s[2:]
		}
	}
	return out
}

var attachedFilters = regexp.MustCompile(`^-[dms](profiles|usage|devid|drange|vrange|limit|stripes|convert|soft)\b`)

func (a verbs) balanceStart() *cobra.Command {
	var data, meta, sys filters
	var force bool
	cmd := &cobra.Command{
		Use:   "start IMAGE",
		Short: "start a balance",
		Long: `Start moves the chunks of the types that are named, all without one. Filters after a type say which of its chunks:
profiles=raid1|single, usage=50 (less than so many percent used; usage=0 is empty chunks), usage=10..50, devid=2, drange=0..10G of that
device, vrange=A..B of the file system, limit=3 chunks, stripes=2..4; convert=raid1 gives new chunks that profile, and soft leaves those
that have it. What is asked of metadata is done to system chunks, too.`,
		Example: `  btrlab balance start --data=usage=0 disk.img
  btrlab balance start --metadata=convert=dup,soft disk.img`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	for _, x := range []struct {
		v           *filters
		name, short string
		text        string
	}{{&data, "data", "d", "data"}, {&meta, "metadata", "m", "metadata and system"}, {&sys, "system", "s", "system"}} {
		f.VarP(x.v, x.name, x.short, "chunks of "+x.text+", those that all `filters` take")
		f.Lookup(x.name).NoOptDefVal = "all"
	}
	f.BoolVarP(&force, "force", "f", false, "also to a profile without redundancy, of metadata, and of system chunks alone")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if sys.on && !force {
			return app.Usagef(cmd, "--system alone wants --force")
		}
		return a.balancing(args[0], func(x *fs.FS, each func(relocation.Progress)) (relocation.Moved, error) {
			item := balanceItem(data, meta, sys, force)
			return x.Balance(a.Task, &item, a.stopped, each)
		})
	}
	return cmd
}

// balanceItem is what the flags ask for.
func balanceItem(data, meta, sys filters, force bool) format.BalanceItem {
	if !data.on && !meta.on && !sys.on {
		data.on, meta.on, sys.on = true, true, true
	}
	if meta.on {
		sys = meta
	}
	b := format.BalanceItem{Data: data.BalanceArgs, Meta: meta.BalanceArgs, Sys: sys.BalanceArgs}
	for _, x := range []struct {
		on   bool
		flag uint64
	}{{data.on, format.BalanceData}, {meta.on, format.BalanceMetadata}, {sys.on, format.BalanceSystem}, {force, format.BalanceForce}} {
		if x.on {
			b.Flags |= x.flag
		}
	}
	return b
}

// stopped reports whether the verb was told to end.
func (a verbs) stopped() bool { return a.Interrupted() != nil }

// balancing runs a balance and says what it did.
func (a verbs) balancing(image string, do func(x *fs.FS, each func(relocation.Progress)) (relocation.Moved, error)) error {
	bar := a.NewBar("balance", true)
	defer bar.Done()
	return a.WriteFS(image, func(x *fs.FS) error {
		moved, err := do(x, func(p relocation.Progress) {
			bar.Set(fmt.Sprintf("chunk at %d", p.Chunk.Logical), uint64(p.Done), uint64(p.Considered))
		})
		switch {
		case errors.Is(err, relocation.ErrStopped):
			a.Note(fmt.Sprintf("%d chunks were moved; 'btrlab balance resume %s' goes on, and so does Linux at its next mount", moved.Chunks, image))
			return a.Interrupted()
		case err != nil && moved.Of > 0:
			a.Note(fmt.Sprintf("%d chunks were moved before; 'btrlab balance resume' goes on when there is room, 'btrlab balance cancel' leaves it so", moved.Chunks))
			return err
		case err != nil:
			return err
		}
		_, err = fmt.Fprintf(a.Out, "Done, had to relocate %d out of %d chunks\n", moved.Chunks, moved.Of)
		return err
	})
}

func (a verbs) balanceResume() *cobra.Command {
	return &cobra.Command{
		Use:   "resume IMAGE",
		Short: "go on with a balance that ended early",
		Long: `Resume goes on with the balance that is noted in the image, one of Linux's, too. What has the profile already that was
asked for is left, and of a balance without filters what is 90 percent full.`,
		Example: "  btrlab balance resume disk.img",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.balancing(args[0], func(x *fs.FS, each func(relocation.Progress)) (relocation.Moved, error) {
				return x.ResumeBalance(a.Task, a.stopped, each)
			})
		},
	}
}

func (a verbs) balanceCancel() *cobra.Command {
	return &cobra.Command{
		Use:     "cancel IMAGE",
		Short:   "forget a balance that ended early; what was moved stays moved",
		Example: "  btrlab balance cancel disk.img",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WriteFS(args[0], func(x *fs.FS) error { return x.CancelBalance(a.Task) })
		},
	}
}

func (a verbs) balanceStatus() *cobra.Command {
	return &cobra.Command{
		Use:     "status IMAGE",
		Short:   "say whether a balance ended early, and what it was to do",
		Example: "  btrlab balance status disk.img",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ReadFS(args[0], func(x *fs.FS) error {
				b, ok, err := x.BalanceStatus(a.Task)
				if err != nil {
					return err
				}
				if !ok {
					_, err = fmt.Fprintf(a.Out, "No balance found on '%s'\n", args[0])
					return err
				}
				fmt.Fprintf(a.Out, "Balance on '%s' is paused\n", args[0])
				for _, x := range []struct {
					name string
					flag uint64
					args *format.BalanceArgs
				}{{"data", format.BalanceData, &b.Data}, {"metadata", format.BalanceMetadata, &b.Meta}, {"system", format.BalanceSystem, &b.Sys}} {
					if b.Flags&x.flag != 0 {
						fmt.Fprintf(a.Out, "  %s: %s\n", x.name, filterText(x.args))
					}
				}
				return nil
			})
		},
	}
}

// filterText is the filters as start takes them.
func filterText(a *format.BalanceArgs) string {
	var words []string
	add := func(flag uint64, format string, v ...any) {
		if a.Flags&flag != 0 {
			words = append(words, fmt.Sprintf(format, v...))
		}
	}
	add(format.BalanceProfiles, "profiles=%s", profilesText(a.Profiles))
	add(format.BalanceUsage, "usage=%d", a.UsageMax)
	add(format.BalanceUsageRange, "usage=%d..%d", a.UsageMin, a.UsageMax)
	add(format.BalanceDevid, "devid=%d", a.Devid)
	add(format.BalanceDrange, "drange=%d..%d", a.Pstart, a.Pend)
	add(format.BalanceVrange, "vrange=%d..%d", a.Vstart, a.Vend)
	add(format.BalanceLimit, "limit=%d", a.LimitMax)
	add(format.BalanceLimitRange, "limit=%d..%d", a.LimitMin, a.LimitMax)
	add(format.BalanceStripesRange, "stripes=%d..%d", a.StripesMin, a.StripesMax)
	add(format.BalanceConvert, "convert=%s", profilesText(a.Target))
	add(format.BalanceSoft, "soft")
	if len(words) == 0 {
		return "all"
	}
	return strings.Join(words, ",")
}

func profilesText(extended uint64) string {
	var names []string
	for _, p := range format.Profiles() {
		if extended&format.ExtendedProfile(p.Flag) != 0 {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, "|")
}
