package explore_test

import (
	"fmt"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// Two tasks add one to a word, each by a load and a store. The explorer finds the schedule in which
// an update is lost, and Replay shows it.
func Example() {
	program := func(w *explore.World) {
		x := new(explore.Atomic[int])
		w.Name(x, "x")
		for _, name := range []string{"a", "b"} {
			w.Go(name, func(t *sched.Task) { x.Store(t, x.Load(t)+1) })
		}
		w.Check(func() error { // when both have ended
			if got := x.Peek(); got != 2 {
				return fmt.Errorf("x is %d, want 2", got)
			}
			return nil
		})
	}
	r := explore.Run(explore.Config{}, program)
	fmt.Printf("%s: %s; schedule %q\n", r.Verdict, r.Violation, r.Schedule)
	x := explore.Replay(explore.Config{}, r.Schedule, program)
	fmt.Print(x.Trace())
	// Output:
	// violated: x is 1, want 2; schedule "3:1"
	//    0  0 a            start
	//    1  1 b            start
	//    2  0 a            load x
	//    3 >1 b            load x
	//    4  1 b            atomic x
	//    5  0 a            atomic x
}
