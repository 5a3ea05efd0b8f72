package repair

import (
	"os"
	"testing"

	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}
