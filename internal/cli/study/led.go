package study

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/judge/park"
	"btrlab/internal/judge/park/reproducer"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/study/scenario"
)

// led is a kernel that is booted to be led through schedules, as --kernel of replay and museum and
// --confirm of explore name it.
type led struct {
	verbs
	version string          // of the kernel, as "6.1"
	ctx     context.Context // of the machines; an interrupt ends it
	end     context.CancelFunc
	dir     string       // of the disk; "" is none
	leader  *park.Leader // nil if there is a recording
	// recording is what the kernel did before, which stands in its place; nil is none.
	recording *park.Recording
}

// leadTime is how long a kernel may take for one schedule, which takes it a second or three. A run
// that hangs, or whose guest dies, is tried so many times: see labs/reference 13.10.
const leadTime, leadTries = 40 * time.Second, 3

// lead finds the kernel of a flag, or with recorded what it did. Call close.
func (a verbs) lead(version string, recorded bool) (l *led, err error) {
	l = &led{verbs: a, version: version}
	if recorded {
		l.recording, err = park.Recorded(version)
		return l, err
	}
	kernel, err := kernels.Find(version)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if l.dir, err = os.MkdirTemp("", "btrlab-led"); err != nil {
		return nil, err
	}
	l.version = kernel.Version
	l.ctx, l.end = a.Context(context.Background())
	l.leader = &park.Leader{Time: leadTime, Tries: leadTries,
		Options: park.Options{Kernel: kernel, Program: program, Args: jobs.Args("tasks"), Image: filepath.Join(l.dir, "disk")}}
	return l, nil
}

func (l *led) close() error {
	if l.leader == nil {
		return nil
	}
	defer l.end()
	return errors.Join(l.leader.Close(), os.RemoveAll(l.dir))
}

// through leads the kernel through a schedule of a scenario under a policy, or finds what it did.
// An interrupt ends it, and the machine with it.
func (l *led) through(s *scenario.Scenario, p *policy.Policy, schedule string) (x *park.Replayed, err error) {
	if r := l.recording; r != nil {
		if x, err = r.Find(s, p, schedule); err == nil && x == nil {
			err = fmt.Errorf("kernel %s: %s '%s' under %s is not among its %s that are recorded; without --recorded it is booted", r.Release, s.Name, schedule, p.Name,
				prose.Count(len(r.Runs), "schedule"))
		}
		return x, err
	}
	x, err = l.leader.Lead(l.ctx, s, p, schedule)
	if stop := l.Interrupted(); err != nil && stop != nil {
		return nil, stop
	}
	return x, err
}

// replay leads the kernel through one schedule of a scenario, and prints what it does.
func (l *led) replay(s *scenario.Scenario, p *policy.Policy, schedule string, asJSON bool) (*park.Replayed, error) {
	if p.Own != nil {
		return nil, fmt.Errorf("policy %s: %w", p.Name, errOwn)
	}
	x, err := l.through(s, p, schedule)
	if err != nil {
		return nil, err
	}
	if asJSON {
		return x, l.PrintJSON(x)
	}
	fmt.Fprintln(l.Out)
	return x, x.WriteText(l.Out, s.TaskNames(), l.Width())
}

// failed reports whether the kernel breaks what the engine breaks, or ends otherwise where the
// engine comes to an end: exit code 1.
func failed(x *park.Replayed) bool {
	o := x.Outcome()
	return o == park.Broken || o == park.Other
}

// confirm leads a kernel through the schedule that a search has found.
func (a verbs) confirm(kernel string, s *scenario.Scenario, p *policy.Policy, schedule string) (x *park.Replayed, err error) {
	l, err := a.lead(kernel, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if p.Own != nil {
		return nil, fmt.Errorf("policy %s: %w", p.Name, errOwn)
	}
	return l.through(s, p, schedule)
}

// replayLed leads a kernel through one schedule.
func (a verbs) replayLed(kernel string, recorded bool, s *scenario.Scenario, p *policy.Policy, schedule string, asJSON bool) (_ *park.Replayed, err error) {
	l, err := a.lead(kernel, recorded)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	return l.replay(s, p, schedule, asJSON)
}

// recordedFlag adds --recorded.
func recordedFlag(cmd *cobra.Command, recorded *bool) {
	cmd.Flags().BoolVar(recorded, "recorded", false, "with --kernel VERSION: what it did when it was recorded")
}

// checkRecorded reports whether --recorded has the kernel that it needs, and not the folder that
// it has too little for.
func checkRecorded(cmd *cobra.Command, recorded bool, kernel, folder string) error {
	switch {
	case recorded && kernel == "":
		return app.Usagef(cmd, "have --recorded, want --kernel VERSION with it: which one")
	case recorded && folder != "":
		return app.Usagef(cmd, "have --recorded and --reproducer, want one: a reproducer is written of a kernel that was led")
	}
	return nil
}

// reproducerFlag adds --reproducer.
func reproducerFlag(cmd *cobra.Command, folder *string) {
	cmd.Flags().StringVar(folder, "reproducer", "", "also write this folder, with which a kernel is led through the schedule without btrlab")
}

// checkReproducer reports whether the folder of --reproducer can be written, before a kernel is
// booted for it.
func checkReproducer(cmd *cobra.Command, folder, kernel string, s *scenario.Scenario) error {
	if folder == "" {
		return nil
	}
	if kernel == "" {
		return app.Usagef(cmd, "have --reproducer alone, want --kernel, too: its README says what that kernel did")
	}
	return reproducer.Check(folder, s)
}

// errOwn says what no kernel can be led through.
var errOwn = errors.New("no kernel has a policy of your own, so none is led through its schedules")

// checkExhibit reports whether the folder of --reproducer can be written for the exhibit with a
// number.
func (v *visit) checkExhibit(number string) error {
	if v.folder == "" {
		return nil
	}
	i := slices.IndexFunc(park.Exhibits, func(e park.Exhibit) bool { return fmt.Sprint(e.Number) == number })
	if i < 0 {
		return app.Usagef(v.cmd, "have --reproducer without the number of an exhibit, want one of %s", ledNumbers())
	}
	s, err := scenario.Lookup(park.Exhibits[i].Museum().Scenario)
	if err != nil {
		return err
	}
	return checkReproducer(v.cmd, v.folder, v.kernel, s)
}

// reproduce writes the folder of what a kernel was led through, and says where to begin.
func (a verbs) reproduce(folder string, asJSON bool, x *reproducer.Subject) error {
	err := reproducer.Write(folder, x)
	if err == nil && !asJSON {
		fmt.Fprintf(a.Out, "written: %s says how to run it\n", filepath.Join(folder, "README"))
	}
	return err
}

// leadMuseum leads a kernel through an exhibit, or through all that any kernel was led through.
func (v *visit) leadMuseum(version, number string) (err error) {
	l, err := v.lead(version, v.recorded)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	shown, breaks := []ledExhibit(nil), false
	for i := range park.Exhibits {
		e := &park.Exhibits[i]
		if number != "" && number != fmt.Sprint(e.Number) {
			continue
		}
		s, p, err := e.Asks()
		if err != nil {
			return err
		}
		x, err := l.through(s, p, e.Schedule)
		if err != nil {
			return err
		}
		shown = append(shown, ledExhibit{e.Number, x})
		breaks = breaks || failed(x)
		if known := slices.Contains(e.Broken, l.version); x.Breaks() != known && slices.Contains(park.RecordedVersions, l.version) {
			v.Note(fmt.Sprintf("exhibit %d: kernel %s does otherwise than is known of it", e.Number, l.version))
		}
		if !v.asJSON {
			if err := v.printLed(e, s, x); err != nil {
				return err
			}
		}
		if m := e.Museum(); v.folder != "" {
			about := reproducer.Subject{Title: m.Title + " (" + m.Source + ")", Story: m.Story, Rule: m.Rule, Scenario: s, Policy: p, Led: x}
			if err := v.reproduce(v.folder, v.asJSON, &about); err != nil {
				return err
			}
		}
	}
	switch {
	case shown == nil:
		return app.Usagef(v.cmd, "exhibit %s: no kernel was led through it, want one of %s", number, ledNumbers())
	case v.asJSON:
		err = v.PrintJSON(shown)
	}
	if err == nil && breaks {
		err = app.ErrFound
	}
	return err
}

// ledExhibit is what a kernel did in an exhibit.
type ledExhibit struct {
	Exhibit int `json:"exhibit"` // its number
	*park.Replayed
}

// printLed prints an exhibit in a kernel.
func (v *visit) printLed(e *park.Exhibit, s *scenario.Scenario, x *park.Replayed) error {
	m := e.Museum()
	verdict := "keeps"
	switch {
	case x.Breaks():
		verdict = "breaks"
	case x.Refused != "":
		verdict = "refuses the order"
	case x.NoRequest():
		verdict = "has no such request"
	}
	v.Say(fmt.Sprintf("%3d  ", e.Number), fmt.Sprintf("%s (%s), policy %s: Linux %s %s", m.Title, m.Source, m.Broken, x.Release, verdict))
	return x.WriteText(v.Out, s.TaskNames(), v.Width())
}

// ledNumbers are the exhibits that kernels are led through.
func ledNumbers() string {
	list := make([]string, 0, len(park.Exhibits))
	for i := range park.Exhibits {
		list = append(list, fmt.Sprint(park.Exhibits[i].Number))
	}
	return prose.List(list)
}
