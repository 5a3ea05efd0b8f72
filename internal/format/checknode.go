package format

// CheckNode reports the first rule that the inner node breaks, or nil.
//
// Models fs/btrfs/tree-checker.c:btrfs_check_node().
func CheckNode(n Node, c CheckContext) error {
	if err := headerErr("node", n, c); err != nil {
		return err
	}
	if l := n.Level(); l < 1 || l >= MaxLevel {
		return blockErr("node", n, c, -1, "bad level, have %d want 1..%d", l, MaxLevel-1)
	}
	nr := n.Nritems()
	if max := PtrsPerNode(len(n)); nr < 1 || nr > max {
		return blockErr("node", n, c, -1, "bad nritems, have %d want 1..%d", nr, max)
	}
	mask := uint64(c.SectorSize - 1)
	var prev Key
	for i := range nr {
		key := n.Key(i)
		if i > 0 && !prev.Less(key) {
			return blockErr("node", n, c, i, "bad key order, have %v after %v", key, prev)
		}
		prev = key
		if b := n.Blockptr(i); b == 0 || b&mask != 0 {
			return blockErr("node", n, c, i, "bad block pointer, have %d want a nonzero multiple of %d", b, c.SectorSize)
		}
		if g := n.PtrGeneration(i); g > n.Generation() {
			return blockErr("node", n, c, i, "bad pointer generation, have %d want at most %d", g, n.Generation())
		}
	}
	return nil
}
