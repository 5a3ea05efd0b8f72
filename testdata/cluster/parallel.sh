#!/bin/sh
# Long work by GNU parallel: so many shards, one a processor of this machine, or of those that --sshloginfile names.
#
#   WORK="crash --bounded 2" SHARDS=64 sh testdata/cluster/parallel.sh --jobs 8
#   btrlab merge part-*.json        # exit code 1 means that something was found
#
# The arguments are for parallel. When it was interrupted, the same line goes on where each shard was.
set -eu
# Parallel has the same words in WORK as this shell would have.
seq 0 "$((SHARDS - 1))" | parallel "$@" --halt soon,fail=1 --joblog btrlab-parallel.log "btrlab $WORK --shard {}/$SHARDS --out part-{}.json"
