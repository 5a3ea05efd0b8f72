// The kernel of the notebooks is gophernotes with this file added; notebooks/run.sh builds it. The
// name sorts after x_package.go, because Go runs the init functions of a package in file order and
// this one mends what that file registers.
package main

import (
	"github.com/cosmos72/gomacro/imports"

	"btrlab/internal/nb"
)

// Cells import btrlab/lab. Where a function of it fails, the cell ends with the error.
func init() {
	delete(imports.Packages["display"].Proxies, "JSONer") // the pinned interpreter refuses it
	imports.Packages["btrlab/lab"] = imports.Package{Binds: nb.Cells(), Types: nb.Types()}
}
