// Command btrlab makes, reads, writes, checks and measures btrfs images; see internal/cli.
package main

import (
	"os"

	"btrlab/internal/cli"
	"btrlab/internal/judge/kernels/jobs"
)

func main() {
	if code, yes := jobs.Main(os.Args, os.Stdout, os.Stderr); yes {
		os.Exit(code)
	}
	os.Exit(cli.Main(cli.Args(os.Args), os.Stdin, os.Stdout, os.Stderr))
}
