// The kernel of the notebooks is gophernotes with this file added; notebooks/run.sh builds it. The
// name sorts after x_package.go, because Go runs the init functions of a package in file order and
// this one mends what that file registers.
package main

import (
	"os"
	"os/signal"
	"time"

	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/imports"

	"btrlab/internal/nb"
)

// Cells import btrlab/lab. Where a function of it fails, the cell ends with the error.
func init() {
	delete(imports.Packages["display"].Proxies, "JSONer") // the pinned interpreter refuses it
	imports.Packages["btrlab/lab"] = imports.Package{Binds: nb.Cells(), Types: nb.Types()}
}

// How long a second interrupt waits for the cell, and how often the client is looked for.
const (
	patience  = 5 * time.Second
	lookEvery = time.Second
)

// listen interrupts the cell that runs at SIGINT, at its next statement: a call of compiled Go is
// waited for, and a second SIGINT within patience ends the kernel. A kernel without its client
// ends, too: a cell that goes round for ever has nobody to stop it. run.sh calls it where
// gophernotes makes the interpreter.
func listen(ir *interp.Interp) {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	client := os.Getppid()
	go func() {
		var last time.Time
		for {
			select {
			case s := <-interrupts:
				if time.Since(last) < patience {
					os.Exit(130)
				}
				last = time.Now()
				ir.Interrupt(s)
			case <-time.After(lookEvery):
				if os.Getppid() != client {
					os.Exit(0)
				}
			}
		}
	}()
}
