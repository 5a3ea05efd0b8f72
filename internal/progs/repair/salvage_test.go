package repair

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/damaged"
	"btrlab/internal/testing/need"
)

// readable is each file of an image that can be read whole, by subvolume and inode: a sum of its
// bytes, and one of its names. It follows names from the root directory of a subvolume by DIR_ITEM
// or DIR_INDEX, as a reader does.
func readable(t *testing.T, tk *sched.Task, dev blockdev.Device) map[string]string {
	t.Helper()
	_, seen, err := check.Examine(tk, dev, check.Options{NoData: true})
	if err != nil || seen.Super.NodeSize == 0 {
		return nil
	}
	c := &changes{Seen: seen}
	sums := map[uint64][]byte{}
	size, sector := c.Super.CsumType.Size(), uint64(c.Super.SectorSize)
	c.Each(format.CSUM_TREE_OBJECTID, func(k format.Key, b []byte) {
		for i := 0; k.Type == format.EXTENT_CSUM_KEY && (i+1)*size <= len(b); i++ {
			sums[k.Offset+uint64(i)*sector] = slices.Clone(b[i*size:][:size])
		}
	})
	files := map[string]string{}
	for _, root := range c.RootIDs {
		if !format.IsFSTree(root) || c.Roots[root].Item.Refs == 0 {
			continue
		}
		inodes := map[uint64]format.InodeItem{}
		entries := map[uint64]map[uint64]bool{}
		bytesOf := map[uint64][]byte{}
		bad := map[uint64]bool{}
		nbytes := map[uint64]uint64{}
		c.Each(root, func(k format.Key, b []byte) {
			switch k.Type {
			case format.INODE_ITEM_KEY:
				var i format.InodeItem
				i.Decode(b)
				inodes[k.Objectid] = i
			case format.DIR_ITEM_KEY, format.DIR_INDEX_KEY:
				list, _ := format.DirItems(b)
				for _, d := range list {
					if entries[k.Objectid] == nil {
						entries[k.Objectid] = map[uint64]bool{}
					}
					entries[k.Objectid][d.Location.Objectid] = d.Location.Type == format.INODE_ITEM_KEY
				}
			case format.EXTENT_DATA_KEY:
				var fe format.FileExtent
				fe.Decode(b)
				p := []byte(fmt.Sprintf("%d:%d:", k.Offset, fe.Type))
				if fe.Type == format.FileExtentTypeInline {
					nbytes[k.Objectid] += fe.RAMBytes
				} else if fe.DiskBytenr != 0 {
					nbytes[k.Objectid] += fe.NumBytes
				}
				switch i := inodes[k.Objectid]; {
				case fe.Type == format.FileExtentTypeInline && i.Mode&format.S_IFMT == format.S_IFLNK && i.Size != fe.RAMBytes,
					fe.Type != format.FileExtentTypeInline && fe.Compression == format.CompressNone && fe.Offset+fe.NumBytes > fe.DiskNumBytes && fe.DiskBytenr != 0,
					fe.Compression != format.CompressNone && (fe.Type == format.FileExtentTypePrealloc || i.Flags&format.InodeNoDataSum != 0):
					bad[k.Objectid] = true // it contradicts itself
				case fe.Type == format.FileExtentTypeInline:
					p = append(p, fe.Inline...)
				case fe.DiskBytenr == 0 || fe.Type == format.FileExtentTypePrealloc:
					p = nil
				default:
					start, n := fe.DiskBytenr+fe.Offset, fe.NumBytes
					if fe.Compression != format.CompressNone {
						start, n = fe.DiskBytenr, fe.DiskNumBytes
					}
					ch := c.ChunkAt(start)
					if ch == nil || n > ch.Start+ch.Length-start {
						bad[k.Objectid] = true
						n = 0
					}
					for at := start; at < start+n; at += sector {
						q := make([]byte, sector)
						good := ch != nil
						if good {
							places, _ := ch.Places(at)
							good = c.readAny(places[:1], q)
						}
						plain := inodes[k.Objectid].Flags&format.InodeNoDataSum != 0
						if !good || !plain && (sums[at] == nil || !c.Super.CsumType.Match(sums[at], q)) {
							bad[k.Objectid] = true
						}
						p = append(p, q...)
					}
				}
				bytesOf[k.Objectid] = append(bytesOf[k.Objectid], p...)
			}
		})
		seen := map[uint64]bool{}
		var visit func(dir uint64)
		visit = func(dir uint64) {
			if seen[dir] {
				return
			}
			seen[dir] = true
			for _, ino := range slices.Sorted(maps.Keys(entries[dir])) {
				i, ok := inodes[ino]
				if !ok || !entries[dir][ino] {
					continue
				}
				if i.Mode&format.S_IFMT == format.S_IFDIR {
					visit(ino)
				} else if i.Nlink == 0 {
					continue // being deleted, whoever names it
				} else if !bad[ino] && nbytes[ino] == i.Nbytes { // else a part of it is not there
					files[fmt.Sprintf("%d/%d", root, ino)] = fmt.Sprintf("mode 0%o size %d %x", i.Mode, i.Size, sha256.Sum256(bytesOf[ino]))
				}
			}
		}
		visit(format.FIRST_FREE_OBJECTID)
	}
	return files
}

// proposed proposes a repair of an image, and demands what holds for each: no file that could be
// read before is lost or another one, and the device has after Commit what was proposed.
func proposed(t *testing.T, m *damaged.Image) *Repair {
	t.Helper()
	before := readable(t, m.Task, m.Dev)
	r, err := Propose(m.Task, m.Dev, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Better() {
		return r
	}
	if err := commit(m, r); err != nil {
		t.Fatal(err)
	}
	after := readable(t, m.Task, m.Dev)
	for id, want := range before {
		if have, ok := after[id]; !ok || have != want {
			t.Errorf("file %s: have %q want %q\n%s\n%q", id, have, want, damaged.Text(r.Before), r.Done)
		}
	}
	if res := m.Check(); !slices.Equal(res.Findings, r.After.Findings) {
		t.Errorf("after Commit:\n%swant\n%s", damaged.Text(res), damaged.Text(r.After))
	}
	return r
}

// incurable are the damages of the tables of TestEachRuleFires and TestDamageByOne after which a
// repair does not make the image clean, with the reason.
var incurable = map[string]string{
	"unknown csum type":                      "nothing says which type it was",
	"both copies of a block bad":             "its items are lost",
	"pointer loop":                           "the block that was meant is lost",
	"metadata in the data group":             "nothing is moved",
	"data in the metadata group":             "nothing is moved",
	"extent in two groups":                   "nothing is moved",
	"extent over a superblock copy":          "nothing is moved",
	"system chunk in the tree only":          "nothing is moved: data is in a chunk that says it is for chunks",
	"chunk of two types":                     "either may be the right one",
	"data rotten":                            "the bytes are lost",
	"checksum wrong":                         "the bytes or the checksum may be wrong",
	"compressed extent of more than 128 KiB": "what it was is not known",
	"symbolic link without target":           "the target is lost",
	"data in a pipe":                         "its mode or its data may be wrong",
	"inline extent of more than a sector":    "what it was is not known",
}

// repaired repairs an image of a table.
func repaired(t *testing.T, m *damaged.Image, name string) {
	t.Helper()
	r := proposed(t, m)
	_, known := incurable[name]
	if r.After.Clean == known {
		t.Errorf("clean %v, incurable %v\n%swant done %q left %q\nafter:\n%s", r.After.Clean, known, damaged.Text(r.Before), r.Done, r.Left, damaged.Text(r.After))
	}
	if r.After.Clean {
		return
	}
	t.Logf("%s: left %s", name, strings.Join(r.Left, "; "))
}

// TestMends: a repair makes an image clean after each of the damages that the rules of the check
// are tried with, but for those whose reason is in incurable.
func TestMends(t *testing.T) {
	need.Long(t)
	base := damaged.NewImage(t)
	for _, c := range append(damaged.EachRule(base), damaged.ByOne(base)...) {
		t.Run(strings.ReplaceAll(c.Name, " ", "-"), func(t *testing.T) {
			m := base.Clone(t)
			c.Do(m)
			repaired(t, m, c.Name)
		})
	}
}
