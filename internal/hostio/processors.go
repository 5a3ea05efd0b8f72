package hostio

import (
	"os"
	"runtime"
)

// Processors makes the Go runtime's processors perCPU for each of cpus CPUs, unless there are more
// or the environment says how many (GOMAXPROCS): for a process whose threads wait in many system
// calls at a time. A thread keeps its processor for a while after its call has begun, and with one
// for each CPU nobody runs meanwhile; one whose call ends waits for a processor that is idle.
func Processors(perCPU, cpus int) {
	if n := perCPU * cpus; os.Getenv("GOMAXPROCS") == "" && n > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}
