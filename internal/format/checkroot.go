package format

import "fmt"

// Items of trees.

const rootFlagsKnown = 1<<0 | 1<<48 // read-only, dead

func (k *checker) rootItem(b []byte) error {
	id := k.key.Objectid
	if id == 0 {
		return k.err("bad root id", "0", "")
	}
	if len(b) != RootItemSize && len(b) != RootItemV1Size {
		return k.err("bad root item size", dec(len(b)), fmt.Sprintf("%d or %d", RootItemSize, RootItemV1Size))
	}
	var it RootItem
	it.Decode(b)
	if err := k.generation("root generation", it.Generation); err != nil {
		return err
	}
	// The first version of the item has no generation_v2: it is 0 then.
	if err := k.generation("root generation_v2", it.GenerationV2); err != nil {
		return err
	}
	if err := k.generation("root last_snapshot", it.LastSnapshot); err != nil {
		return err
	}
	if it.Bytenr&k.mask != 0 {
		return k.err("unaligned root bytenr", dec(it.Bytenr), "")
	}
	if it.Level >= MaxLevel {
		return k.err("bad root level", dec(it.Level), fmt.Sprintf("at most %d", MaxLevel-1))
	}
	if it.DropLevel >= MaxLevel {
		return k.err("bad root drop level", dec(it.DropLevel), fmt.Sprintf("at most %d", MaxLevel-1))
	}
	if f := it.Flags &^ uint64(rootFlagsKnown); f != 0 {
		return k.err("unknown root flags", hexa(f), "")
	}
	return nil
}

func (k *checker) rootRef(b []byte) error {
	if len(b) < RootRefSize {
		return k.err("bad root ref size", dec(len(b)), fmt.Sprintf("at least %d", RootRefSize))
	}
	if n := RootRefView(b).NameLen(); n == 0 || n > MaxNameLen || RootRefSize+n != len(b) {
		return k.err("bad root ref name length", dec(n), dec(len(b)-RootRefSize))
	}
	return nil
}
