package judges

// All are the labs, in the order of the course.
var All = []Lab{WarmUp{}, Schedules{}, Baseline{}, Locking{}, &Truncate{}, RangeLock{}, Waits{}, Nowait{}, Ring{}, LogItem{}, Sectors{}, &Orders{}, Policy{}, FairLock{}, Stable{}, Fsck{}, Disk{}, Linux{}}
