#!/bin/bash
# The outside judges of a mounted image: fsx, fsstress with and without a kill, pjdfstest, all of
# xfstests' generic, and a soak of SOAK minutes (3) with a kill in each. It takes root, more than an
# hour, and what both suites take to be built (CONTRIBUTING.md says which packages).
#
# usage: judges.sh BTRLAB WORK PJDFSTEST XFSTESTS    the last two are clones of pjd/pjdfstest and
#                                                    kdave/xfstests; WORK is made
set -euo pipefail
[ $# -eq 4 ] && [ -d "$3" ] && [ -d "$4" ] || { echo "bad judges, want PJDFSTEST=DIR and XFSTESTS=DIR: clones of pjd/pjdfstest and kdave/xfstests" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "bad user, want root" >&2; exit 2; }
mkdir -p "$2"
here=$(dirname "$(realpath "$0")")
btrlab=$(realpath "$1") work=$(realpath "$2") pjd=$(realpath "$3") xfs=$(realpath "$4")
mnt=$work/mnt; mkdir -p "$mnt" "$work/test" "$work/scratch"
failed=0
fail() { echo "FAIL: $*"; failed=1; }

# Both suites are built from copies.
if [ ! -x "$work/xfs/ltp/fsx" ]; then
	mkdir -p "$work/xfs"; git -C "$xfs" archive HEAD | tar x -C "$work/xfs"
	make -s -C "$work/xfs" -j2 >"$work/xfs.log" 2>&1
fi
if [ ! -x "$work/pjd/pjdfstest" ]; then
	mkdir -p "$work/pjd"; git -C "$pjd" archive HEAD | tar x -C "$work/pjd"
	(cd "$work/pjd" && autoreconf -ifs && ./configure && make -s pjdfstest) >"$work/pjd.log" 2>&1
fi

# fresh IMAGE makes an image; up IMAGE FLAG... mounts it; down IMAGE unmounts it and waits for the
# commit, which is done when the server lets go of the image; clean IMAGE asks both checkers.
fresh() { rm -f "$1"; "$btrlab" mkfs -q --size 4G "$1"; }
up() { "$btrlab" mount "$1" "$mnt" --daemon --allow-other "${@:2}"; }
down() { umount "$mnt"; flock "$1" true; }
clean() {
	"$btrlab" check "$1" >"$work/check" || { cat "$work/check"; fail "btrlab check $1"; }
	btrfs check --readonly --check-data-csum "$1" >"$work/check" 2>&1 || { cat "$work/check"; fail "btrfs check $1"; }
}

for cache in none kernel; do
	img=$work/$cache.img; fresh "$img"; up "$img" --cache $cache
	i=0
	for mode in "" "-W -R" "-Z -r 4096 -w 4096"; do
		i=$((i + 1))
		(cd "$mnt" && "$work/xfs/ltp/fsx" -q -N 10000 $mode "fsx$i") || fail "fsx $mode, cache $cache"
	done
	echo "fsx, cache $cache: done"
	down "$img"; clean "$img"

	for how in end kill; do
		fresh "$img"
		"$btrlab" mount "$img" "$mnt" --allow-other --cache $cache >"$work/$cache.out" 2>&1 &
		server=$!
		until mountpoint -q "$mnt"; do kill -0 $server; sleep 0.1; done
		# -m: a process group of its own, which is ended as a whole
		set -m; "$work/xfs/ltp/fsstress" -d "$mnt" -n 100000000 -p 4 >"$work/$cache.stress" 2>&1 & stress=$!; set +m
		sleep "${SECONDS_OF_STRESS:-60}"
		[ $how = end ] || kill -9 $server
		kill -- -$stress 2>/dev/null || true
		wait $stress 2>/dev/null || true
		until umount "$mnt" 2>/dev/null; do sleep 0.2; done
		if wait $server; then :; elif [ $how = end ]; then cat "$work/$cache.out"; fail "the server of fsstress, cache $cache"; fi
		if [ $how = kill ]; then # Linux replays the log
			mkdir -p "$work/linux"
			mount -o loop "$img" "$work/linux" && ls -R "$work/linux" >/dev/null && umount "$work/linux" || fail "Linux after a kill, cache $cache"
		fi
		clean "$img"
		echo "fsstress, cache $cache, $how: done"
	done
done

img=$work/pjd.img; fresh "$img"; up "$img"
mkdir -p "$mnt/pjd"
(cd "$mnt/pjd" && prove -r -Q "$work/pjd/tests") >"$work/pjd.out" 2>&1 || true
tail -n 8 "$work/pjd.out"
down "$img"; clean "$img"
# rename/24.t wants directories to have hard links for their subdirectories; those of btrfs have 1.
grep -q '^Files=' "$work/pjd.out" && ! grep 'Failed:' "$work/pjd.out" | grep -vq 'rename/24.t .*Failed: 4)' || fail pjdfstest

bash "$here/xfstests.sh" "$btrlab" "$work" "$xfs" || fail xfstests
bash "$here/soak.sh" "$btrlab" "$work/soak" "$work/xfs" "${SOAK:-3}" || fail soak
exit $failed
