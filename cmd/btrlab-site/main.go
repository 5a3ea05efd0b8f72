// Command btrlab-site writes the site of `make site` into a folder. It needs the program, compiled
// for the browser:
//
//	GOOS=js GOARCH=wasm go build -trimpath -ldflags='-s -w' -o btrlab.wasm ./cmd/btrlab-web
//	go run ./cmd/btrlab-site -wasm btrlab.wasm -out artifacts/site
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"btrlab/internal/prose"
	"btrlab/internal/site/pages"
)

func main() {
	wasm := flag.String("wasm", "", "the program: cmd/btrlab-web, built for js/wasm")
	exec := flag.String("exec", "", "lib/wasm/wasm_exec.js of the Go that built it")
	out := flag.String("out", "artifacts/site", "the folder to write")
	flag.Parse()
	if err := write(*wasm, *exec, *out); err != nil {
		fmt.Fprintln(os.Stderr, "btrlab-site:", err)
		os.Exit(1)
	}
}

func write(wasm, exec, out string) error {
	var p pages.Parts
	var err error
	if p.Wasm, err = os.ReadFile(wasm); err != nil {
		return err
	}
	if p.WasmExec, err = os.ReadFile(exec); err != nil {
		return err
	}
	n, err := pages.Write(out, p)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s to load; open it in a browser\n", filepath.Join(out, pages.Page), prose.Count(n, "byte"))
	return nil
}
