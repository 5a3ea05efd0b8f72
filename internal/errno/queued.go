package errno

// EIOCBQUEUED says that a request is on its way and its end will be reported: the kernel's own
// number, which no system call returns.
const EIOCBQUEUED Errno = 529
