package stats

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"btrlab/internal/testing/need"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata with what the code says")

// The bins are fio's: every value is within 1/128 of its bin's middle, bins ascend, and the corner
// values of stat.c are where fio puts them.
func TestHistBins(t *testing.T) {
	last := int64(-1)
	for i := range histBins {
		v := binValue(i)
		if v <= last {
			t.Fatalf("bin %d is %d after %d", i, v, last)
		}
		if binOf(uint64(v)) != i {
			t.Fatalf("bin %d has value %d, which is in bin %d", i, v, binOf(uint64(v)))
		}
		last = v
	}
	for _, c := range [][2]int64{{0, 0}, {127, 127}, {128, 129}, {129, 129}, {130, 131}, {64000, 64256}, {78000, 78336}, {1171456, 1171456}, {1 << 40, binValue(histBins - 1)}} {
		if got := binValue(binOf(uint64(c[0]))); got != c[1] {
			t.Errorf("%d is shown as %d, want %d", c[0], got, c[1])
		}
	}
	for range 100_000 {
		v := rand.Uint64N(1 << rand.UintN(34))
		if m := binValue(binOf(v)); math.Abs(float64(m)-float64(v)) > float64(v)/128+1 {
			t.Fatalf("%d is shown as %d", v, m)
		}
	}
}

// Count, mean, deviation and percentiles agree with the sorted values, also after a merge.
func TestHistAgainstSort(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var a, b Hist
	var all []int64
	for i := range 50_000 {
		v := int64(math.Exp(rnd.NormFloat64()*2 + 9))
		all = append(all, v)
		if i%3 == 0 {
			a.Add(v)
		} else {
			b.Add(v)
		}
	}
	a.Merge(&b)
	a.Merge(new(Hist))
	slices.Sort(all)
	sum, sq := 0.0, 0.0
	for _, v := range all {
		sum += float64(v)
	}
	mean := sum / float64(len(all))
	for _, v := range all {
		sq += (float64(v) - mean) * (float64(v) - mean)
	}
	dev := math.Sqrt(sq / float64(len(all)-1))
	if a.N() != uint64(len(all)) || a.Min() != all[0] || a.Max() != all[len(all)-1] {
		t.Errorf("n %d min %d max %d", a.N(), a.Min(), a.Max())
	}
	if math.Abs(a.Mean()-mean) > 1e-9*mean || math.Abs(a.Stddev()-dev) > 1e-9*dev {
		t.Errorf("mean %f want %f, stddev %f want %f", a.Mean(), mean, a.Stddev(), dev)
	}
	for _, p := range append([]float64{100}, Percentiles...) {
		want := all[int(math.Ceil(p/100*float64(len(all))))-1]
		if got := a.Percentile(p); math.Abs(float64(got-want)) > float64(want)/128+1 {
			t.Errorf("p%v is %d, want %d", p, got, want)
		}
		// Percentile is the smallest bin with a rank of p: the bin below has less.
		got := a.Percentile(p)
		if above, below := a.Rank(got), a.Rank(got-got/64-1); above < p || p < 100 && below >= p {
			t.Errorf("p%v, %d, has rank %v, and the bin below %v", p, got, above, below)
		}
	}
	if a.Rank(-1) != a.Rank(0) || a.Rank(a.Max()) != 100 || new(Hist).Rank(1) != 0 {
		t.Errorf("rank of -1 and 0: %v, %v; of the longest: %v; of none: %v", a.Rank(-1), a.Rank(0), a.Rank(a.Max()), new(Hist).Rank(1))
	}
	var one Hist
	one.Add(7)
	if one.Stddev() != 0 || one.Percentile(50) != 7 || one.Mean() != 7 {
		t.Error("one value")
	}
}

func BenchmarkHistAdd(b *testing.B) {
	var h Hist
	for i := range b.N {
		h.Add(int64(i) & 0xfffff)
	}
}

func TestNum2str(t *testing.T) {
	for _, c := range []struct {
		n      uint64
		digits int
		pow2   bool
		unit   string
		want   string
	}{ // as fio 3.33 printed them
		{44013, 4, false, "", "44.0k"}, {103168, 4, false, "", "103k"}, {254461, 4, false, "", "254k"},
		{181255160, 4, true, "B/s", "173MiB/s"}, {181255160, 4, false, "B/s", "181MB/s"},
		{1041000000, 4, true, "B/s", "993MiB/s"}, {1041000000, 4, false, "B/s", "1041MB/s"},
		{1048576, 4, true, "B", "1024KiB"}, {1048576, 4, false, "B", "1049kB"},
		{403392, 6, false, "", "403392"}, {1209900, 6, false, "", "1209.9k"}, {0, 4, false, "", "0"}, {9999, 4, false, "", "9999"},
	} {
		if got := num2str(c.n, c.digits, c.pow2, c.unit); got != c.want {
			t.Errorf("num2str(%d, %d, %v) = %s, want %s", c.n, c.digits, c.pow2, got, c.want)
		}
	}
}

// sample is a run with numbers in every field.
func sample() *Run {
	mk := func(seed uint64, slat bool) *Job {
		rnd := rand.New(rand.NewPCG(seed, 1))
		j := &Job{Name: "file1", Tasks: 1, Options: []Option{{"filename", "/f"}, {"time_based", ""}}, IODepth: 32, HasSlat: slat}
		for i, d := range []*Dir{&j.Read, &j.Write} {
			for range 20_000 * (i + 1) {
				s, c := int64(2000+rnd.ExpFloat64()*900), int64(60_000+rnd.ExpFloat64()*250_000)
				if slat {
					d.Slat.Add(s)
					d.Clat.Add(c)
					d.Lat.Add(s + c)
				} else {
					d.Clat.Add(s)
					d.Lat.Add(s)
				}
				d.IOs++
				d.Bytes += 4096
			}
			d.RunNs = 1_001_000_000
			d.BWKiB.Add(uint64(80_000 * (i + 1)))
			d.BWKiB.Add(uint64(80_300 * (i + 1)))
			d.IOPSSamp.Add(uint64(20_000 * (i + 1)))
			d.IOPSSamp.Add(uint64(20_075 * (i + 1)))
		}
		for range 300 {
			j.Sync.Add(int64(400_000 + rnd.ExpFloat64()*100_000))
		}
		j.RunNs, j.UserNs, j.SysNs, j.Ctx, j.Minf = 1_001_000_000, 56_000_000, 372_000_000, 10234, 2
		j.Depth[5], j.Depth[0] = 59_990, 10
		j.Submit[1], j.Complete[1], j.Complete[5] = 60_000, 59_968, 1
		return j
	}
	a := mk(1, true)
	a.Merge(mk(2, true))
	b := mk(3, false)
	b.Name, b.GroupID, b.Read, b.Desc = "file2", 1, Dir{}, "writes only"
	return &Run{End: time.Date(2026, 11, 20, 21, 33, 14, 429e6, time.UTC), Global: []Option{{"rw", "randrw"}, {"thread", "1"}},
		Jobs: []*Job{a, b}, ElapsedNs: 2e9}
}

// keys lists every path of a JSON value with its type, as testdata has it for fio 3.33.
func keys(v any, path string, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			out[path+"/"] = true
		}
		for k, x := range v {
			if strings.HasSuffix(path, "bins") {
				k = "*"
			}
			keys(x, path+"/"+k, out)
		}
	case []any:
		for _, x := range v {
			keys(x, path+"[]", out)
		}
	case string:
		out[path+" string"] = true
	default:
		out[path+" number"] = true
	}
}

// The JSON has exactly the keys that fio 3.33 writes for a job of the same kind, with the same
// types.
func TestJSONKeysOfFio(t *testing.T) {
	want, err := os.ReadFile("testdata/fio-3.33.keys")
	if err != nil {
		t.Fatal(err)
	}
	r := sample()
	r.Jobs[1].Desc = "" // as the stored run
	var b bytes.Buffer
	if err := r.WriteJSON(&b, true); err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	keys(v, "", have)
	for k := range have {
		if strings.Contains(k, " options/") {
			delete(have, k)
		}
	}
	for _, k := range strings.Split(strings.TrimSpace(string(want)), "\n") {
		if !have[k] {
			t.Errorf("fio has %s, we do not", k)
		}
		delete(have, k)
	}
	for k := range have {
		t.Errorf("we have %s, fio does not", k)
	}
}

// The text and the JSON of a fixed run are in testdata, to be looked at.
func TestGolden(t *testing.T) {
	var text, js bytes.Buffer
	r := sample()
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&js, false); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(text.String(), fmt.Sprintf("pid=%d", os.Getpid()), "pid=PID")
	for name, have := range map[string]string{"run.txt": got, "run.json": js.String()} {
		file := filepath.Join("testdata", name)
		if *rewrite {
			if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if have != string(want) {
			t.Errorf("%s differs from testdata; run with -rewrite and look\n%s", name, have)
		}
	}
}

// fio's own converter reads our json+, and finds in it what we put there.
func TestFioClat2CSV(t *testing.T) {
	const tool = "fio_jsonplus_clat2csv" // of Debian's package fio
	need.All(t, tool)
	dir := t.TempDir()
	r := sample()
	var b bytes.Buffer
	if err := r.WriteJSON(&b, true); err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(dir, "out.json")
	if err := os.WriteFile(src, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{src, filepath.Join(dir, "x.csv")}, {src, filepath.Join(dir, "x.csv"), "--validate"}} {
		out, err := exec.Command(tool, args...).CombinedOutput()
		if err != nil && strings.Contains(string(out), "No module named") && !need.Forced() {
			t.Skipf("SKIPPED: %s", out)
		}
		if err != nil || bytes.Contains(out, []byte("mismatch")) {
			t.Fatalf("%v: %s", err, out)
		}
	}
	csv, err := os.ReadFile(filepath.Join(dir, "x_job0.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(csv)), "\n")
	head := strings.Split(lines[0], ", ")
	col := slices.Index(head, "write_clat_ns_count")
	sum := uint64(0)
	for _, l := range lines[1:] {
		var n uint64
		fmt.Sscan(strings.Split(l, ", ")[col], &n)
		sum += n
	}
	if sum != r.Jobs[0].Write.Clat.N() {
		t.Errorf("the CSV counts %d writes, we %d", sum, r.Jobs[0].Write.Clat.N())
	}
}

func TestSamplesMerge(t *testing.T) {
	var a, b Samples
	for _, v := range []uint64{10, 20, 30} {
		a.Add(v)
		b.Add(v * 10)
	}
	a.MergeSum(b)
	if a.N != 6 || a.Mean() != 220 || a.Min != 110 || a.Max != 330 {
		t.Errorf("%+v mean %f", a, a.Mean())
	}
	want := math.Sqrt(100 + 10000)
	if math.Abs(a.Stddev()-want) > 1e-6 {
		t.Errorf("stddev %f, want %f", a.Stddev(), want)
	}
}

func TestMergeWaits(t *testing.T) {
	got := MergeWaits([]Wait{{"a", 5, 1}, {"b", 3, 1}}, []Wait{{"b", 4, 2}, {"c", 1, 1}})
	if fmt.Sprint(got) != "[{b 7 3} {a 5 1} {c 1 1}]" || !sort.SliceIsSorted(got, func(i, k int) bool { return got[i].Nanos > got[k].Nanos }) {
		t.Error(got)
	}
}

// The squares of times of seconds need more than 64 bits: their sum has a carry in most additions.
func TestHistOfLongTimes(t *testing.T) {
	var a, b Hist
	for range 500 {
		a.Add(5e9)
		a.Add(7e9)
		b.Add(5e9)
		b.Add(7e9)
	}
	// it might be no number
	if want := 1e9 * math.Sqrt(1000.0/999); !(math.Abs(a.Stddev()-want) < 1) {
		t.Errorf("stddev %f, want %f", a.Stddev(), want)
	}
	a.Merge(&b)
	if want := 1e9 * math.Sqrt(2000.0/1999); !(math.Abs(a.Stddev()-want) < 1) || a.Mean() != 6e9 {
		t.Errorf("merged: mean %f, stddev %f, want %f", a.Mean(), a.Stddev(), want)
	}
}

// An empty histogram has no minimum that a merge could keep.
func TestHistMergeIntoEmpty(t *testing.T) {
	var a, b Hist
	b.Add(500)
	b.Add(700)
	a.Merge(&b)
	if a.Min() != 500 || a.Max() != 700 || a.N() != 2 || a.Percentile(1) != binValue(binOf(500)) {
		t.Errorf("min %d, max %d, n %d, p1 %d", a.Min(), a.Max(), a.N(), a.Percentile(1))
	}
	a.Merge(new(Hist))
	if a.Min() != 500 {
		t.Errorf("min %d after an empty one", a.Min())
	}
}

// The columns of the depth and batch tables begin where fio's do.
func TestLevels(t *testing.T) {
	for want, n := range []int{1, 2, 4, 8, 16, 32, 64} {
		if DepthLevel(n) != want || n > 1 && DepthLevel(n-1) != want-1 {
			t.Errorf("%d in flight are column %d, want %d", n, DepthLevel(n), want)
		}
	}
	for want, n := range []int{0, 4, 8, 16, 32, 64, 65} {
		if BatchLevel(n) != want || n < 64 && BatchLevel(n+1) != want+1 {
			t.Errorf("%d at once are column %d, want %d", n, BatchLevel(n), want)
		}
	}
}
