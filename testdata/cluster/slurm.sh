#!/bin/bash
# Long work as a Slurm array: one shard a task, by any command that has --shard. Nothing of ours has to run beside Slurm.
#
#   WORK="explore --all --preemptions 3" sbatch --array=0-63 testdata/cluster/slurm.sh
#   btrlab merge part-*.json        # when the array has ended; exit code 1 means that something was found
#
# A shard ends with code 0 when its file is whole, whatever it has found. Before the time limit, and when a task is requeued, Slurm
# sends SIGTERM: the shard keeps what is whole and ends with code 130, and the same array goes on there. Tasks whose files are whole
# end at once. Shards differ in size; name more of them than machines.
#SBATCH --job-name=btrlab
#SBATCH --array=0-15
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --time=01:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=btrlab-%A-%a.log
set -eu
# shellcheck disable=SC2086 # WORK is words
exec btrlab $WORK --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --out "part-$SLURM_ARRAY_TASK_ID.json"
