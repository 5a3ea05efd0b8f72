package treelog

// Wrong are mistakes of a log and of its replay: policy.WrongLog says what each is. All are off.
type Wrong struct {
	SuperFirst    bool
	NoFlush       bool
	NoSums        bool
	BeforeData    bool // of package fsync
	Unpinned      bool
	ChangedXattrs bool
	NoHoles       bool
	LostNames     bool
	TakenNames    bool
	KeepXattrs    bool
	KeepSize      bool
	NoConflicts   bool
	PunchUnmarked bool // of packages fallocate and fsync
	OldNumbers    bool // of package fs
	NamesUnpinned bool
	ShareEarly    bool
}

// SetWrong makes the logs make mistakes. The caller has no operation in flight.
func (l *Logs) SetWrong(w Wrong) { l.wrong = w }
