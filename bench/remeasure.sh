#!/bin/sh
# Measures anew all tables of docs/benchmarks.md and writes them there, if the program was built from
# a commit without changes. It takes two hours on a machine that does nothing else; SCALE=10 measures
# ten times as long. Run it in the repository's root: make remeasure. Systems that are not there are
# fetched; what cannot be fetched is left out, and said so.
set -eu
cd "$(dirname "$0")/.."
scale=${SCALE:-1}
make build >&2
WEIR=$PWD/weir
export WEIR
# With the commit in it, also where GOFLAGS leaves that out: `weir-bench docs` writes no page without one.
(cd bench && go build -buildvcs=true -o ../weir-bench ./cmd/weir-bench)
for peer in kafka nats redis valkey bullmq pgq pgmq pg-boss graphile-worker message-db emmett ferretdb; do
	./weir-bench fetch "$peer" >&2 || echo "left out: $peer" >&2
done
out=${OUT:-$(mktemp -d)}
echo "results are in $out" >&2

# those NAMES prints the systems among NAMES that are there, separated by commas.
those() {
	./weir-bench systems | awk -v names="$*" '
		BEGIN { n = split(names, wanted, " ") }
		$NF == "ready" { ready[$1] = 1 }
		END { for (i = 1; i <= n; i++) if (ready[wanted[i]]) printf "%s%s", comma++ ? "," : "", wanted[i] }'
}

# measure NAME SCALE WORKLOADS… FLAGS…: a promise that is broken is told in its table.
results=
measure() {
	name=$1 by=$(awk "BEGIN { print $2 * $scale }")
	shift 2
	rc=0
	./weir-bench run "$@" --runs 1 --scale "$by" --out "$out/$name" >&2 || rc=$?
	[ "$rc" -le 1 ] && [ -f "$out/$name/result.json" ] || exit "$rc"
	results="$results $out/$name"
}

measure choose 0.3 choose --systems "$(those weir-sqlite weir-postgres weir-mysql weir-s3 weir-s3-10ms weir-sqlite+kafka weir-postgres+kafka \
	weir-postgres+work weir-postgres+sql kafka nats redis valkey pg-plain pgq-50ms river river-1ms pgmq pg-boss graphile-worker bullmq \
	message-db emmett ferretdb)"
measure shipped 0.3 one-event p-pubsub p-queue --mode shipped --rates max,1000 \
	--systems "$(those weir-sqlite weir-postgres kafka nats redis valkey bullmq)"
measure p 0.3 p
measure paper 0.02 paper-a paper-a-exact paper-b \
	--systems "$(those weir-sqlite weir-postgres message-db ferretdb)"
measure badhours 0.05 badhours
# shellcheck disable=SC2086 # one word for each result
./weir-bench docs $results --into docs/benchmarks.md
