#!/usr/bin/env bash
# Runs once, when the image of the autograder is made. It finds Go, builds the grader and fills the build cache, so that grading needs no
# network. Its folder is source/ of Gradescope's /autograder; another place of the whole is the variable BTRLAB_AUTOGRADER.
set -euo pipefail
base=${BTRLAB_AUTOGRADER:-/autograder}
cd "$base/source"
export PATH=$base/go/bin:$PATH HOME=${HOME:-/root} GOTOOLCHAIN=local GOPROXY=off GOFLAGS="-mod=vendor -trimpath" GOCACHE=${GOCACHE:-$base/cache} CGO_ENABLED=0

if [ -e go.tar.gz ]; then # of btrlab lab autograder --go
	tar -C "$base" -xzf go.tar.gz
elif ! go list -m >/dev/null 2>&1; then # there is none, or one that is older than go.mod wants
	case $(uname -m) in x86_64) arch=amd64 ;; aarch64 | arm64) arch=arm64 ;; *) arch=$(uname -m) ;; esac
	if ! command -v curl >/dev/null; then
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates curl
	fi
	curl -fsSL --retry 3 "https://go.dev/dl/go@GO@.linux-$arch.tar.gz" | tar -C "$base" -xz
fi
go version
go build -o "$base/btrlab-autograder" ./cmd/btrlab-autograder
# The rest of the program that is built for each submission.
go build @NEEDS@
