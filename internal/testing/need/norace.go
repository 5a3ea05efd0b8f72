//go:build !race

package need

import "testing"

// LongRaced is Long under the race detector, under which a test takes ten times as long. Without it
// the test runs.
func LongRaced(testing.TB) {}
