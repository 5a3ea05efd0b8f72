package seeds

// Calibration is everything about the machine that the publication leaves open. Costs that are not
// here are the table's.
type Calibration struct {
	CPUs  int     `json:"cpus"`
	Cores int     `json:"cores"`
	SMT   float64 `json:"smt_slowdown"`
	// CPU is the factor of the cost table.
	CPU float64 `json:"cpu_factor"`
	// IdleExitNs is cost.IdleExit.
	IdleExitNs float64 `json:"idle_exit_ns"`
	// WakeupNs is cost.Wakeup, which CPU multiplies; 0 is the table's.
	WakeupNs float64 `json:"wakeup_ns,omitempty"`
	// SubmitNs is cost.Submit, which CPU multiplies; 0 is the table's.
	SubmitNs float64 `json:"submit_ns,omitempty"`
	// TreeCalls multiplies cost.RangeTree: the calls of the kernel's io tree that one change of
	// ours stands for; 0 is 1.
	TreeCalls float64 `json:"io_tree_calls,omitempty"`
	// TreeCached is cost.RangeState by cost.RangeTree: what a call of the io tree costs that has
	// its state at hand. 0 is nothing.
	TreeCached float64 `json:"io_tree_cached,omitempty"`
	// NoiseWake, NoisePerSec and NoiseMeanNs are vtime.Noise.
	NoiseWake   float64 `json:"noise_wake_sigma"`
	NoisePerSec float64 `json:"noise_per_sec"`
	NoiseMeanNs int64   `json:"noise_mean_ns"`
	// HandoffNs is vtime.Machine.Handoff. Whether i_rwsem is handed over at all is the policy's:
	// RWSEM_HANDOFF.
	HandoffNs int64 `json:"rwsem_handoff_ns"`
	// Model is the device, as dm.Parse reads it.
	Model string `json:"device"`
	// Depth, GCBytes and GCMaxMs are the device's parameters of these names. What garbage
	// collection takes is given back in shorter service times: its share is fitted, the sustained
	// rate stays the data sheet's.
	Depth   float64 `json:"device_depth"`
	GCBytes float64 `json:"device_gc_bytes"`
	GCMaxMs float64 `json:"device_gc_max_ms"`
	// Plug is dm.Params.Plug: Depth is md's stripe cache, and what the flusher submits begins when
	// it sleeps. Off, because how often a flusher sleeps, and how large the cache is, nobody tells;
	// --sensitivity says what it does.
	Plug bool `json:"device_plug"`
	// HandleNs is the time of the array's one thread (raid5d) for a write besides ending it,
	// InterruptNs the cost to a CPU of the end of a request at a member: dm.Params.Handle and
	// Interrupt, in nanoseconds.
	HandleNs    float64 `json:"device_handle_ns"`
	InterruptNs float64 `json:"device_interrupt_ns"`
	// Slower multiplies every time of the device; 0 is 1.
	Slower float64 `json:"device_slower,omitempty"`
	// FlushNs, if it is not 0, is the time of a flush of the device, which Slower leaves alone.
	FlushNs float64 `json:"device_flush_ns,omitempty"`
	// Share is the part of the device's mean time for a request that grows with its size, for
	// requests of Study.Request bytes on average: a transfer. The mean stays what Model and Slower
	// say. Spread, if it is not 0, is the sigma of the lognormal factor on each time.
	Share  float64 `json:"device_share,omitempty"`
	Spread float64 `json:"device_spread,omitempty"`
	// Shared, if it is not 0, says that all requests in transfer share one rate, dm.Params.Shared:
	// the rate with which Share is right when so many requests are at the device.
	Shared int `json:"device_shared,omitempty"`
	// BlockNs, if it is not 0, is the price of a copy of a tree block and that of its check, each
	// in nanoseconds: cost.CopyBlock, cost.CheckBlock.
	BlockNs float64 `json:"block_ns,omitempty"`
	// SmallLeaf is iopath.Lab.SmallLeaf, in percent; 0 is a third.
	SmallLeaf int `json:"small_leaf_percent,omitempty"`
	// DirtyBackground and DirtyLimit are in bytes, for the published size of the file.
	DirtyBackground int64 `json:"dirty_background_bytes"`
	DirtyLimit      int64 `json:"dirty_limit_bytes"`
	EndioWorkers    int   `json:"endio_workers"`
	// EndioNewest is fs.Options.EndioNewest.
	EndioNewest bool   `json:"endio_newest_first,omitempty"`
	Seed        uint64 `json:"seed"`
}
