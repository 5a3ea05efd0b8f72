// Command zztmp is a scratch driver, not committed.
package main

import (
	"fmt"
	"os"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
)

func main() {
	t := sched.NewTask("x")
	for _, p := range os.Args[1:] {
		d, err := blockdev.Open(p, blockdev.ReadOnly)
		if err != nil {
			fmt.Println(err)
			continue
		}
		s := time.Now()
		r, err := check.Check(t, d, check.Options{})
		fmt.Println(p, "clean", r.Clean, "err", err, time.Since(s), fmt.Sprintf("%+v", r.Stats))
		for i, f := range r.Findings {
			if i > 40 {
				break
			}
			fmt.Println("  ", f)
		}
		for _, n := range r.Notes {
			fmt.Println("   note:", n)
		}
		d.Close()
	}
}
