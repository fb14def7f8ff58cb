#!/bin/sh
# Measures anew what docs/benchmarks.md marks, and writes the page's section of tables, if the
# program was built from a commit without changes. It also prints the tables, each below the heading
# of the section where it belongs. It takes at most 25 minutes on a machine that does nothing else;
# run it in the repository's root: make remeasure.
set -eu
cd "$(dirname "$0")/.."
(cd bench && go build -o ../weir-bench ./cmd/weir-bench)
./weir-bench fetch message-db >&2
out=${OUT:-$(mktemp -d)}
echo "results are in $out" >&2

# measure NAME WORKLOADS… -- FLAGS…: a promise that is broken is told in its table.
measure() {
	name=$1
	shift
	rc=0
	./weir-bench run "$@" --runs 1 --out "$out/$name" || rc=$?
	[ "$rc" -le 1 ] || exit "$rc"
}

echo "## Work queue"
measure queue p-queue p-queue-100 --rates max,50% --scale 0.4 \
	--systems pg-plain,river,weir-postgres,weir-postgres+work,weir-postgres+sql,weir-sqlite,weir-sqlite+work
echo
echo "### Mails"
measure mail t-mail --systems pg-notify,pg-plain,weir-postgres+tx
echo
echo "## Event-sourced streams"
measure appends appends-many appends-hot --scale 0.2 --systems message-db,pg-plain,weir-sqlite,weir-postgres
echo
echo "### Projection, over HTTP"
measure projection paper-b-open --rates 1000,5000 --scale 0.4 --systems message-db,pg-plain,weir-sqlite,weir-postgres
echo
./weir-bench docs "$out"/queue "$out"/mail "$out"/appends "$out"/projection --into docs/benchmarks.md
echo "## Latency; One event a call"
cd bench && go run ./dev -only latency,library,sql -runs 1 -length 8s
