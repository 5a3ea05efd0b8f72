package judges

import (
	"btrlab/internal/module"
	"btrlab/internal/study/sandbox"
)

// policyPath is the package of the steps that labs 4 and 11 order, and stepNames what they may use
// of it: the tables of policies are the grader's.
const policyPath = module.Path + "/internal/policy"

var stepNames = []string{"SetsizeStep", "DIOWait", "SetISize", "TruncatePages", "WaitOrdered", "TruncateItems",
	"WriteStep", "FaultIn", "Reserve", "PreparePages", "LockExtent", "CopyFromUser", "DirtyPages", "ISizeWrite", "SetDelalloc", "DropPages", "BalanceDirty"}

// kitNames are what a graded solution may use of package kit; the rest is the grader's side, or for
// programs of one's own.
var kitNames = []string{"Task", "Mutex", "Cond", "Var", "Range", "NowaitExtent", "Flush", "NoFlush", "FlushAll", "ENOSPC", "EDQUOT", "EAGAIN",
	"EIOCBQUEUED", "Request", "LogItem", "WaitedWrite", "DirtyRun", "HotPage", "Rewrites", "Disk", "SyncProfile", "FlushRates", "Client", "Summary", "Profile", "Prediction", "LockedWrite", "SectorWrite", "WriteOp", "ReadOp", "TruncateOp", "FallocateOp", "FsyncOp", "BatchOne", "BatchMin", "BatchMax",
	"PageBytes", "EndOfFiles", "Blocks", "Elsewhere", "Unwritten", "Written"}

// mayUse are the names that a solution may use of the packages that have more.
var mayUse = map[string][]string{policyPath: stepNames, sandbox.KitPath: kitNames}

// judged is the code of a lab, by rules, which a program judges that makes the Lab and has imports
// for that.
func judged(r sandbox.Rules, lab string, imports ...string) *sandbox.Code {
	if r.May == nil {
		r.May = mayUse
	}
	return &sandbox.Code{Rules: r, Value: lab, Main: "judges.Main(" + lab + ", os.Args[1:])", Imports: append([]string{Path}, imports...)}
}

// Path is this package, which the programs import.
const Path = module.Path + "/internal/study/judges"
