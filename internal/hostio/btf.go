package hostio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

var errBTF = errors.New("the kernel's type information (BTF) cannot be read")

// btfTail is the bytes that follow a type of each kind: fixed ones, and for each member. Kinds that
// are not listed have none.
var btfTail = map[uint32][2]int{1: {4, 0}, 3: {12, 0}, 4: {0, 12}, 5: {0, 12}, 6: {0, 8}, 13: {0, 8}, 14: {4, 0}, 15: {0, 12}, 17: {4, 0}, 19: {0, 12}}

const (
	btfMagic    = 0xeb9f
	btfKindEnum = 6
	btfKindLast = 19
)

// parseEnums reads the constants of all enumerations in b, whose strings are those of base with b's
// after them, and gives those that keep wants.
func parseEnums(b, base []byte, keep func(name string) bool) (map[string]int64, error) {
	le := binary.LittleEndian
	types, strs, err := btfSections(b)
	if err != nil {
		return nil, err
	}
	if base != nil {
		_, first, err := btfSections(base)
		if err != nil {
			return nil, err
		}
		strs = append(append([]byte(nil), first...), strs...)
	}
	all := map[string]int64{}
	for len(types) >= 12 {
		info := le.Uint32(types[4:])
		kind, members := info>>24&0x1f, int(info&0xffff)
		tail := btfTail[kind]
		size := 12 + tail[0] + tail[1]*members
		if kind > btfKindLast || len(types) < size {
			return nil, fmt.Errorf("%w: bad type, have kind %d with %d members", errBTF, kind, members)
		}
		if kind == btfKindEnum {
			for m := types[12:size]; len(m) > 0; m = m[8:] {
				if at := int(le.Uint32(m)); at < len(strs) {
					name, _, _ := bytes.Cut(strs[at:], []byte{0})
					if keep(string(name)) {
						all[string(name)] = int64(int32(le.Uint32(m[4:])))
					}
				}
			}
		}
		types = types[size:]
	}
	return all, nil
}

// btfSections finds the types and the strings.
func btfSections(b []byte) (types, strs []byte, err error) {
	le := binary.LittleEndian
	if len(b) < 24 || le.Uint16(b) != btfMagic {
		return nil, nil, fmt.Errorf("%w: bad header", errBTF)
	}
	head := uint64(le.Uint32(b[4:]))
	section := func(at int) []byte {
		from := head + uint64(le.Uint32(b[at:]))
		to := from + uint64(le.Uint32(b[at+4:]))
		if to > uint64(len(b)) {
			return nil
		}
		return b[from:to]
	}
	types, strs = section(8), section(16)
	if types == nil || strs == nil {
		return nil, nil, fmt.Errorf("%w: bad sections", errBTF)
	}
	return types, strs, nil
}
