#!/usr/bin/env bash
# Build the notebook kernel, and run every notebook without a screen or open them in JupyterLab.
# Everything it makes lies in git-ignored folders; nothing is written to HOME.
#   run.sh OUT     executed notebooks and HTML pages go to OUT; an error in a cell fails the run.
#                  LONG=N/TEXT: only one in N of them, those that TEXT draws
#   run.sh --open  start JupyterLab here, with the kernel "btrlab (Go)"
#   run.sh --kernel DIR    only build the kernel, and tell the Jupyter whose data folder DIR is of it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
here=$PWD
open=
only=
case "${1:?output folder, --open, or --kernel DIR}" in
--open) open=1 ;;
--kernel)
	only=${2:?the data folder of a Jupyter}
	case $only in /*) ;; *) only=$OLDPWD/$only ;; esac
	;;
esac
[ -n "$open$only" ] || out=$(mkdir -p "../$1" && cd "../$1" && pwd)

# quietly COMMAND... shows what the command printed only when it fails: nbconvert and the interpreter talk about what is no concern here.
quietly() {
	local log
	log=$(mktemp)
	if ! "$@" >"$log" 2>&1; then
		cat "$log" >&2
		rm -f "$log"
		return 1
	fi
	rm -f "$log"
}

echo "building the kernel of the notebooks (Go)"
kernel=$here/_kernel
mod=$(go list -m -f '{{.Dir}}' github.com/gopherdata/gophernotes)
[ -n "$mod" ] || { go mod download github.com/gopherdata/gophernotes; mod=$(go list -m -f '{{.Dir}}' github.com/gopherdata/gophernotes); }
rm -rf "$kernel" && mkdir -p "$kernel"
for f in "$mod"/*.go; do
	case $f in *_test.go) ;; *) install -m 644 "$f" "$kernel" ;; esac
done
install -m 644 _lab/zz_lab.go "$kernel"
# Nothing interrupts the interpreter of gophernotes: a line more hands it to zz_lab.go.
awk '{ print } /^\tir := interp\.New\(\)$/ { print "\tlisten(ir)" }' "$mod/kernel.go" >"$kernel/kernel.go"
[ "$(grep -c '^	listen(ir)$' "$kernel/kernel.go")" = 1 ] || { echo "bad kernel.go of gophernotes, want one line that makes the interpreter" >&2; exit 1; }
go build -o "$kernel/gophernotes" "./_kernel"

# kernelspec FOLDER: tells the Jupyter whose data folder it is of the kernel.
kernelspec() {
	mkdir -p "$1/kernels/gophernotes"
	cat >"$1/kernels/gophernotes/kernel.json" <<JSON
{"argv": ["$kernel/gophernotes", "{connection_file}"], "display_name": "btrlab (Go)", "language": "go",
 "name": "gophernotes", "interrupt_mode": "signal"}
JSON
}
if [ -n "$only" ]; then
	kernelspec "$only"
	exit
fi

venv=$here/.venv
export PIP_CACHE_DIR=$venv/.cache
# pip_install STAMP PIN... installs what is not there yet.
pip_install() {
	local stamp=$venv/$1
	shift
	[ "$(cat "$stamp" 2>/dev/null)" = "$*" ] && return
	echo "installing $* in notebooks/.venv: some minutes, the first time only"
	quietly "$venv/bin/pip" install --disable-pip-version-check "$@"
	printf '%s\n' "$*" >"$stamp"
}
[ -x "$venv/bin/pip" ] || { rm -rf "$venv" && python3 -m venv "$venv"; }
pip_install pins nbclient==0.11.0 nbconvert==7.17.2
[ -z "$open" ] || pip_install pins-lab jupyterlab==4.6.6

jup=$here/.jupyter
export JUPYTER_PATH=$jup/share JUPYTER_CONFIG_DIR=$jup/config JUPYTER_DATA_DIR=$jup/data JUPYTER_RUNTIME_DIR=$jup/run IPYTHONDIR=$jup/ipython
mkdir -p "$JUPYTER_CONFIG_DIR" "$JUPYTER_DATA_DIR" "$JUPYTER_RUNTIME_DIR" "$IPYTHONDIR"
kernelspec "$jup/share"

if [ -n "$open" ]; then
	export JUPYTERLAB_SETTINGS_DIR=$jup/lab/settings JUPYTERLAB_WORKSPACES_DIR=$jup/lab/workspaces
	# JupyterLab refuses to run as root unless it is told that root means it.
	root=()
	[ "$(id -u)" != 0 ] || root=(--allow-root)
	echo "waiting for JupyterLab: it prints an address, to open in a browser; Ctrl-C here ends it"
	shift
	exec "$venv/bin/jupyter-lab" --notebook-dir="$here" ${root[@]+"${root[@]}"} "$@"
fi

found=("$here"/*.ipynb)
[ -e "${found[0]}" ] || { echo "no notebook found" >&2; exit 1; }
if [[ ${LONG:-} == [1-9]*/* ]]; then # one in N, which the text draws
	drawn=()
	for n in "${found[@]}"; do
		sum=$(printf '%s %s' "${LONG#*/}" "$(basename "$n")" | cksum)
		[ $((${sum%% *} % ${LONG%%/*})) != 0 ] || drawn+=("$n")
	done
	[ ${#drawn[@]} -gt 0 ] || drawn=("${found[0]}") # so it is never empty: bash 3.2 knows no empty list under set -u
	found=("${drawn[@]}")
fi
printf 'notebook %s\n' "${found[@]##*/}"
quietly "$venv/bin/jupyter-nbconvert" --to notebook --execute --ExecutePreprocessor.kernel_name=gophernotes \
	--ExecutePreprocessor.timeout=300 --output-dir "$out" "${found[@]}"
done=("${found[@]/#$here/$out}")
quietly "$venv/bin/jupyter-nbconvert" --to html --template template --TemplateExporter.extra_template_basedirs="$here/_lab" --output-dir "$out" "${done[@]}"
if grep -lE '<(script|link)[^>]* (src|href)="?https?:' "${done[@]/%.ipynb/.html}"; then
	echo "these pages load something from a server, want none: they are read without a network" >&2
	exit 1
fi
"$venv/bin/python" _lab/interrupted.py
if grep -l 'skipping import' "${done[@]}"; then
	echo "these notebooks show a warning of the interpreter: a type of package nb has one of its fields' types with generics" >&2
	exit 1
fi
echo "${#found[@]} notebooks run; written to ${out#"$(dirname "$here")"/}/*.html"
