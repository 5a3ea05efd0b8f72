package kiocb

import (
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/errno"
)

// TestAgain: every value has a place and a reason of its own, is EAGAIN and nothing else, and is no
// allocation as an error: a ring gets it for every request that it punts.
func TestAgain(t *testing.T) {
	seen := map[string]Again{}
	for a := Again(1); a < Agains; a++ {
		if a.Place() == "" || a.Reason() == "" {
			t.Errorf("%d: place %q, reason %q", a, a.Place(), a.Reason())
		}
		if other, ok := seen[a.Error()]; ok {
			t.Errorf("%d and %d both say %q", a, other, a.Error())
		}
		seen[a.Error()] = a
		if len(a.Error()) > 100 {
			t.Errorf("%d: %q does not fit a line", a, a.Error())
		}
		wrapped := fmt.Errorf("write: %w", a)
		var back Again
		if !errors.Is(wrapped, errno.EAGAIN) || errors.Is(wrapped, errno.ENOSPC) || !errors.As(wrapped, &back) || back != a {
			t.Errorf("%d: EAGAIN %v, ENOSPC %v, back %d", a, errors.Is(wrapped, errno.EAGAIN), errors.Is(wrapped, errno.ENOSPC), back)
		}
	}
	if have, want := AgainStable.Error(), "resource temporarily unavailable at prepare_pages: the page is under writeback"; have != want {
		t.Errorf("have %q want %q", have, want)
	}
	var err error
	a := Again(1)
	if n := testing.AllocsPerRun(100, func() { a = a%(Agains-1) + 1; err = a }); n != 0 || err == nil {
		t.Errorf("%v allocations for an error", n)
	}
}
