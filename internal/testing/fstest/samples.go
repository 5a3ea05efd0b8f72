package fstest

import (
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Samples are file systems by name: those of the test data at top, the path of internal from the
// test, which Linux or a workload has made; and one for each profile that mkfs makes, from made,
// which is given how many devices it has.
func Samples(tb testing.TB, t *sched.Task, top string, made func(p *format.Profile, devices int) []blockdev.Device) map[string][]blockdev.Device {
	tb.Helper()
	all := map[string][]blockdev.Device{}
	for _, dir := range []string{"fs/testdata", "data/treelog/testdata/log"} {
		list, err := filepath.Glob(filepath.Join(top, dir, "*.blocks.gz"))
		if err != nil || len(list) == 0 {
			tb.Fatal(dir, list, err)
		}
		for _, path := range list { // raid5-1, raid5-2: the devices of one
			name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".blocks.gz"), "-")
			if !strings.HasPrefix(name, "raid") {
				name = filepath.Base(path)
			}
			all[name] = append(all[name], Load(tb, t, path))
		}
	}
	for _, p := range format.Profiles() {
		n := max(p.DevsMin, p.DevsMax)
		if p.Striped() {
			n = p.DevsMin + 2
		}
		all["profile "+p.Name] = made(&p, n)
	}
	return all
}
