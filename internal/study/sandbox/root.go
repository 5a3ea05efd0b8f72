package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"btrlab/internal/module"
)

// Root finds the module's folder from dir upwards.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		b, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module "+module.Path+"\n") {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is in no clone of btrlab: labs need its source and the go tool", dir)
		}
	}
}
