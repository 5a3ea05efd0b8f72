package sandbox

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"btrlab/internal/sched/explore"
)

// The grading program tells how far it is by a file beside its ledger, because its output is for
// what goes wrong.
const (
	progressSuffix = ".progress"
	progressEvery  = 250 * time.Millisecond
)

// Of is explore.Config.Progress for the search of a workload.
func Of(workload string, tell func(Progress)) func(explore.Progress) {
	if tell == nil {
		return nil
	}
	return func(p explore.Progress) { tell(Progress{workload, p}) }
}

// toFile tells by writing a file, not too often. A file that cannot be written is nothing to
// report.
func toFile(path string) func(Progress) {
	var next time.Duration
	var workload string
	return func(p Progress) {
		if p.Workload == workload && p.Took >= next-progressEvery && p.Took < next {
			return
		}
		workload, next = p.Workload, p.Took+progressEvery
		if b, err := json.Marshal(p); err == nil {
			_ = Replace(path, b)
		}
	}
}

// OnceEach leaves out the names that were told before; nil tells nobody.
func OnceEach(tell func(name, verdict string)) func(name, verdict string) {
	told := map[string]bool{}
	return func(name, verdict string) {
		if tell != nil && !told[name] {
			told[name] = true
			tell(name, verdict)
		}
	}
}

// watchRows calls tell for the rows of the ledger, each time it looks and a last time when the
// function that it returns is called; nil tells nobody.
func watchRows(path string, tell func(name, verdict string)) (unwatch func()) {
	if tell == nil {
		return func() {}
	}
	look := func() {
		if g, err := readLedger(path); err == nil {
			for _, r := range g.Rows {
				tell(r.Name, r.Verdict())
			}
		}
	}
	stop := every(progressEvery, look)
	return func() { stop(); look() }
}

// watchFile calls tell with what toFile writes, until the function that it returns is called.
func watchFile(path string, tell func(Progress)) (unwatch func()) {
	if tell == nil {
		return func() {}
	}
	var last Progress
	return every(progressEvery, func() {
		var p Progress
		if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &p) == nil && p != last {
			last = p
			tell(p)
		}
	})
}

// every calls f again and again until stop is called; f does not run any more when that returns.
func every(d time.Duration, f func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				f()
			}
		}
	})
	return func() { close(done); wg.Wait() }
}
