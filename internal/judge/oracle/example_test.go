package oracle_test

import (
	"fmt"

	"btrlab/internal/judge/oracle"
)

// Two buffered writes without a lock: the file ends up with a page of each.
func Example() {
	const page = 4096
	file := make([]byte, 2*page)
	oracle.Paint(file[:page], 1)
	oracle.Paint(file[page:], 2)

	h := &oracle.History{
		Size: 2 * page,
		Ops: []oracle.Op{
			{ID: 1, Kind: oracle.Write, Lo: 0, Hi: 2 * page, Start: 1, End: 8},
			{ID: 2, Kind: oracle.Write, Lo: 0, Hi: 2 * page, Start: 2, End: 7},
		},
		Final:     oracle.Unpaint(nil, file, 0, 2),
		FinalSize: 2 * page,
	}
	var c oracle.Checker
	fmt.Println(c.Check(h, oracle.PerPage).Outcome)
	fmt.Println(c.Explain(h, oracle.Calls))
	// Output:
	// kept
	// no order explains this (writes per request, reads per request):
	//   at the end bytes [0, 4096) come from write 1
	//   at the end bytes [4096, 8192) come from write 2
	// write 1 is before write 2: both changed bytes [4096, 8192), and at the end those of write 2 are there
	// write 2 is before write 1: both changed bytes [0, 4096), and at the end those of write 1 are there
	// a cycle: write 1 -> write 2 -> write 1
}
