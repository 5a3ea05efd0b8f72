//go:build unix

package fio

import "syscall"

func processUsage() usage {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return usage{}
	}
	return usage{u.Utime.Nano(), u.Stime.Nano(), int64(u.Nvcsw + u.Nivcsw), int64(u.Majflt), int64(u.Minflt)}
}
