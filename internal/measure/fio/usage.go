package fio

// usage is what this process has used of the machine: nanoseconds, context switches and page
// faults.
type usage struct {
	user, sys, switches, majorFaults, minorFaults int64
}
