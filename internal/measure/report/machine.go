package report

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine says what the numbers were measured on.
func Machine() [][2]string {
	out := [][2]string{{"processor", fmt.Sprintf("%s, %d CPUs, GOMAXPROCS %d", field("/proc/cpuinfo", "model name"), runtime.NumCPU(), runtime.GOMAXPROCS(0))}}
	var kb uint64
	if fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d", &kb); kb > 0 {
		out = append(out, [2]string{"memory", fmt.Sprintf("%.1f GiB", float64(kb)/(1<<20))})
	}
	out = append(out, [2]string{"system", system()})
	return append(out, [2]string{"Go", strings.TrimPrefix(runtime.Version(), "go")})
}

// field is the value of the first "name : value" line of a file in /proc, or "unknown".
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		k, v, ok := strings.Cut(sc.Text(), ":")
		if ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}
