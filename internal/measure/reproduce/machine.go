package reproduce

import (
	"fmt"
	"math"
	"time"

	"btrlab/internal/blockdev/dm"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// CostLine is an entry of the cost table as the run used it.
type CostLine struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Nanos  float64 `json:"ns"`
	Source string  `json:"source"`
}

// machine is the simulated machine.
func (s *study) machine() vtime.Machine {
	c := &s.opt.Calibration
	t := s.table()
	m := vtime.Machine{CPUs: c.CPUs, Cores: c.Cores, SMT: c.SMT, Costs: &t, Handoff: time.Duration(c.HandoffNs),
		Noise: vtime.Noise{PerSec: c.NoisePerSec, Mean: time.Duration(c.NoiseMeanNs), Wake: c.NoiseWake, Seed: c.Seed}}
	if s.vary != nil && s.vary.mach != nil {
		s.vary.mach(&m, s.factor)
	}
	return m
}

// table is the table of costs.
func (s *study) table() cost.Table {
	c := &s.opt.Calibration
	t := cost.Default()
	if s.opt.Costs != nil {
		t = *s.opt.Costs
	}
	t.CPU = c.CPU
	if s.seed.Study.NoEngines {
		for _, e := range []sched.Cost{cost.AIO, cost.Events} {
			t.Entries[e].Nano, t.Entries[e].Source = 0, "none: cpu_factor was fitted without"
		}
	}
	if c.WakeupNs > 0 {
		t.Entries[cost.Wakeup].Nano, t.Entries[cost.Wakeup].Source = c.WakeupNs, "calibrated"
	}
	if c.SubmitNs > 0 {
		t.Entries[cost.Submit].Nano, t.Entries[cost.Submit].Source = c.SubmitNs, "calibrated"
	}
	if c.TreeCalls > 0 {
		e := &t.Entries[cost.RangeTree]
		e.Nano, e.Source = e.Nano*c.TreeCalls, fmt.Sprintf("%g of: %s", c.TreeCalls, e.Source)
	}
	if c.TreeCached > 0 {
		e := &t.Entries[cost.RangeState]
		e.Nano, e.Source = t.Entries[cost.RangeTree].Nano*c.TreeCached, fmt.Sprintf("%g of a range-tree", c.TreeCached)
	}
	if c.BlockNs > 0 {
		for _, e := range []sched.Cost{cost.CopyBlock, cost.CheckBlock} {
			t.Entries[e].Nano, t.Entries[e].Source = c.BlockNs, "chosen"
		}
	}
	t.Entries[cost.IdleExit].Nano = c.IdleExitNs
	t.Entries[cost.IdleExit].Source = "calibrated"
	return t
}

// costLines is the table as the run uses it.
func (s *study) costLines() (list []CostLine) {
	t := s.table()
	for i := range t.Entries {
		e := &t.Entries[i]
		f := t.CPU
		if e.Fixed {
			f = 1
		}
		list = append(list, CostLine{e.Name, e.Unit, e.Nano * f, e.Source})
	}
	return list
}

// device is the model of the device, with the parameters that the calibration has.
func (s *study) device() (dm.Params, error) {
	c := &s.opt.Calibration
	p, err := dm.Parse(c.Model)
	if err != nil {
		return p, err
	}
	p.Seed = c.Seed
	if c.Depth > 0 {
		array(&p, c)
	}
	if c.Slower > 0 {
		p = p.Slower(c.Slower)
	}
	if c.FlushNs > 0 {
		p.Flush = time.Duration(c.FlushNs)
	}
	if c.Share > 0 {
		s.transfer(&p, c)
	}
	if c.Spread > 0 {
		p.Jitter = c.Spread
	}
	if s.vary != nil && s.vary.dev != nil {
		s.vary.dev(&p, s.factor)
	}
	return p, nil
}

// transfer makes a part of the time of a request one that grows with its size, and leaves the mean.
func (s *study) transfer(p *dm.Params, c *seeds.Calibration) {
	mean := ((p.Read + p.Write) / 2).Seconds()
	for _, d := range []*time.Duration{&p.Read, &p.Write} {
		*d = time.Duration(float64(*d) * (1 - c.Share))
	}
	// Read and Write are of the first 4 KiB.
	p.BytesPerSec = (s.seed.Study.Request - 4096) / (c.Share * mean)
	if c.Shared > 0 {
		p.Shared = true
		p.BytesPerSec *= max(1, c.Share*float64(c.Shared)) // so many of them are in transfer
	}
}

// array sets the parameters of a RAID and of its drives.
func array(p *dm.Params, c *seeds.Calibration) {
	p.Depth, p.GCBytes, p.Plug = int(c.Depth), int64(c.GCBytes), c.Plug
	p.Handle, p.Interrupt = time.Duration(c.HandleNs), time.Duration(c.InterruptNs)
	p.GCMax = max(p.GCMin, time.Duration(c.GCMaxMs*float64(time.Millisecond)))
	if p.GCBytes > 0 {
		f := max(0.1, 1-gcShare(p))
		p.Read, p.Write = time.Duration(float64(p.Read)*f), time.Duration(float64(p.Write)*f)
	}
}

// gcShare is the share of its time that a member of a RAID 5 collects garbage when the volume does
// its sustained rate of small writes, each a read and a write on two members.
func gcShare(p *dm.Params) float64 {
	volume := float64(p.Disks*p.Channels) / 2 / (p.Read + p.Write).Seconds()
	each := volume * 2 / float64(p.Disks) * 4096 // bytes a second
	lo, hi, a := p.GCMin.Seconds(), p.GCMax.Seconds(), p.GCShape
	mean := lo
	if hi > lo { // bounded Pareto
		mean = math.Pow(lo, a) / (1 - math.Pow(lo/hi, a)) * a / (a - 1) * (math.Pow(lo, 1-a) - math.Pow(hi, 1-a))
	}
	return each * mean / float64(p.GCBytes) / float64(p.Channels) // it stops one of the channels
}
