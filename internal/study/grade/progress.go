package grade

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"btrlab/internal/sched/explore"
)

// The grading program tells how far it is by a file beside its ledger, because its output is for what goes wrong.
const (
	progressSuffix = ".progress"
	progressEvery  = 250 * time.Millisecond
)

// of is explore.Config.Progress for the search of a workload.
func of(workload string, tell func(Progress)) func(explore.Progress) {
	if tell == nil {
		return nil
	}
	return func(p explore.Progress) { tell(Progress{workload, p}) }
}

// toFile tells by writing a file, not too often. A file that cannot be written is nothing to report.
func toFile(path string) func(Progress) {
	var next time.Duration
	var workload string
	return func(p Progress) {
		if p.Workload == workload && p.Took >= next-progressEvery && p.Took < next {
			return
		}
		workload, next = p.Workload, p.Took+progressEvery
		if b, err := json.Marshal(p); err == nil {
			_ = replace(path, b)
		}
	}
}

// watchFile calls tell with what toFile writes, until the function that it returns is called.
func watchFile(path string, tell func(Progress)) (unwatch func()) {
	if tell == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		var last Progress
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			var p Progress
			if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &p) == nil && p != last {
				last = p
				tell(p)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}
