#!/bin/bash
# A search that is too big for one machine, as a Slurm array: one shard a task. Nothing of ours has to run beside Slurm.
#
#   sbatch --export=ALL,SCENARIO=two-writers-truncate,POLICY=unlocked-drain testdata/cluster/explore-slurm.sh
#   btrlab explore merge part-*.json        # when the array has ended; exit code 1 means violated
#
# Shards are searched by dpor, whose parts do not repeat each other's work as those of the other methods do: of
# two-writers-truncate under unlocked-drain 16 parts have 541 to 2,747 schedules (one search 11,294), by method bound four of them
# 27,131 to 69,183 (one search 70,199). Parts differ in size; name more of them than machines.
#
# A shard ends before the time limit does (--time), or when Slurm sends SIGTERM, and leaves what it has come to: the merge then says
# "bounded". A shard that left nothing is missing in the merge, which says "bounded", too, and how many are missing.
#SBATCH --job-name=btrlab-explore
#SBATCH --array=0-15
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --time=01:00:00
#SBATCH --output=explore-%A-%a.log
set -eu
part=part-$SLURM_ARRAY_TASK_ID.json
code=0
btrlab explore "$SCENARIO" --policy "$POLICY" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --time "${LIMIT:-55m}" --json \
	>"$part.tmp" || code=$?
case $code in
0 | 1) mv "$part.tmp" "$part" ;; # 1: found a violation, which the merge reports
130) # stopped
	mv "$part.tmp" "$part"
	exit $code
	;;
*) exit $code ;;
esac
