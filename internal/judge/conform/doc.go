// Package conform asks whether the engine is the kernel. It runs a table of operations (Ops) once
// on a loop mount of btrfs under the running kernel's tracepoints, and once on the engine with
// policy modern, whose trace points have the kernel's names (sched.TraceEvent). The two sequences
// of steps are aligned (Align) and differences are marked.
//
// Steps that have no tracepoint, such as those with i_rwsem and i_size, are events at the entry of
// functions, on kernels that offer them (functions, sights). There are two recordings, with and
// without these.
//
// A step is an Event: the tracepoint's name and what it says without addresses, numbers of inodes,
// times and references. Table tracepoints has, for each tracepoint, its group and what is kept of
// it; table leftOut has those that are not compared, each with the reason. The steps of the task
// that does the operation are compared apart from those elsewhere: the order between tasks is the
// scheduler's, and differs from run to run.
//
// A difference that has a name (Known) has a reason there. A name holds for rows, not for a
// pattern: the text of the expected differences has each row that may differ, with the step, its
// place and the name. A row that does not stand there is open, and one that stands there and is not
// in the alignment is gone; both are errors. The text is of one version of the kernel, and of the
// sequences that it was recorded with.
//
// Model: none of the kernel's; this judges the models.
package conform
