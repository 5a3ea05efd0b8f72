// Command btrlab makes, reads, writes, checks and measures btrfs images; see internal/cli.
package main

import (
	"os"

	"btrlab/internal/cli"
)

func main() { os.Exit(cli.Main(cli.HelperArgs(os.Args), os.Stdin, os.Stdout, os.Stderr)) }
