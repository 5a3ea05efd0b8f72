package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"btrlab/internal/cli/app"
	"btrlab/internal/testing/need"
)

// A measurement in memory that is interrupted prints the rounds that ended, and does not say that
// anything is committed; without a round there is no result.
func TestInterruptMeasure(t *testing.T) {
	need.Long(t)
	run := func(line string, after time.Duration) (string, error) {
		var out, errw bytes.Buffer
		a := newCmdline(strings.NewReader(""), &out, &errw)
		if after == 0 {
			a.End()
		} else {
			defer time.AfterFunc(after, func() { a.End() }).Stop()
		}
		err := a.run(strings.Fields(line))
		return out.String(), err
	}
	for _, line := range []string{
		"compare --policy locked,unlocked --rounds 500 --runtime-seconds 0.02 --size 4M --jobs 2",
		"serve measure --policy locked,unlocked --rounds 500 --runtime-seconds 0.05 --size 4M",
	} {
		if out, err := run(line, 0); !errors.Is(err, app.ErrNothing) || out != "" {
			t.Errorf("%s, before a round: %v, %q", line, err, out)
		}
		// on a busy machine a round takes longer
		for after := time.Second; ; after *= 2 {
			out, err := run(line, after)
			whole := strings.Contains(out, "unlocked")
			if (errors.Is(err, app.ErrNothing) || !whole) && after < time.Minute {
				continue
			}
			if !errors.Is(err, app.ErrRounds) || !whole {
				t.Errorf("%s: %v, %q", line, err, out)
			}
			break
		}
	}
}
