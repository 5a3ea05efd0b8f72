// Command btrlab makes, reads, writes, checks and measures btrfs images; see internal/cli.
package main

import (
	"os"

	"btrlab/internal/cli"
	"btrlab/internal/cli/serve"
)

func main() { os.Exit(cli.Main(serve.HelperArgs(os.Args), os.Stdin, os.Stdout, os.Stderr)) }
