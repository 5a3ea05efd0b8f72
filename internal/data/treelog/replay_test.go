package treelog_test

import (
	"slices"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/treelog"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// pins are the blocks that replay has pinned.
type pins struct {
	treelog.Extents
	blocks []uint64
	looked bool // a data extent was asked for
}

func (p *pins) PinLogBlock(t *sched.Task, bytenr format.Logical) error {
	if p.looked {
		panic("a block is pinned after something was replayed")
	}
	p.blocks = append(p.blocks, uint64(bytenr))
	return p.Extents.PinLogBlock(t, bytenr)
}

func (p *pins) AddLoggedExtent(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, n uint64) error {
	p.looked = true
	return p.Extents.AddLoggedExtent(t, tr, ref, bytenr, n)
}

// TestReplayPins: every block of every log is pinned, once, before anything is replayed. What a
// pinned block is good for is tested where space is given out: in a small log the new tree blocks
// rarely come to lie in the old ones.
func TestReplayPins(t *testing.T) {
	for _, name := range []string{"leaves", "subvol"} {
		t.Run(name, func(t *testing.T) {
			ro := fstest.New(t, fstest.Image("testdata/log/"+name+".blocks.gz"), fstest.NoCheck(),
				fstest.FSOptions(func(o *fs.Options) { o.ReadOnly = true }))
			dev, tk := ro.Dev.(*blockdev.Memory).Snapshot(), ro.T
			sb := ro.FS.Super(tk)
			vols, err := volumes.Open([]volumes.Member{{Dev: dev, Super: &sb}}, false)
			ro.Must(err)
			m, err := transaction.Open(tk, transaction.Config{Volumes: vols, Super: &sb})
			ro.Must(err)
			m.Extents.SetFirstFit(true)

			want := logBlocks(t, tk, vols, sb.LogRoot, int(sb.NodeSize))
			if len(want) < 3 {
				t.Fatalf("the log has %d blocks", len(want))
			}
			h, err := m.Join(tk)
			ro.Must(err)
			p := &pins{Extents: m.Extents}
			c := treelog.Config{Store: fstree.New(m.Forest, m.Extents, m.Root(format.CSUM_TREE_OBJECTID), uint64(sb.SectorSize)), Extents: p,
				Subvol: func(t *sched.Task, id uint64) (*ctree.Root, error) {
					if id == format.FS_TREE_OBJECTID {
						return m.Root(id), nil
					}
					r, _, err := m.OpenSubvol(t, id)
					return r, err
				}}
			ro.Must(treelog.Replay(tk, h.Trans(), c, sb.LogRoot, int(sb.LogRootLevel), sb.Generation+1))
			slices.Sort(want)
			slices.Sort(p.blocks)
			if !slices.Equal(p.blocks, want) {
				t.Errorf("pinned %d, want %d", p.blocks, want)
			}
			ro.Must(h.End(tk))
		})
	}
}

// logBlocks are the blocks of the tree of logs at bytenr and of the logs.
func logBlocks(t *testing.T, tk *sched.Task, vols *volumes.Volumes, bytenr uint64, size int) []uint64 {
	t.Helper()
	n := make(format.Node, size)
	if err := vols.Read(tk, n, bytenr, 0); err != nil {
		t.Fatal(err)
	}
	l := []uint64{bytenr}
	for i := range n.Nritems() {
		switch {
		case n.Level() > 0:
			l = append(l, logBlocks(t, tk, vols, n.Blockptr(i), size)...)
		case n.Key(i).Type == format.ROOT_ITEM_KEY:
			var it format.RootItem
			it.Decode(n.Item(i))
			l = append(l, logBlocks(t, tk, vols, it.Bytenr, size)...)
		}
	}
	return l
}
