package cli

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/testing/need"
)

var faultRuns = flag.Int("faults", 3, "runs of each verb in TestFaultsAnywhere")

// TestFaultsAnywhere: a write or a flush fails, the host has no room, or a write is torn and
// nothing comes after it, anywhere in a verb that changes an image. The verb ends with 0, or with 1
// and a line; the image is sound and has what was in it. Of mkfs nothing is left that opens and is
// not whole.
func TestFaultsAnywhere(t *testing.T) {
	need.Long(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) (int, string) {
		var out, errw bytes.Buffer
		code := Main(args, strings.NewReader(""), &out, &errw)
		return code, errw.String()
	}
	tree := path("tree")
	if err := os.MkdirAll(filepath.Join(tree, "d", "e"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		name := filepath.Join(tree, []string{"", "d", "d/e"}[i%3], fmt.Sprintf("f%d", i))
		if err := os.WriteFile(name, bytes.Repeat([]byte{byte(i)}, 1+i*i*150), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	base := path("base.img")
	verb(t, 0, "mkfs", "-q", "--size", "400M", base)
	verb(t, 0, "put", "-r", tree, base+":/old")
	verb(t, 0, "snapshot", base+":/", "/snap")
	verb(t, 0, "subvolume", "create", base+":/sv")
	verb(t, 0, "put", "-r", tree, base+":/sv/t")
	verb(t, 0, "snapshot", "-r", base+":/sv", "/ro")
	verb(t, 0, "send", "-f", path("stream"), base+":/ro")
	verb(t, 0, "mkdir", base+":/in")
	whole, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	verbs := []struct {
		name string
		args []string
	}{
		{"mkfs", []string{"mkfs", "-q", "--size", "200M", "--rootdir", tree, "IMG"}},
		{"put", []string{"put", "-r", tree, "IMG:/new"}},
		{"receive", []string{"receive", "-f", path("stream"), "IMG:/in"}},
		{"resize +", []string{"resize", "IMG", "+100M"}},
		{"resize -", []string{"resize", "IMG", "300M"}},
		{"resize min", []string{"resize", "IMG", "min"}},
		{"rm", []string{"rm", "-r", "IMG:/sv/t"}},
		{"delete", []string{"subvolume", "delete", "IMG:/snap"}},
		{"quota", []string{"quota", "enable", "IMG"}},
		{"repair", []string{"check", "--repair", "IMG"}},
	}
	img := path("w.img")
	set := func(damaged bool) {
		os.Remove(img + ".undo")
		f, err := os.Create(img)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		const step = 64 << 10 // holes stay
		for at := 0; at < len(whole); at += step {
			if p := whole[at:min(at+step, len(whole))]; bytes.Count(p, []byte{0}) < len(p) {
				_, err = f.WriteAt(p, int64(at))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Truncate(int64(len(whole))); err != nil {
			t.Fatal(err)
		}
		if damaged { // a copy of the superblock, and the header of a tree block in one copy
			for _, at := range []int64{64 << 20, 9437184 + 8<<20} {
				if _, err := f.WriteAt(make([]byte, 4096), at); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 42))
	for _, v := range verbs {
		args := func(fault string) (list []string) {
			for _, a := range v.args {
				list = append(list, strings.Replace(a, "IMG", img, 1))
			}
			if fault != "" {
				list = append(list, "--fault", fault)
			}
			return list
		}
		// How many writes there are: the last that fails.
		most := 1
		for n := 1; n < 1<<16; n *= 2 {
			set(v.name == "repair")
			if v.name == "mkfs" {
				os.Remove(img)
			}
			if code, _ := run(args(fmt.Sprintf("eio:write:%d+", n))...); code == 0 {
				break
			}
			most = 2 * n
		}
		failed := 0
		for range *faultRuns {
			kind := []string{"eio", "enospc", "torn"}[rng.IntN(3)]
			fault := fmt.Sprintf("%s:write:%d%s", kind, 1+rng.IntN(most), []string{"", "+"}[rng.IntN(2)])
			if rng.IntN(6) == 0 {
				fault = fmt.Sprintf("eio:flush:%d+", 1+rng.IntN(3))
			}
			set(v.name == "repair")
			if v.name == "mkfs" {
				os.Remove(img)
			}
			code, text := run(args(fault)...)
			what := fmt.Sprintf("%s --fault %s: exit code %d, %q", v.name, fault, code, text)
			if code != 0 {
				failed++
			}
			if code > 1 || code == 1 && (text == "" || strings.Contains(text, "goroutine")) {
				t.Error(what)
			}
			if v.name == "mkfs" {
				if _, err := os.Stat(img); (err == nil) != (code == 0) {
					t.Errorf("%s: %v", what, err)
				}
				if code != 0 {
					continue
				}
			}
			if v.name != "repair" {
				// As in Linux a primary superblock that is torn is a matter for rescue, and a spare
				// that cannot be written is a warning.
				if torn := strings.HasPrefix(fault, "torn") && code != 0; torn || strings.Contains(text, "a spare superblock") {
					run("rescue", "fix-super", img)
				}
				if code, text := run("check", img); code != 0 {
					t.Errorf("%s: the image is not sound: %s", what, text)
				}
			} else {
				os.Remove(img + ".undo")
				again, _ := run("check", "--repair", img)
				if sound, _ := run("check", img); again > 1 || sound != 0 {
					t.Errorf("%s: a second repair ends with %d, and a check of it with %d", what, again, sound)
				}
			}
			if v.name == "mkfs" {
				continue
			}
			out := path("out")
			if code, text := run("get", "-r", img+":/old", out); code != 0 {
				t.Errorf("%s: get: %s", what, text)
			}
			for _, f := range []string{"f0", "d/f1", "d/e/f38"} {
				want, err := os.ReadFile(filepath.Join(tree, f))
				have, err2 := os.ReadFile(filepath.Join(out, f))
				if err != nil || err2 != nil || !bytes.Equal(have, want) {
					t.Errorf("%s: /old/%s has %d bytes, %v %v", what, f, len(have), err, err2)
				}
			}
			os.RemoveAll(out)
		}
		t.Logf("%s: %d of %d runs failed, of up to %d writes", v.name, failed, *faultRuns, most)
	}
}
