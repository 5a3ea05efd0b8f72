package kernel

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/interop"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/judge/park"
	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
)

func TestZZ(t *testing.T) {
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			program, err := guestProgram()
			interop.Must(t, err)
			ctx, cancel := context.WithTimeout(context.Background(), bootTime*2)
			defer cancel()
			image := filepath.Join(t.TempDir(), "image")
			interop.Sh(t, "truncate", "-s", "128M", image)
			m, err := park.Boot(ctx, park.Options{Kernel: k, Program: program, Args: jobs.Args("tasks"), Image: image})
			interop.Must(t, err)
			defer func() { interop.Must(t, m.Close()) }()
			for _, line := range strings.Split(os.Getenv("SCHED"), ";") {
				name, sched, _ := strings.Cut(strings.TrimSpace(line), " ")
				s, err := scenario.Lookup(name)
				interop.Must(t, err)
				began := time.Now()
				x, err := park.Replay(ctx, m, image, s, policy.MustParse("linux-"+k.Version), sched)
				if err != nil {
					t.Fatal(name, " ", sched, " ", err)
				}
				t.Logf("== %s %q in %s: refused %q, notes %q", name, sched, time.Since(began), x.Refused, x.Notes)
				for _, d := range x.Differences {
					t.Logf("   DIFFERENT: %s", d)
				}
				for _, st := range x.Steps {
					t.Logf("   %+v", st)
				}
			}
		})
	}
}
