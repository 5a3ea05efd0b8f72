package writeback_test

import (
	"os"
	"testing"

	"btrlab/internal/data/pagecache"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

const pageSize = pagecache.PageSize
