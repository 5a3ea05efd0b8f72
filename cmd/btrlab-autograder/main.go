// Command btrlab-autograder grades one submission of a Gradescope assignment. run_autograder, in
// the zip that `btrlab lab autograder` makes, starts it:
//
//	btrlab-autograder -base /autograder -limit 9m 4
//
// It writes results/results.json below the base, whatever the submission is. Exit code 1 means that
// the grader itself has failed, 2 that its arguments are wrong.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"btrlab/internal/study/course"
)

func main() {
	var g course.Autograder
	flag.StringVar(&g.Base, "base", "/autograder", "the folder with source, submission and results")
	flag.StringVar(&g.Student, "student", "", "grade the personal questions of the student whose id is this field of submission_metadata.json: email, name or id")
	flag.DurationVar(&g.Limit, "limit", 9*time.Minute, "stop the student's code after this time, and report what was judged by then")
	flag.Parse()
	n, err := strconv.Atoi(flag.Arg(0))
	if err != nil || flag.NArg() != 1 {
		fmt.Fprintf(os.Stderr, "btrlab-autograder: have %q, want the number of a lab\n", flag.Args())
		os.Exit(2)
	}
	l, err := course.Lookup(n)
	if err != nil {
		fmt.Fprintln(os.Stderr, "btrlab-autograder:", err)
		os.Exit(2)
	}
	if err := g.Grade(context.Background(), l); err != nil {
		fmt.Fprintln(os.Stderr, "btrlab-autograder:", err)
		os.Exit(1)
	}
}
