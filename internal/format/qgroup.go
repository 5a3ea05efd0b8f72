package format

import "fmt"

// Sizes of the items of the quota tree, in bytes.
const (
	QgroupStatusSize = 40 // 32 until Linux 6.6: without EnableGen
	QgroupInfoSize   = 40
	QgroupLimitSize  = 40
)

// QgroupStatusVersion is the only version of a QGROUP_STATUS item.
const QgroupStatusVersion = 1

// QgroupStatus.Flags.
const (
	QgroupStatusOn           = 1 << 0
	QgroupStatusRescan       = 1 << 1 // a rescan is under way, and has come to Rescan
	QgroupStatusInconsistent = 1 << 2 // the counts are out of date until the next rescan
	// simple quotas: what a subvolume has allocated, not what it reaches
	QgroupStatusSimple = 1 << 3
)

// QgroupLimit.Flags.
const (
	QgroupLimitMaxRfer = 1 << 0
	QgroupLimitMaxExcl = 1 << 1
)

// QgroupLevelShift is where the level is in a qgroup's id; below it is a subvolume's id, or on a
// level above 0 any number.
const QgroupLevelShift = 48

// QgroupName is a qgroup's id as the tools write it: level/number.
func QgroupName(id uint64) string {
	return fmt.Sprintf("%d/%d", id>>QgroupLevelShift, id&(1<<QgroupLevelShift-1))
}

// QgroupStatus is the state of quotas: QGROUP_STATUS.
type QgroupStatus struct {
	Version    uint64
	Generation uint64 // of the commit that the counts are as of
	Flags      uint64
	Rescan     uint64 // where the rescan is: a logical address; all ones when there is none
	EnableGen  uint64 // of simple quotas
}

// Decode reads a status of QgroupStatusSize bytes, or of the shorter first form.
func (q *QgroupStatus) Decode(b []byte) {
	*q = QgroupStatus{Version: le.Uint64(b), Generation: le.Uint64(b[8:]), Flags: le.Uint64(b[16:]), Rescan: le.Uint64(b[24:])}
	if len(b) >= QgroupStatusSize {
		q.EnableGen = le.Uint64(b[32:])
	}
}

// Encode writes a status into b, which has QgroupStatusSize bytes, or 32.
func (q *QgroupStatus) Encode(b []byte) {
	le.PutUint64(b, q.Version)
	le.PutUint64(b[8:], q.Generation)
	le.PutUint64(b[16:], q.Flags)
	le.PutUint64(b[24:], q.Rescan)
	if len(b) >= QgroupStatusSize {
		le.PutUint64(b[32:], q.EnableGen)
	}
}

// QgroupInfo has the counts of a qgroup, in bytes: QGROUP_INFO.
type QgroupInfo struct {
	Generation uint64
	// of the extents that its subvolumes reach; the kernel keeps the two alike
	Rfer, RferCmpr uint64
	Excl, ExclCmpr uint64 // ... and no other subvolume does
}

// Decode reads QgroupInfoSize bytes.
func (q *QgroupInfo) Decode(b []byte) {
	_ = b[QgroupInfoSize-1]
	*q = QgroupInfo{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])}
}

// Encode writes QgroupInfoSize bytes.
func (q *QgroupInfo) Encode(b []byte) {
	_ = b[QgroupInfoSize-1]
	for i, v := range [...]uint64{q.Generation, q.Rfer, q.RferCmpr, q.Excl, q.ExclCmpr} {
		le.PutUint64(b[8*i:], v)
	}
}

// QgroupLimit is how much a qgroup may have, in bytes: QGROUP_LIMIT.
type QgroupLimit struct {
	Flags            uint64 // which of the maxima hold
	MaxRfer, MaxExcl uint64
	RsvRfer, RsvExcl uint64 // not used by any kernel
}

// Decode reads QgroupLimitSize bytes.
func (q *QgroupLimit) Decode(b []byte) {
	_ = b[QgroupLimitSize-1]
	*q = QgroupLimit{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])}
}

// Encode writes QgroupLimitSize bytes.
func (q *QgroupLimit) Encode(b []byte) {
	_ = b[QgroupLimitSize-1]
	for i, v := range [...]uint64{q.Flags, q.MaxRfer, q.MaxExcl, q.RsvRfer, q.RsvExcl} {
		le.PutUint64(b[8*i:], v)
	}
}
