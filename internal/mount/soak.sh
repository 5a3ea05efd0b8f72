#!/bin/bash
# A soak of a mounted image: fsx, fsstress and a PostgreSQL that pgbench and a teller keep busy,
# and each minute the server is killed. Then both checkers look at the image as the kill has left
# it, and btrlab or Linux, in turns, replays the log and has the programs' files: PostgreSQL must
# recover, its sums must agree, and every row that it had acknowledged must be there. It takes
# root.
#
# usage: soak.sh BTRLAB WORK XFSTESTS MINUTES    XFSTESTS has fsx and fsstress built; WORK is made
set -euo pipefail
[ $# -eq 4 ] && [ -x "$3/ltp/fsx" ] || { echo "bad soak, want BTRLAB WORK XFSTESTS MINUTES, with fsx and fsstress built in XFSTESTS" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "bad user, want root" >&2; exit 2; }
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
[ -n "$bin" ] || { echo "bad postgresql, have none want that of package postgresql" >&2; exit 2; }
mkdir -p "$2"
btrlab=$(realpath "$1") work=$(realpath "$2") ltp=$(realpath "$3")/ltp minutes=$4
# By other names: tests of xfstests that run beside end each fsx and fsstress.
cp "$ltp/fsx" "$work/exerciser"; cp "$ltp/fsstress" "$work/stresser"
mnt=$work/mnt img=$work/soak.img sock=$work/sock
mkdir -p "$mnt" "$sock" "$work/fsx"; chown postgres "$sock"
rm -f "$img" "$work/acked"; touch "$work/acked"
"$btrlab" mkfs -q --size 8G "$img"
failed=0 kills=0 rows=0 jobs=()
fail() { echo "FAIL: round $kills: $*"; failed=1; }
as() { nice -n 10 runuser -u postgres -- "$@"; }
sql() { psql -h "$sock" -U postgres -qAtX -v ON_ERROR_STOP=1 "$@"; }

# job NAME COMMAND... runs in a process group of its own, which is ended as a whole.
job() { set -m; nice -n 10 "${@:2}" >"$work/$1.out" 2>&1 & jobs+=("$1:$!"); set +m; }
finish() {
	for j in "${jobs[@]}"; do kill -KILL -- "-${j#*:}" 2>/dev/null || true; wait "${j#*:}" 2>/dev/null || true; done
	jobs=()
}
# postgres runs its children in sessions of their own: they are ended by the number of their parent.
database=
start() {
	cd "$sock" # as postgres may
	as "$bin/postgres" -D "$mnt/pg" -k "$sock" -c listen_addresses= >"$work/postgres.out" 2>&1 & database=$!
	for _ in $(seq 300); do
		if sql -d postgres -c 'select 1' >/dev/null 2>&1; then return; fi
		kill -0 $database 2>/dev/null || break
		sleep 0.2
	done
	tail -n 20 "$work/postgres.out"; fail "postgres does not start"; return 1
}
crash() {
	local main children
	main=$(head -n 1 "$mnt/pg/postmaster.pid"); children=$(pgrep -P "$main" || true)
	kill -KILL "$server"
	# shellcheck disable=SC2086
	kill -KILL "$main" $children 2>/dev/null || true
	wait "$database" 2>/dev/null || true
	finish
	wait "$server" 2>/dev/null || true
	until umount "$mnt" 2>/dev/null; do # a backend that was born meanwhile waits for the dead ones' locks
		for p in /proc/[0-9]*; do [ "$(readlink "$p/cwd")" != "$mnt/pg" ] || kill -KILL "${p#/proc/}" || true; done
		sleep 0.2
	done
}
teller() { # rows one after the other: those that were acknowledged are in a file elsewhere
	local n=$1
	while sql -d bench -c "insert into acked values ($n)"; do echo "$n" >>"$work/acked"; n=$((n + 1)); sleep 0.02; done
}
up() {
	"$btrlab" mount "$img" "$mnt" --allow-other >"$work/server.out" 2>&1 & server=$!
	until mountpoint -q "$mnt"; do kill -0 $server || { cat "$work/server.out"; exit 1; }; sleep 0.1; done
}
down() { until umount "$mnt" 2>/dev/null; do sleep 0.2; done; wait "$server" || { cat "$work/server.out"; fail "the server ended badly"; }; }
clean() {
	"$btrlab" check "$img" >"$work/check" 2>&1 || { cat "$work/check"; fail "btrlab check, $1"; }
	btrfs check --readonly --check-data-csum "$img" >"$work/check" 2>&1 || { cat "$work/check"; fail "btrfs check, $1"; }
}
# The database after a crash: the teller's rows, and the sums of pgbench, which change together.
judge() {
	start || return 0
	sql -d bench -c 'select n from acked order by n' | sort >"$work/have"
	rows=$(wc -l <"$work/acked")
	sort "$work/acked" | comm -23 - "$work/have" >"$work/lost"
	[ ! -s "$work/lost" ] || fail "$(wc -l <"$work/lost") of $rows acknowledged rows are lost: $(head -n 3 "$work/lost" | xargs)"
	sums=$(sql -d bench -c 'select (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers),
		(select sum(bbalance) from pgbench_branches), (select coalesce(sum(delta), 0) from pgbench_history)')
	[ "$(tr '|' '\n' <<<"$sums" | sort -u | wc -l)" = 1 ] || fail "the sums of pgbench differ: $sums"
	kill -INT "$(head -n 1 "$mnt/pg/postmaster.pid")"; wait "$database" || fail "postgres ended with $?"
}

up
mkdir "$mnt/pg"; chown postgres "$mnt/pg"; chmod 700 "$mnt/pg"
cd "$sock"
as "$bin/initdb" -D "$mnt/pg" -A trust >"$work/initdb.out"
start
sql -d postgres -c 'create database bench'
sql -d bench -c 'create table acked (n int primary key)'
as "$bin/pgbench" -h "$sock" -i -s 2 -q bench >"$work/pgbench.out" 2>&1
began=$SECONDS
while :; do
	next=$(((SECONDS - began) / 60 * 60 + 60 + began)) # the next full minute
	[ $((next - SECONDS)) -ge 15 ] || next=$((next + 60))
	rm -rf "$mnt/stress"; mkdir "$mnt/stress"
	job fsx "$work/exerciser" -q -S 0 -P "$work/fsx" "$mnt/fsx$((kills % 4))"
	job fsstress "$work/stresser" -d "$mnt/stress" -n 100000000 -p 2
	job pgbench runuser -u postgres -- "$bin/pgbench" -h "$sock" -n -c 2 -R 60 -T 100000 bench
	first=$(($(tail -n 1 "$work/acked" | grep . || echo 0) + 2)) # the last one may be there without its answer
	set -m; teller "$first" >"$work/teller.out" 2>&1 & jobs+=("teller:$!"); set +m
	sleep $((next - SECONDS))
	for j in "${jobs[@]}"; do kill -0 "${j#*:}" 2>/dev/null || { tail -n 5 "$work/${j%:*}.out"; fail "${j%:*} has ended before the kill"; }; done
	kills=$((kills + 1)) how=btrlab
	crash
	clean "as the kill left it"
	if [ $((kills % 2)) = 0 ]; then
		how=Linux; mount -o loop "$img" "$mnt"; judge; sync -f "$mnt"; until umount "$mnt"; do sleep 0.2; done
	else
		up; judge; down
	fi
	clean "after the log was replayed by $how"
	echo "soak: kill $kills at $((SECONDS - began)) s, replayed by $how: $rows rows acknowledged, $(btrfs inspect-internal dump-super "$img" | awk '$1 == "generation" {print "generation " $2}')"
	[ $((SECONDS - began)) -lt $((minutes * 60)) ] && [ $failed = 0 ] || break
	up
	start
done
echo "soak: $kills kills in $(((SECONDS - began) / 60)) minutes, $rows rows acknowledged: $([ $failed = 0 ] && echo nothing lost || echo FAILED)"
exit $failed
