package policy

// SpaceStep is a step of a write at which space may be short.
type SpaceStep uint8

// The steps.
const (
	BufferedData     SpaceStep = iota // data space of a batch
	BufferedMetadata                  // its metadata space
	// data space of a direct write, of which no block is known to be writable in place
	DirectData
	DirectMetadata // metadata space of a direct write
)

var spaceSteps = names{"policy.SpaceStep",
	[]string{"buffered_data", "buffered_metadata", "direct_data", "direct_metadata"},
	[]string{"BufferedData", "BufferedMetadata", "DirectData", "DirectMetadata"}}

func (s SpaceStep) String() string { return spaceSteps.name(int(s)) }

// Shortage says what to do when space is short.
type Shortage uint8

// The answers.
const (
	Fail     Shortage = iota // the error is the caller's
	TryAgain                 // EAGAIN: a blocking request may get it
	// ask if the blocks may be overwritten; if not, the error is the caller's
	TryNocow
)

var shortages = names{"policy.Shortage", []string{"fail", "again", "nocow"}, []string{"Fail", "TryAgain", "TryNocow"}}

func (s Shortage) String() string { return shortages.name(int(s)) }

// spaceRules gives the answer to a shortage, for ENOSPC and for EDQUOT. Models what
// btrfs_buffered_write() and btrfs_get_blocks_direct_write() make of the errors; labs/reference
// 5.5. A direct write with NOWAIT reserves no data space: it has no row. The EDQUOT of a NOWAIT
// write's metadata is Linux's gap, see NowaitEDQUOT.
var spaceRules = []struct {
	Step           SpaceStep
	Nowait         bool
	ENOSPC, EDQUOT Shortage
}{
	{BufferedData, false, TryNocow, TryNocow},
	{BufferedData, true, TryAgain, TryNocow},
	{BufferedMetadata, false, Fail, Fail},
	{BufferedMetadata, true, TryAgain, Fail},
	{DirectData, false, TryNocow, TryNocow},
	{DirectMetadata, false, Fail, Fail},
	{DirectMetadata, true, TryAgain, TryAgain},
}

// OnShortage returns the answer of a write whose reservation failed at step: with ENOSPC, or, if
// quota is set, with EDQUOT.
func (p *Policy) OnShortage(step SpaceStep, nowait, quota bool) Shortage {
	if nowait && quota && step == BufferedMetadata && p.Has(NowaitEDQUOT) {
		return TryAgain
	}
	if nowait && !quota && p.Wrong(WrongNowaitENOSPC) {
		return Fail
	}
	for i := range spaceRules {
		if r := &spaceRules[i]; r.Step == step && r.Nowait == nowait {
			if quota {
				return r.EDQUOT
			}
			return r.ENOSPC
		}
	}
	return Fail
}
