package vtime

import (
	"strings"
	"testing"

	"btrlab/internal/sched"
)

// TestChargeNegative: nobody gets processor time back; a task that asked for it would beat any
// ratio.
func TestChargeNegative(t *testing.T) {
	var got any
	_, err := Run(Machine{CPUs: 1}, func(k *sched.Task) {
		defer func() { got = recover() }()
		k.Charge(-18_000)
	})
	if text, ok := got.(string); !ok || !strings.HasSuffix(text, "is charged -18µs") {
		t.Errorf("have %v, %v", got, err)
	}
}
