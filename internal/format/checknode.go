package format

import "fmt"

// CheckNode reports the first rule that the inner node breaks, or nil.
//
// Models fs/btrfs/tree-checker.c:btrfs_check_node().
func CheckNode(n Node, c CheckContext) error {
	if err := headerErr("node", n, c); err != nil {
		return err
	}
	if l := n.Level(); l < 1 || l >= MaxLevel {
		return blockErr("node", n, c, -1, "bad level", dec(l), fmt.Sprintf("1..%d", MaxLevel-1))
	}
	nr := n.Nritems()
	if max := PtrsPerNode(len(n)); nr < 1 || nr > max {
		return blockErr("node", n, c, -1, "bad nritems", dec(nr), fmt.Sprintf("1..%d", max))
	}
	mask := uint64(c.SectorSize - 1)
	var prev Key
	for i := range nr {
		key := n.Key(i)
		if i > 0 && !prev.Less(key) {
			return blockErr("node", n, c, i, "bad key order", fmt.Sprintf("%v after %v", key, prev), "")
		}
		prev = key
		if b := n.Blockptr(i); b == 0 || b&mask != 0 {
			return blockErr("node", n, c, i, "bad block pointer", dec(b), fmt.Sprintf("a nonzero multiple of %d", c.SectorSize))
		}
		if g := n.PtrGeneration(i); g > n.Generation() {
			return blockErr("node", n, c, i, "bad pointer generation", dec(g), fmt.Sprintf("at most %d", n.Generation()))
		}
	}
	return nil
}
