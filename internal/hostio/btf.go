package hostio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var errBTF = errors.New("the kernel's type information (BTF) cannot be read")

// btfTail is the bytes that follow a type of each kind: fixed ones, and for each member. Kinds that
// are not listed have none.
var btfTail = map[uint32][2]int{1: {4, 0}, 3: {12, 0}, 4: {0, 12}, 5: {0, 12}, 6: {0, 8}, 13: {0, 8}, 14: {4, 0}, 15: {0, 12}, 17: {4, 0}, 19: {0, 12}}

const (
	btfMagic      = 0xeb9f
	btfKindStruct = 4
	btfKindEnum   = 6
	btfKindLast   = 19
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
	err = eachType(types, func(kind, _ uint32, members []byte) {
		if kind != btfKindEnum {
			return
		}
		for m := members; len(m) > 0; m = m[8:] {
			if name := btfText(strs, le.Uint32(m)); name != "" && keep(name) {
				all[name] = int64(int32(le.Uint32(m[4:])))
			}
		}
	})
	return all, err
}

// parseOffsets finds the places of members, "structure.member", in bytes.
func parseOffsets(b []byte, members []string) (map[string]int64, error) {
	le := binary.LittleEndian
	types, strs, err := btfSections(b)
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	err = eachType(types, func(kind, name uint32, list []byte) {
		if kind != btfKindStruct {
			return
		}
		owner := btfText(strs, name)
		if !slices.ContainsFunc(members, func(m string) bool { return strings.HasPrefix(m, owner+".") }) {
			return
		}
		for m := list; len(m) > 0; m = m[12:] {
			if full := owner + "." + btfText(strs, le.Uint32(m)); slices.Contains(members, full) {
				// Above its low 24 bits is the size of a bit field.
				all[full] = int64(le.Uint32(m[8:])&0xffffff) / 8
			}
		}
	})
	return all, err
}

func btfText(strs []byte, at uint32) string {
	if int(at) >= len(strs) {
		return ""
	}
	name, _, _ := bytes.Cut(strs[at:], []byte{0})
	return string(name)
}

// eachType calls f with the kind, the name and the members of every type.
func eachType(types []byte, f func(kind, name uint32, members []byte)) error {
	le := binary.LittleEndian
	for len(types) >= 12 {
		info := le.Uint32(types[4:])
		kind, members := info>>24&0x1f, int(info&0xffff)
		tail := btfTail[kind]
		size := 12 + tail[0] + tail[1]*members
		if kind > btfKindLast || len(types) < size {
			return fmt.Errorf("%w: bad type, have kind %d with %d members", errBTF, kind, members)
		}
		f(kind, le.Uint32(types), types[12+tail[0]:size])
		types = types[size:]
	}
	return nil
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
