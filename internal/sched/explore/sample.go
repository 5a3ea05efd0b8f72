package explore

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// bySampling makes executions by chance. The n-th is a function of the seed and n, so that shards
// and jobs divide them; by PCT with a depth of more than one it is of the longest execution before,
// too.
func (s *search) bySampling() {
	s.left = true
	var next, length atomic.Int64 // number of the next execution, length of the longest so far
	s.jobs(func(_ int, w *world) {
		d := &sampler{pcg: rand.NewPCG(0, 0)}
		for {
			i := s.cfg.Shard + int(next.Add(1)-1)*s.cfg.Shards
			d.length = max(int(length.Load()), 8)
			d.start(s.cfg, i)
			s.execute(w, d)
			for n := length.Load(); int(n) < len(w.ev) && !length.CompareAndSwap(n, int64(len(w.ev))); n = length.Load() {
			}
			more := s.account(w)
			if s.due() {
				s.tell()
			}
			if !more {
				return
			}
		}
	})
}

// RandomWalk is a strategy for Once that picks evenly among the enabled tasks. The same seed gives
// the same run.
func RandomWalk(seed uint64) Strategy {
	return &randomWalk{rand.New(rand.NewPCG(seed, 0x6578706c6f7265))}
}

type randomWalk struct{ r *rand.Rand }

func (s *randomWalk) Pick(d Decision) int { return d.Enabled[s.r.IntN(len(d.Enabled))] }

// sampler is one execution by chance.
//
// PCT (Burckhardt et al., ASPLOS 2010) gives tasks random priorities and lowers that of whoever
// runs at depth-1 random steps: a bug of depth d is found with probability at least 1/(n k^(d-1)).
// POS (Yuan et al., CAV 2018) gives every operation a priority of its own and draws anew for those
// that race with the one just done.
type sampler struct {
	pcg    *rand.PCG
	how    Method
	length int
	change [8]int
	depth  int
	low    uint64
}

func (p *sampler) start(c *Config, i int) {
	p.pcg.Seed(c.Seed, uint64(i)+0x6578706c6f7265)
	p.how, p.depth = c.Method, c.Depth
	if p.how == Portfolio {
		switch i % 5 {
		case 0, 1, 2:
			p.how, p.depth = PCT, i%5+1
		case 3:
			p.how = POS
		default:
			p.how = Random
		}
	}
	p.depth = min(p.depth, len(p.change))
	for j := range p.depth - 1 {
		p.change[j] = p.intN(p.length)
	}
	p.low = 1 << 20
}

func (p *sampler) intN(n int) int {
	hi, _ := bits.Mul64(p.pcg.Uint64(), uint64(n))
	return int(hi)
}

func (p *sampler) pick(w *world, d *decision) int {
	if d.mask&(d.mask-1) == 0 {
		return d.def
	}
	if p.how == Random {
		m := d.mask
		for i := p.intN(bits.OnesCount64(m)); i > 0; i-- {
			m &= m - 1
		}
		return lowest(m)
	}
	if p.how == PCT && d.last >= 0 {
		for _, at := range p.change[:p.depth-1] {
			if at == d.step {
				p.low--
				w.tasks[d.last].prio = p.low
			}
		}
	}
	best := -1
	for m := d.mask; m != 0; m &= m - 1 {
		k := w.tasks[lowest(m)]
		if k.prio == 0 {
			k.prio = p.pcg.Uint64() | 1<<32
		}
		if best < 0 || k.prio > w.tasks[best].prio {
			best = k.num
		}
	}
	if p.how == POS {
		b := w.tasks[best]
		for m := d.mask; m != 0; m &= m - 1 {
			if k := w.tasks[lowest(m)]; k == b || k.op.Obj != nil && k.op.Obj == b.op.Obj && depend(k.op.Use, b.op.Use) {
				k.prio = 0
			}
		}
	}
	return best
}

func (p *sampler) value(w *world, step, n int) int { return p.intN(n) }

func (p *sampler) end(w *world) {}
