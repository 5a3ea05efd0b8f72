package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/gantt"
)

// pictures are the flags that draw CPUs and locks of a run in virtual time.
type pictures struct {
	path  string
	spans []time.Duration
	at    time.Duration
	rec   *gantt.Recorder
}

func (p *pictures) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.path, "gantt", "", "with vtime: write a page to this file that shows which task each CPU runs, who has each lock and how many wait")
	outputFlag(cmd, "gantt")
	f.DurationSliceVar(&p.spans, "gantt-span", gantt.DefaultSpans, "with --gantt: also draw a window of this length; several, with commas")
	f.DurationVar(&p.at, "gantt-at", -1, "with --gantt: when the windows begin, since the job began (default: of some windows, the busiest)")
	f.Lookup("gantt-at").DefValue = "0s" // the help says what it is
}

func (p *pictures) check(cmd *cobra.Command, r *runtimeFlags) error {
	for _, name := range []string{"gantt-span", "gantt-at"} {
		if p.path == "" && cmd.Flags().Changed(name) {
			return usagef(cmd, "--%s needs --gantt", name)
		}
	}
	if p.path != "" && r.name != "vtime" {
		return usagef(cmd, "--gantt needs --runtime vtime: only there the clock knows what each CPU does")
	}
	for _, d := range p.spans {
		if d < time.Microsecond {
			return usagef(cmd, "gantt-span %v, want at least 1us", d)
		}
	}
	if cmd.Flags().Changed("gantt-at") && p.at < 0 {
		return usagef(cmd, "gantt-at %v, want at least 0", p.at)
	}
	return nil
}

// record lets the runtime tell what its tasks do, if a picture was asked for.
func (p *pictures) record(r *runtimeFlags) {
	if p.path != "" {
		p.rec = gantt.New(gantt.Options{CPUs: r.cpus, Spans: p.spans, At: p.at})
		r.watch = p.rec
	}
}

// frame keeps what is not the job's, such as the layout of its files, out of the picture.
func (p *pictures) frame(o *fio.Options) {
	if p.rec != nil {
		o.Began, o.Ended = p.rec.Begin, p.rec.End
	}
}

func (p *pictures) save(job, policy string) error {
	if p.rec == nil {
		return nil
	}
	return savePage(p.path, func(w io.Writer) error {
		return p.rec.Write(w, fmt.Sprintf("%s under %s: CPUs and locks", job, policy), strings.Join(os.Args, " "))
	})
}
