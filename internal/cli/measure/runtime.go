package measure

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// runtimeFlags choose the runtime of a measurement, goroutines or simulated processors, and what
// both runtimes do by the clock.
type runtimeFlags struct {
	name      string
	cpus      int
	seed      uint64
	costs     []string
	costFile  string
	handoff   time.Duration
	locks     string
	noPayload bool
	commit    time.Duration
	watch     vtime.Watcher
}

func (r *runtimeFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.name, "runtime", "real", "real (goroutines and the clock) or vtime (simulated CPUs, the same figures every time)")
	f.IntVar(&r.cpus, "cpus", vtime.DefaultCPUs, "simulated CPUs, with vtime")
	f.Uint64Var(&r.seed, "seed", 0, "seed of the random offsets and of the device model; 0 is theirs")
	f.StringVar(&r.costFile, "costs", "", "table of costs, with vtime: a file that btrlab calibrate has written")
	f.StringArrayVar(&r.costs, "cost", nil, "change an entry of the cost table, as name=nanoseconds, or cpu=factor for all; may be repeated")
	f.DurationVar(&r.handoff, "handoff", vtime.DefaultHandoff, "how long the first waiter of a lock is passed over, with vtime, where the policy hands the lock over (i_rwsem: RWSEM_HANDOFF); negative is never")
	f.StringVar(&r.locks, "locks", "linux", "how tasks wait for locks, with vtime: as in linux, or as in go, as those of the real runtime but i_rwsem do")
	f.BoolVar(&r.noPayload, "no-payload", false, "keep no file data: large files need little memory, contents are not verified; with vtime, on an image in memory")
	f.DurationVar(&r.commit, "commit-interval", 0, "age at which a transaction commits by itself, as with the mount option commit, which is 30s by default; 0 is never")
	f.Lookup("commit-interval").DefValue = "never"
	app.CompleteFixed(cmd, "runtime", []string{"real", "vtime"})
	app.CompleteFixed(cmd, "locks", []string{"linux", "go"})
}

func (r *runtimeFlags) check(cmd *cobra.Command, image string) error {
	err := app.Check(cmd,
		app.OneOf(r.name, []string{"real", "vtime"}, "runtime %q, want real or vtime"),
		app.OneOf(r.locks, []string{"linux", "go"}, "locks %q, want linux or go"),
		app.Within(r.cpus, 1, 4096, "%d cpus, want 1 to 4096"),
		app.Not(r.noPayload && (r.name != "vtime" || image != ""), "--no-payload needs --runtime vtime and an image in memory"),
		app.AtLeast(r.commit, 0, "commit-interval %v, want 0 for never, or more"),
		app.Needs("cpus cost costs handoff locks", "", "--%s needs --runtime vtime").If(r.name != "vtime"))
	if err != nil {
		return err
	}
	t := cost.Default()
	if err := r.setCosts(&t); err != nil {
		return app.Usagef(cmd, "--cost %v", err)
	}
	_, err = r.table()
	return err
}

// processors is how many processors the runtime has.
func (r *runtimeFlags) processors() int {
	if r.name == "vtime" {
		return r.cpus
	}
	return runtime.GOMAXPROCS(0)
}

// benchstatFlag adds --benchstat to cmd.
func benchstatFlag(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "benchstat", false, "print lines as go test prints benchmarks, for benchstat -col /policy: one for each round")
}

// machine is what a page calls the machine of the measurement, nil for this one.
func (r *runtimeFlags) machine() [][2]string {
	if r.name != "vtime" {
		return nil
	}
	costs := "the default table"
	if r.costFile != "" {
		costs = r.costFile
	}
	if len(r.costs) > 0 {
		costs += ", with " + strings.Join(r.costs, ", ")
	}
	return [][2]string{{"Processors", fmt.Sprintf("%d, simulated", r.cpus)}, {"Clock", "virtual: the same figures on every machine"},
		{"Costs", costs}, {"Locks", "as in " + r.locks}}
}

// loadCosts takes the costs of a file into t.
func loadCosts(t *cost.Table, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := t.Load(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (r *runtimeFlags) table() (cost.Table, error) {
	t := cost.Default()
	if r.costFile != "" {
		if err := loadCosts(&t, r.costFile); err != nil {
			return t, err
		}
	}
	return t, r.setCosts(&t)
}

// setCosts does what --cost says.
func (r *runtimeFlags) setCosts(t *cost.Table) error {
	for _, kv := range r.costs {
		k, v, _ := strings.Cut(kv, "=")
		var n float64
		if _, err := fmt.Sscanf(v, "%g", &n); err != nil {
			return fmt.Errorf("%s: want name=number", kv)
		}
		if err := t.Set(k, n); err != nil {
			return fmt.Errorf("%s: %w", kv, err)
		}
	}
	return nil
}

// config adds the flags to a rig; largest is the largest file of the job, in bytes.
func (r *runtimeFlags) config(cfg rig.Config, largest int64) rig.Config {
	cfg.Seed, cfg.NoPayload, cfg.CommitInterval = r.seed, r.noPayload, r.commit
	if cfg.Device == "" && cfg.Size == 0 { // the image in memory has room for the job
		cfg.Size = max(rig.DefaultSize, largest+largest/4)
		if cfg.Files > 0 || cfg.Kind == rig.Cow { // old versions stay until a commit frees them
			cfg.Size = max(rig.DefaultSize, 3*largest+rig.DefaultSize/2)
		}
	}
	return cfg
}

// seedJob gives the job's random offsets the seed.
func (r *runtimeFlags) seedJob(cmd *cobra.Command, jf *fio.JobFile) error {
	if r.seed == 0 {
		return nil
	}
	if err := jf.Set("randseed", fmt.Sprint(r.seed)); err != nil {
		return app.Usagef(cmd, "--seed %d: %v", r.seed, err)
	}
	return nil
}

// largestFile is the bytes that a job's largest file needs.
func largestFile(jf *fio.JobFile) int64 {
	n := int64(0)
	for _, j := range jf.Jobs {
		n = max(n, j.FileSizeMax, j.Offset+j.Size)
	}
	return n
}

// allFiles is the bytes that the files of all tasks need at most.
func allFiles(jf *fio.JobFile) int64 {
	n := int64(0)
	for _, j := range jf.Jobs {
		each := j.Files()
		if j.Filenames == nil {
			each *= j.NumJobs
		}
		if j.FileSizeMax > 0 {
			n += int64(each) * j.FileSizeMax
		} else {
			n += int64(each) * (j.Offset + j.Size/int64(j.Files()))
		}
	}
	return n
}

// on runs f with a.Task a task of the runtime.
func (a verbs) on(r *runtimeFlags, f func() error) error {
	if r.name != "vtime" {
		return f()
	}
	costs, err := r.table()
	if err != nil {
		return err
	}
	_, err = a.simulate(vtime.Machine{CPUs: r.cpus, Costs: &costs, Handoff: r.handoff, GoLocks: r.locks == "go", Watch: r.watch}, f)
	return err
}

// simulate runs f with a.Task a task of machine m.
func (a verbs) simulate(m vtime.Machine, f func() error) (vtime.Stats, error) {
	was := a.Task
	defer func() { a.Task = was }()
	var err error
	st, verr := vtime.Run(m, func(t *sched.Task) {
		a.Task = t
		err = f()
	})
	if err == nil {
		err = verr
	}
	return st, err
}
