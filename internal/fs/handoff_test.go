package fs_test

import (
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// TestHandoffIsThePolicys: seed 002 is of 2018, when a rw_semaphore was never promised to a task
// that slept: a task that runs takes i_rwsem back before the sleeper is up, for as long as it
// likes. Under a policy of a kernel since 5.3 the sleeper has it after 4 ms. A change of the policy
// changes the locks of files that are in memory.
func TestHandoffIsThePolicys(t *testing.T) {
	const busy = 20 * time.Millisecond
	var waits []time.Duration
	specs := []string{"locked", "modern", "locked+RWSEM_HANDOFF", "modern!RWSEM_HANDOFF", "linux-5.10"}
	if _, err := vtime.Run(vtime.Machine{CPUs: 4}, func(k *sched.Task) {
		dev := blockdev.NewMemory(1 << 28)
		if err := mkfs.Make(k, dev, mkfs.Options{}); err != nil {
			t.Error(err)
			return
		}
		x, err := fs.Open(k, []blockdev.Device{dev}, fs.Options{Policy: policy.MustParse("unlocked")})
		if err != nil {
			t.Error(err)
			return
		}
		f, err := x.Create(k, "/f", 0o644)
		if err != nil {
			t.Error(err)
			return
		}
		ip := f.Inode()
		for _, spec := range specs {
			x.SetPolicy(k, policy.MustParse(spec))
			ip.Lock(k)
			sleeper := k.Go("sleeper", func(k *sched.Task) {
				since := k.Now()
				ip.Lock(k)
				waits = append(waits, time.Duration(k.Now()-since))
				ip.Unlock(k)
			})
			k.Sleep(100 * time.Microsecond) // the sleeper does not spin while the owner sleeps
			for end := k.Now() + int64(busy); k.Now() < end; {
				ip.Unlock(k)
				ip.Lock(k)
				k.Charge(10 * time.Microsecond)
			}
			ip.Unlock(k)
			k.Join(sleeper)
		}
		if err := x.Close(k); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if len(waits) != len(specs) {
		t.Fatalf("waits %v, want %d", waits, len(specs))
	}
	for i, spec := range specs {
		handed := waits[i] < 5*time.Millisecond
		if want := policy.MustParse(spec).Has(policy.RwsemHandoff); handed != want {
			t.Errorf("%s: waited %v, handed over %v, want %v", spec, waits[i], handed, want)
		}
	}
}
