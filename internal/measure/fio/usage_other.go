//go:build !unix

package fio

// processUsage is not known here; a report shows zeros.
func processUsage() usage { return usage{} }
