#!/bin/bash
# fetch.sh DIR [VERSION...]: Debian's kernels that btrlab knows, unpacked below DIR, by version: each
# by apt-get with a sources list of its own, in DIR/.apt, from where this machine gets its packages.
# Nothing is installed, and a kernel that is there already is left alone.
set -eu
dir=${1:?bad arguments, have none want a folder}
shift
wanted=${*:-5.10 6.1 6.12 6.18 7.3}

# Version, suite, packages.
kernels() {
	cat <<-'K'
		5.10 bullseye linux-image-5.10.0-32-cloud-amd64
		6.1 bookworm linux-image-6.1.0-50-cloud-amd64
		6.12 bookworm-security linux-image-6.12.111+deb12-cloud-amd64
		6.18 trixie-backports linux-image-6.18.15+deb13-cloud-amd64
		7.3 trixie-backports linux-binary-7.3.4+deb13-cloud-amd64 linux-modules-7.3.4+deb13-cloud-amd64
	K
}

missing=()
for v in $wanted; do
	if ! kernels | grep -q "^$v "; then
		echo "fetch: bad version, have $v want one of $(kernels | cut -d' ' -f1 | tr '\n' ' ')" >&2
		exit 2
	fi
	[ -d "$dir/$v" ] || missing+=("$v")
done
if [ ${#missing[@]} -gt 0 ]; then
	for tool in apt-get dpkg-deb; do
		command -v $tool >/dev/null || { echo "fetch: no $tool: the kernels are Debian's packages" >&2; exit 2; }
	done
	apt=$(realpath -m "$dir/.apt")
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs"
	site() { apt-get indextargets --format '$(LABEL) $(REPO_URI)' | awk -v l="$1" '$1 == l { print $2; exit }'; }
	main=$(site Debian) security=$(site Debian-Security)
	[ -n "$main" ] || { echo "fetch: this machine's apt knows no Debian: the kernels are Debian's packages" >&2; exit 1; }
	for v in "${missing[@]}"; do
		suite=$(kernels | awk -v v="$v" '$1 == v { print $2 }')
		case $suite in
		*-security) echo "deb ${security:-$main} $suite main" ;;
		*) echo "deb $main $suite main" ;;
		esac
	done | sort -u >"$apt/sources.list"
	options=(-qq -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache"
		-o Acquire::Languages=none -o APT::Sandbox::User=)
	apt-get "${options[@]}" update
	for v in "${missing[@]}"; do
		rm -rf "$dir/$v.part" "$apt/debs"
		mkdir -p "$dir/$v.part" "$apt/debs"
		(cd "$apt/debs" && apt-get "${options[@]}" download $(kernels | awk -v v="$v" '$1 == v { $1 = $2 = ""; print }'))
		for deb in "$apt"/debs/*.deb; do dpkg-deb -x "$deb" "$dir/$v.part"; done
		mv "$dir/$v.part" "$dir/$v"
	done
	rm -rf "$apt"
fi
for v in $wanted; do echo "kernel $v: $(find "$dir/$v" -name 'vmlinuz*' -print -quit)"; done
