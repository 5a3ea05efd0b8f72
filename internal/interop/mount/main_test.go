package mount

import (
	"testing"

	"btrlab/internal/interop"
)

func TestMain(m *testing.M) { interop.Main(m) }
