//go:build !portable

package hostio

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The structs are as long as the kernel's.
func TestFuseSizes(t *testing.T) {
	if h, e := unsafe.Sizeof(fuseHeaders{}), unsafe.Sizeof(fuseSQE{}); h != 288 || e != 128 || unsafe.Offsetof(fuseSQE{}.cmdFlags) != 48 {
		t.Errorf("headers %d, entry %d", h, e)
	}
}

// A goroutine is a thread of the CPU, unless the process was kept off it.
func TestOnCPU(t *testing.T) {
	n := runtime.NumCPU()
	on := func(before func()) (set unix.CPUSet) {
		done := make(chan struct{})
		go func() { // its thread ends with it
			defer close(done)
			runtime.LockOSThread()
			before()
			OnCPU(0)
			if err := unix.SchedGetaffinity(0, &set); err != nil {
				t.Error(err)
			}
		}()
		<-done
		return set
	}
	if set := on(func() {}); set.Count() != 1 && n > 1 || set.Count() == 1 && n > 1 && !set.IsSet(0) {
		t.Errorf("on %d CPUs, want CPU 0", set.Count())
	}
	if n < 2 {
		return
	}
	set := on(func() {
		var off unix.CPUSet
		off.Set(1)
		if err := unix.SchedSetaffinity(0, &off); err != nil {
			t.Error(err)
		}
	})
	if set.IsSet(0) || !set.IsSet(1) {
		t.Error("a thread of CPU 0, which the process may not use")
	}
}
