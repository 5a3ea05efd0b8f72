//go:build !unix

package report

import "runtime"

func system() string { return runtime.GOOS + " " + runtime.GOARCH }
