package kit_test

import (
	"fmt"

	"btrlab/labs/kit"
)

// Two tasks add one to a word, in two steps each. Explore finds the schedule in which an increment
// is lost, and Draw shows it.
func Example() {
	program := func(w *kit.World) {
		x := new(kit.Word)
		w.Name(x, "x")
		for _, name := range []string{"a", "b"} {
			w.Go(name, func(t *kit.Task) { x.Store(t, x.Load(t)+1) })
		}
		w.Check(func() error {
			if x.Value() != 2 {
				return fmt.Errorf("x is %d, want 2", x.Value())
			}
			return nil
		})
	}
	r := kit.Explore(program)
	fmt.Println(r)
	fmt.Print(kit.Draw(program, r.Schedule))
	// Output:
	// broken by schedule "3:1": x is 1, want 2
	//    0  0 a            start
	//    1  1 b            start
	//    2  0 a            load x
	//    3 >1 b            load x
	//    4  1 b            atomic x
	//    5  0 a            atomic x
	// violated (oracle): x is 1, want 2
}

// Two consumers and one item at a time. A consumer that looks again after it was woken never takes
// what is not there; one that looks once does.
func ExampleCond() {
	program := func(again bool) func(w *kit.World) {
		return func(w *kit.World) {
			var m kit.Mutex
			var more kit.Cond
			var items kit.Var[int]
			m.Init()
			more.Init()
			for range 2 {
				w.Go("consumer", func(t *kit.Task) {
					m.Lock(t)
					for items.Load(t) == 0 {
						more.Wait(t, &m)
						if !again {
							break
						}
					}
					if items.Load(t) == 0 {
						panic("nothing is there")
					}
					items.Store(t, items.Load(t)-1)
					m.Unlock(t)
				})
			}
			w.Go("producer", func(t *kit.Task) {
				for range 2 {
					m.Lock(t)
					items.Store(t, items.Load(t)+1)
					more.Broadcast(t)
					m.Unlock(t)
				}
			})
		}
	}
	fmt.Println(kit.Explore(program(true)).Proved, kit.Explore(program(false)).Proved)
	// Output: true false
}

// A Var is a plain field: two accesses that no lock orders are a data race, also in a schedule in
// which they do not meet.
func ExampleVar() {
	r := kit.Explore(func(w *kit.World) {
		var n kit.Var[int]
		w.Go("a", func(t *kit.Task) { n.Store(t, 1) })
		w.Go("b", func(t *kit.Task) { n.Store(t, 2) })
	})
	fmt.Println(r.Broken != "", r.Schedule == "")
	// Output: true true
}
