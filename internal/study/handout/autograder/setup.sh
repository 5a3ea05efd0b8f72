#!/usr/bin/env bash
# Runs once, when the image of the autograder is made. It finds Go, builds the grader and fills the build cache, so that grading needs no
# network. Its folder is source/ of Gradescope's /autograder; another place of the whole is the variable BTRLAB_AUTOGRADER.
set -euo pipefail
base=${BTRLAB_AUTOGRADER:-/autograder}
cd "$base/source"
export PATH=$base/go/bin:$PATH HOME=${HOME:-/root} GOTOOLCHAIN=local GOPROXY=off GOFLAGS="-mod=vendor -trimpath" GOCACHE=${GOCACHE:-$base/cache} CGO_ENABLED=0

# unpack unpacks an archive of Go, unless its SHA-256 is not the one that this script was made with.
unpack() {
	have=$(sha256sum "$1" | cut -d ' ' -f 1)
	if [ "$have" != "$2" ]; then
		echo "bad archive of Go $1, have sha256 ${have:-none} want ${2:-one for $(uname -m), make the autograder with --go}" >&2
		exit 1
	fi
	tar -C "$base" -xzf "$1"
}

if [ -e go.tar.gz ]; then # of btrlab lab autograder --go
	unpack go.tar.gz @SUM@
elif ! go list -m >/dev/null 2>&1; then # there is none, or one that is older than go.mod wants
	case $(uname -m) in
	x86_64) arch=amd64 sum=@AMD64@ ;;
	aarch64 | arm64) arch=arm64 sum=@ARM64@ ;;
	*) arch=$(uname -m) sum= ;;
	esac
	if ! command -v curl >/dev/null; then
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates curl
	fi
	curl -fsSL --retry 3 -o "$base/go.tar.gz" "https://go.dev/dl/go@GO@.linux-$arch.tar.gz"
	unpack "$base/go.tar.gz" "$sum"
	rm "$base/go.tar.gz"
fi
go version
go build -o "$base/btrlab-autograder" ./cmd/btrlab-autograder
# The rest of the program that is built for each submission.
go build @NEEDS@
