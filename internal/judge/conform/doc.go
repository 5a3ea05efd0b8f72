// Package conform asks whether the engine is the kernel. It runs a table of operations (Ops) once
// on a loop mount of btrfs under the running kernel's tracepoints, and once on the engine with
// policy modern, whose trace points have the kernel's names (sched.TraceEvent). The two sequences
// of steps are aligned (Align) and differences are marked.
//
// A step is an Event: the tracepoint's name and what it says without addresses, numbers of inodes,
// times and references. Table tracepoints has, for each tracepoint, its group and what is kept of
// it; table leftOut has those that are not compared, each with the reason. The steps of the task
// that does the operation are compared apart from those elsewhere: the order between tasks is the
// scheduler's, and differs from run to run.
//
// A difference that has a name (Known) has a reason there, and the version of the kernel that it
// was seen in. All others are open.
//
// Model: none of the kernel's; this judges the models.
package conform
