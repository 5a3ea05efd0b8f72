package explore

import "testing"

// The heap of a search may be nine times what is alive only as long as that is little.
func TestCollectorTarget(t *testing.T) {
	for live, want := range map[uint64]int{0: gcPercent, 8 << 20: gcPercent, 32 << 20: 300, 64 << 20: 100, 100 << 20: gcLeast, 1 << 40: gcLeast} {
		if have := gcTarget(live); have != want {
			t.Errorf("with %d bytes alive the target is %d %%, want %d", live, have, want)
		}
	}
}
