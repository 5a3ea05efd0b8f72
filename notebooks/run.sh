#!/usr/bin/env bash
# Build the notebook kernel and run every notebook without a screen. An error in a cell fails the run.
# Everything it makes lies in git-ignored folders; nothing is written to HOME.
#   run.sh OUT    executed notebooks and HTML pages go to OUT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
here=$PWD
out=$(mkdir -p "../${1:?output folder}" && cd "../$1" && pwd)

kernel=$here/_kernel
mod=$(go list -m -f '{{.Dir}}' github.com/gopherdata/gophernotes)
[ -n "$mod" ] || { go mod download github.com/gopherdata/gophernotes; mod=$(go list -m -f '{{.Dir}}' github.com/gopherdata/gophernotes); }
rm -rf "$kernel" && mkdir -p "$kernel"
for f in "$mod"/*.go; do
	case $f in *_test.go) ;; *) install -m 644 "$f" "$kernel" ;; esac
done
install -m 644 _lab/zz_lab.go "$kernel"
go build -o "$kernel/gophernotes" "./_kernel"

venv=$here/.venv
pins="nbclient==0.11.0 nbconvert==7.17.2"
if [ "$(cat "$venv/pins" 2>/dev/null)" != "$pins" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	# shellcheck disable=SC2086
	"$venv/bin/pip" install --quiet --disable-pip-version-check $pins
	printf '%s\n' "$pins" >"$venv/pins"
fi

jup=$here/.jupyter
export JUPYTER_PATH=$jup/share JUPYTER_CONFIG_DIR=$jup/config JUPYTER_DATA_DIR=$jup/data JUPYTER_RUNTIME_DIR=$jup/run IPYTHONDIR=$jup/ipython
mkdir -p "$jup/share/kernels/gophernotes" "$JUPYTER_CONFIG_DIR" "$JUPYTER_DATA_DIR" "$JUPYTER_RUNTIME_DIR" "$IPYTHONDIR"
cat >"$jup/share/kernels/gophernotes/kernel.json" <<JSON
{"argv": ["$kernel/gophernotes", "{connection_file}"], "display_name": "btrlab (Go)", "language": "go",
 "name": "gophernotes", "interrupt_mode": "message"}
JSON

found=0
for n in "$here"/*.ipynb; do
	[ -e "$n" ] || continue
	found=1
	echo "notebook $(basename "$n")"
	"$venv/bin/jupyter-nbconvert" --log-level=WARN --to notebook --execute --ExecutePreprocessor.kernel_name=gophernotes \
		--ExecutePreprocessor.timeout=300 --output-dir "$out" "$n"
	"$venv/bin/jupyter-nbconvert" --log-level=WARN --to html --template classic --output-dir "$out" "$out/$(basename "$n")"
done
[ $found = 1 ] || { echo "no notebook found" >&2; exit 1; }
