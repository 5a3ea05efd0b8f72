#!/bin/bash
# A search that is too big for one machine, as a Slurm array: one shard a task. Nothing of ours has to run beside Slurm.
#
#   sbatch --export=ALL,SCENARIO=two-writers-truncate,POLICY=unlocked-drain testdata/cluster/explore-slurm.sh
#   btrlab explore merge part-*.json        # when the array has ended; exit code 1 means violated
#
# A shard that did not end is missing in the merge, which then says "bounded" and how many are missing.
#SBATCH --job-name=btrlab-explore
#SBATCH --array=0-15
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --time=01:00:00
#SBATCH --output=explore-%A-%a.log
set -eu
btrlab explore "$SCENARIO" --policy "$POLICY" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --json \
	>"part-$SLURM_ARRAY_TASK_ID.json.tmp" || [ $? -eq 1 ] # 1: found a violation, which the merge reports
mv "part-$SLURM_ARRAY_TASK_ID.json.tmp" "part-$SLURM_ARRAY_TASK_ID.json"
