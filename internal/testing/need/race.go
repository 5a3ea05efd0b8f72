//go:build race

package need

import "testing"

// LongRaced is Long under the race detector, under which a test takes ten times as long.
func LongRaced(t testing.TB) {
	t.Helper()
	Long(t)
}
