package park

// Call is one system call of a task, on a file that the guest has open.
type Call struct {
	// Verb is write, read, truncate, punch, falloc, fsync, start (writeback, not waited for), drop
	// (clean pages), map (fiemap), privilege (give it a capability), or sync (of the file system).
	Verb string `json:"verb"`
	File string `json:"file"`
	Off  int64  `json:"off,omitempty"`
	N    int64  `json:"n,omitempty"`
	// Fill is the byte that a write writes.
	Fill byte `json:"fill,omitempty"`
	// Direct is O_DIRECT, Append O_APPEND, DSync RWF_DSYNC and Nowait RWF_NOWAIT.
	Direct bool `json:"direct,omitempty"`
	Append bool `json:"append,omitempty"`
	DSync  bool `json:"dsync,omitempty"`
	Nowait bool `json:"nowait,omitempty"`
	// Mapped says that a write's source is the page at MapOff of a shared mapping of the file,
	// which no task has touched. Short, if not 0, is how many of its bytes are there when it
	// begins; the others are in memory, and a fault away.
	Mapped bool  `json:"mapped,omitempty"`
	MapOff int64 `json:"map_off,omitempty"`
	Short  int64 `json:"short,omitempty"`
}

// Result is how a call ended.
type Result struct {
	N     int64 `json:"n"`     // what it returned; of a call that failed 0
	Errno int   `json:"errno"` // of Linux; 0 is none
	Ended bool  `json:"ended"` // the call has returned
	// Bytes are those that a read saw.
	Bytes []byte `json:"bytes,omitempty"`
}

// State is where a task is, as the guest's kernel says.
type State struct {
	// Letter is that of /proc/PID/stat: R runs, D and S sleep, Z has ended.
	Letter string `json:"letter"`
	// Stack are the functions that the task sleeps in, the innermost first.
	Stack []string `json:"stack,omitempty"`
	// Quiet says that the task sleeps, and nothing goes on in the guest that could wake it: no
	// other task runs, and no request is on its way to the disk.
	Quiet bool `json:"quiet,omitempty"`
	// Busy says what does go on: another task, or the disk.
	Busy string `json:"busy,omitempty"`
}

// request is what the host asks the guest's agent, one in a line, and reply is the answer.
type request struct {
	ID int    `json:"id"`
	Do string `json:"do"` // symbols, mount, start, look, results, read, unmount, end

	Names []string `json:"names,omitempty"` // symbols: of the functions
	Mount string   `json:"mount,omitempty"` // mount: options
	Setup []Call   `json:"setup,omitempty"` // mount: calls that come first
	Tasks [][]Call `json:"tasks,omitempty"` // start: their calls
	Task  int      `json:"task,omitempty"`  // look: its number
	Held  []int    `json:"held,omitempty"`  // look: the processors that stand still
	File  string   `json:"file,omitempty"`  // read
}

type reply struct {
	ID      int                 `json:"id"`
	Error   string              `json:"error,omitempty"`
	Release string              `json:"release,omitempty"`
	Symbols map[string][]uint64 `json:"symbols,omitempty"`
	State   *State              `json:"state,omitempty"`
	Results [][]Result          `json:"results,omitempty"`
	Setup   []Result            `json:"setup,omitempty"`
	Bytes   []byte              `json:"bytes,omitempty"`
}
