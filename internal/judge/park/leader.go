package park

import (
	"context"
	"fmt"
	"os"
	"time"

	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
)

// Leader leads a kernel through one schedule after the other. It boots the kernel when it is
// needed, and again where one hangs or ends, or its tasks wait for each other. Close it.
type Leader struct {
	// Options are those of Boot. Image is a path of which nothing need be there: the disk is made.
	Options Options
	// Time is how long one schedule may take, and Tries how often one is tried that is lost.
	Time  time.Duration
	Tries int
	// Again, if set, is told of each schedule that is lost, before it is begun again.
	Again func(err error)
	// Took is the time of the last schedule that came to its end, without a boot.
	Took time.Duration

	m *Machine // nil until it is needed
}

// diskSize is that of the machine's disk until a scenario's is put there, in bytes.
const diskSize = 128 << 20

// Lead is Replay. Ctx ends it, and the machine has the life of the first one.
func (l *Leader) Lead(ctx context.Context, s *scenario.Scenario, p *policy.Policy, schedule string) (x *Replayed, err error) {
	for try := 1; ; try++ {
		x, err = l.once(ctx, s, p, schedule)
		switch {
		case err == nil && x.Stuck():
			return x, l.Close()
		case err == nil:
			return x, nil
		case try >= l.Tries || !Lost(err) || ctx.Err() != nil:
			return nil, fmt.Errorf("kernel %s: %w", l.Options.Kernel.Release, err)
		}
		if l.Again != nil {
			l.Again(err)
		}
		_ = l.Close() // it is lost anyway
	}
}

func (l *Leader) once(ctx context.Context, s *scenario.Scenario, p *policy.Policy, schedule string) (*Replayed, error) {
	if l.m == nil {
		if err := makeDisk(l.Options.Image); err != nil {
			return nil, err
		}
		m, err := Boot(ctx, l.Options)
		if err != nil {
			return nil, err
		}
		l.m = m
	}
	one, cancel := context.WithTimeout(ctx, l.Time)
	defer cancel()
	began := time.Now()
	x, err := Replay(one, l.m, l.Options.Image, s, p, schedule)
	l.Took = time.Since(began)
	return x, err
}

func makeDisk(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, diskSize)
}

// Close ends the machine, if there is one.
func (l *Leader) Close() (err error) {
	if l.m != nil {
		err = l.m.Close()
	}
	l.m = nil
	return err
}
