package measure

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/gantt"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// pictures are the flags that draw CPUs and locks of a run in virtual time.
type pictures struct {
	path  string
	spans []time.Duration
	at    time.Duration
	rec   *gantt.Recorder

	tracePath          string
	traceAt, traceSpan time.Duration
	trace              *gantt.Trace

	all gantt.Watchers // rec and trace, those that there are
}

func (p *pictures) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.path, "gantt", "", "with vtime: write a page to this file that shows which task each CPU runs, who has each lock and how many wait")
	app.OutputFlag(cmd, "gantt")
	f.DurationSliceVar(&p.spans, "gantt-span", gantt.DefaultSpans, "with --gantt: also draw a window of this length; several, with commas")
	f.DurationVar(&p.at, "gantt-at", -1, "with --gantt: when the windows begin, since the job began (default: of some windows, the busiest)")
	f.Lookup("gantt-at").DefValue = "0s" // the help says what it is
	f.StringVar(&p.tracePath, "trace-json", "", "with vtime: write all that CPUs, tasks and locks did in a window to this file, for ui.perfetto.dev or chrome://tracing")
	app.OutputFlag(cmd, "trace-json")
	f.DurationVar(&p.traceAt, "trace-at", 0, "with --trace-json: when the window begins, since the job began")
	f.DurationVar(&p.traceSpan, "trace-span", 20*time.Millisecond, "with --trace-json: how long the window is")
}

func (p *pictures) check(cmd *cobra.Command, r *runtimeFlags) error {
	rules := []app.Rule{
		app.Needs("gantt-span gantt-at", "gantt", "--%s needs --gantt"),
		app.Needs("trace-at trace-span", "trace-json", "--%s needs --trace-json"),
		app.Needs("gantt trace-json", "", "--%s needs --runtime vtime: only there the clock knows what each CPU does").If(r.name != "vtime"),
		app.Not(p.traceAt < 0 || p.traceSpan < time.Microsecond, "trace-at %v and trace-span %v, want at least 0 and 1us", p.traceAt, p.traceSpan),
	}
	for _, d := range p.spans {
		rules = append(rules, app.AtLeast(d, time.Microsecond, "gantt-span %v, want at least 1us"))
	}
	return app.Check(cmd, append(rules, app.AtLeast(p.at, 0, "gantt-at %v, want at least 0").If(cmd.Flags().Changed("gantt-at")))...)
}

// record lets the runtime tell what its tasks do, if a picture was asked for.
func (p *pictures) record(r *runtimeFlags) {
	if p.path != "" {
		p.rec = gantt.New(gantt.Options{CPUs: r.cpus, Spans: p.spans, At: p.at})
		p.all = append(p.all, p.rec)
	}
	if p.tracePath != "" {
		p.trace = gantt.NewTrace(p.traceAt, p.traceSpan)
		p.all = append(p.all, p.trace)
	}
	if len(p.all) > 0 {
		r.watch = p.all
	}
}

// frame keeps what is not the job's, such as the layout of its files, out of the picture.
func (p *pictures) frame(o *fio.Options) {
	if len(p.all) > 0 {
		o.Began, o.Ended = p.all.Begin, p.all.End
	}
}

// rowPictures are the pictures of a comparison, those of each row's first round. It is the watcher
// of the machine and tells the row that runs.
type rowPictures struct {
	from *pictures
	cpus int
	rows map[string]*pictures
	now  gantt.Watchers // of the row that runs; nil between runs and after the first round
}

// ofRows are the pictures of a comparison, nil if none was asked for.
func (p *pictures) ofRows(r *runtimeFlags) *rowPictures {
	if p.path == "" && p.tracePath == "" {
		return nil
	}
	l := &rowPictures{from: p, cpus: r.cpus, rows: map[string]*pictures{}}
	r.watch = l
	return l
}

// frame tells of the runs of a comparison.
func (l *rowPictures) frame(o *experiment.Options) {
	if l == nil {
		return
	}
	o.Began = func(row string, round int, now int64) {
		if round > 1 {
			return
		}
		own := &pictures{path: rowFile(l.from.path, row), spans: l.from.spans, at: l.from.at, tracePath: rowFile(l.from.tracePath, row),
			traceAt: l.from.traceAt, traceSpan: l.from.traceSpan}
		own.record(&runtimeFlags{cpus: l.cpus})
		l.rows[row], l.now = own, own.all
		l.now.Begin(now)
	}
	o.Ended = func(now int64) {
		l.now.End(now)
		l.now = nil
	}
}

// save writes the pictures of the rows and gives their names.
func (l *rowPictures) save(job string) (names []string, err error) {
	if l == nil {
		return nil, nil
	}
	for _, row := range slices.Sorted(maps.Keys(l.rows)) {
		p := l.rows[row]
		err = errors.Join(err, p.save(job, row))
		for _, name := range []string{p.path, p.tracePath} {
			if name != "" {
				names = append(names, name)
			}
		}
	}
	return names, err
}

// rowFile is the name of a row's file: that of the flag, with the row before its kind.
func rowFile(path, row string) string {
	if path == "" {
		return ""
	}
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + strings.NewReplacer("/", "-", " ", "-").Replace(row) + ext
}

func (l *rowPictures) Ran(t *sched.Task, cpu int, from, to int64)  { l.now.Ran(t, cpu, from, to) }
func (l *rowPictures) Spun(t *sched.Task, cpu int, from, to int64) { l.now.Spun(t, cpu, from, to) }
func (l *rowPictures) Held(t *sched.Task, id vtime.LockID, from, to int64) {
	l.now.Held(t, id, from, to)
}
func (l *rowPictures) Waited(t *sched.Task, id vtime.LockID, from, to int64) {
	l.now.Waited(t, id, from, to)
}

func (p *pictures) save(job, policy string) error {
	if p.trace != nil {
		err := savePage(p.tracePath, func(w io.Writer) error {
			return p.trace.Write(w, job+" under "+policy, strings.Join(os.Args, " "))
		})
		if err != nil {
			return err
		}
	}
	if p.rec == nil {
		return nil
	}
	return savePage(p.path, func(w io.Writer) error {
		return p.rec.Write(w, fmt.Sprintf("%s under %s: CPUs and locks", job, policy), strings.Join(os.Args, " "))
	})
}
