package check

import (
	"encoding/json"
	"fmt"
	"strings"

	"btrlab/internal/format"
)

// Findings are values: a repair asks them for numbers, and only String and the JSON make text.

// Finding is one broken rule at one place.
type Finding struct {
	Rule string
	// Flaw tells breaches of one rule apart where a repair must; most have none.
	Flaw  Flaw
	Place Place
	// What is the rule of the tree checker that a block breaks, as "bad item offset".
	What       string
	Have, Want Value // nil for nothing to say
	// Means is what it means to the user, with the file that it is about, if there is one.
	Means string
}

// Flaw is a kind of breach of a rule.
type Flaw string

// The flaws.
const (
	NoChunk        Flaw = "no chunk"           // file.extent: no chunk has the address
	NoChecksums    Flaw = "no checksums"       // file.extent: compressed, of a file that has none
	SecondRootItem Flaw = "second root item"   // root.item
	RootItemOffset Flaw = "root item's offset" // root.item: the key's offset is not 0
)

// Where is the place in words, and what the tree checker has against it.
func (f Finding) Where() string {
	if f.What != "" {
		return f.Place.String() + ", " + f.What
	}
	return f.Place.String()
}

func (f Finding) String() string {
	s := f.Rule + ": " + f.Where() + ", have " + text(f.Have)
	if f.Want != nil {
		s += " want " + text(f.Want)
	}
	return s
}

// MarshalJSON gives the texts of a finding and its fields.
func (f Finding) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Rule  string `json:"rule"`
		Where string `json:"where"`
		Have  string `json:"have"`
		Want  string `json:"want"`
		Means string `json:"means"`
		Flaw  Flaw   `json:"flaw,omitempty"`
		Place Place  `json:"place"`
		// Numbers, keys and counts; words are in have and want only.
		HaveValue any `json:"have_value,omitempty"`
		WantValue any `json:"want_value,omitempty"`
	}{f.Rule, f.Where(), text(f.Have), text(f.Want), f.Means, f.Flaw, f.Place, fields(f.Have), fields(f.Want)})
}

// Value is what is there, or what should be: a Number, Flags, Counts, a format.Key, or Words.
type Value interface{ String() string }

// Number is a number in decimal.
type Number uint64

// Flags are bits, in hexadecimal.
type Flags uint64

// Counts are the bytes of a qgroup.
type Counts struct {
	Rfer uint64 `json:"rfer"`
	Excl uint64 `json:"excl"`
}

// Words are a value that only people read.
type Words string

func (n Number) String() string { return fmt.Sprint(uint64(n)) }

func (f Flags) String() string { return fmt.Sprintf("0x%x", uint64(f)) }

func (c Counts) String() string { return fmt.Sprintf("rfer %d excl %d", c.Rfer, c.Excl) }

func (w Words) String() string { return string(w) }

func num(v uint64) Value { return Number(v) }

func hex(v uint64) Value { return Flags(v) }

func words(format string, args ...any) Value { return Words(fmt.Sprintf(format, args...)) }

func text(v Value) string {
	if v == nil {
		return ""
	}
	return v.String()
}

// fields is a value for JSON; nil for words.
func fields(v Value) any {
	switch v := v.(type) {
	case Words:
		return nil
	case format.Key:
		return map[string]any{"objectid": int64(v.Objectid), "type": v.Type, "offset": v.Offset}
	}
	return v
}

// Word is a coordinate of a place.
type Word uint8

// The words.
const (
	AtTree Word = 1 + iota
	AtLog       // the subvolume whose log it is
	AtBlock
	AtSlot
	AtMirror
	AtDevid
	AtDevice // the name of a device, which is the place's text
	AtDeviceOffset
	AtPhysical
	AtLogical
	AtLength
	AtStart
	AtStripe
	AtRow
	AtParity // of RAID5 and RAID6: 'P' or 'Q'
	AtRootItem
	AtParent
	AtChild
	AtName // of an entry, which is the place's text
	AtDir
	AtIno
	AtSubvolume
	AtFileOffset
	AtBlockGroup
	AtExtent
	AtQgroup
	AtCopy // of the superblock
	AtBytenr
	AtSuperblock
	AtSysArray // of the superblock
	AtNoDevice // one that is not at hand
	wordsEnd

	apart Word = 0x80 // after a comma
)

var wordNames = [wordsEnd]string{AtTree: "root", AtLog: "log of root", AtBlock: "block", AtSlot: "slot", AtMirror: "mirror",
	AtDevid: "devid", AtDevice: "device", AtDeviceOffset: "device_offset", AtPhysical: "physical", AtLogical: "logical",
	AtLength: "length", AtStart: "start", AtStripe: "stripe", AtRow: "row", AtParity: "parity", AtRootItem: "root_item",
	AtParent: "parent", AtChild: "child", AtName: "name", AtDir: "dir", AtIno: "ino", AtSubvolume: "subvolume",
	AtFileOffset: "file_offset", AtBlockGroup: "block_group", AtExtent: "extent", AtQgroup: "qgroup", AtCopy: "copy",
	AtBytenr: "bytenr", AtSuperblock: "superblock", AtSysArray: "sys_chunk_array", AtNoDevice: "no such device"}

// placeMax is the most coordinates that a place has.
const placeMax = 8

// Place is where a rule is broken: a few coordinates, in the order in which they are shown. Two
// places are equal (==) if these are.
type Place struct {
	n     uint8
	words [placeMax]Word
	nums  [placeMax]uint64
	text  string // a name, if one of the words is one
}

// on is the place of one coordinate.
func on(w Word, v uint64) Place { return Place{}.with(w, v) }

// with is the place with one more coordinate.
func (p Place) with(w Word, v uint64) Place {
	p.words[p.n], p.nums[p.n] = w, v
	p.n++
	return p
}

// named is the place with the name of an entry.
func (p Place) named(name string) Place {
	p.text = name
	return p.with(AtName, 0)
}

// ofDevice is the place with the name of a device.
func (p Place) ofDevice(name string) Place {
	p.text = name
	return p.with(AtDevice, 0)
}

// joined is the place with the coordinates of q, which has no name.
func (p Place) joined(q Place) Place {
	for i := range q.n {
		p = p.with(q.words[i], q.nums[i])
	}
	return p
}

// PlaceOf is the place of an inode.
func PlaceOf(tree, ino uint64) Place { return on(AtTree, tree).with(AtIno, ino) }

// Get is a coordinate, and whether the place has it. Names are in Name.
func (p Place) Get(w Word) (uint64, bool) {
	for i := range p.n {
		if p.words[i]&^apart == w {
			return p.nums[i], true
		}
	}
	return 0, false
}

// Num is a coordinate, 0 if the place has none.
func (p Place) Num(w Word) uint64 {
	v, _ := p.Get(w)
	return v
}

// Name is the name of the entry or the device.
func (p Place) Name() string { return p.text }

func (p Place) String() string {
	var b strings.Builder
	for i := range p.n {
		if i > 0 {
			if p.words[i]&apart != 0 {
				b.WriteByte(',')
			}
			b.WriteByte(' ')
		}
		w, v := p.words[i]&^apart, p.nums[i]
		switch w {
		case AtSuperblock, AtSysArray, AtNoDevice:
			b.WriteString(wordNames[w])
		case AtParity:
			b.WriteByte(byte(v))
		case AtName:
			fmt.Fprintf(&b, "%s=%q", wordNames[w], p.text)
		default:
			fmt.Fprintf(&b, "%s=%v", wordNames[w], p.field(int(i)))
		}
	}
	return b.String()
}

// field is the value of a coordinate as it is shown: ids of trees with their sign.
func (p Place) field(i int) any {
	switch w, v := p.words[i]&^apart, p.nums[i]; w {
	case AtSuperblock, AtSysArray, AtNoDevice:
		return true
	case AtParity:
		return string(rune(v))
	case AtName, AtDevice:
		return p.text
	case AtTree, AtLog, AtRootItem:
		return int64(v)
	case AtQgroup:
		return fmt.Sprintf("%d/%d", v>>qgroupLevelShift, v&(1<<qgroupLevelShift-1))
	default:
		return v
	}
}

// MarshalJSON gives an object with a field for each coordinate.
func (p Place) MarshalJSON() ([]byte, error) {
	m := map[string]any{}
	for i := range p.n {
		m[strings.ReplaceAll(wordNames[p.words[i]&^apart], " ", "_")] = p.field(int(i))
	}
	return json.Marshal(m)
}

// find adds a finding.
func (c *checker) find(rule string, place Place, have, want Value) {
	c.add(Finding{Rule: rule, Place: place, Have: have, Want: want})
}

func (c *checker) add(f Finding) {
	if _, ok := ruleOrder[f.Rule]; !ok {
		panic("check: no such rule: " + f.Rule)
	}
	c.mu.Lock()
	c.Broken[f.Rule] = true
	if len(c.Findings) < findingsMax {
		c.Findings = append(c.Findings, f)
	} else {
		c.dropped++
	}
	c.mu.Unlock()
}
