#!/usr/bin/env bash
# All speed goals on this machine: builds a release server, measures it with `rdq bench` on SQLite and on memory,
# measures the bare echo and the bare SQLite loops between, and prints the ratios in one table. Several rounds, of which
# the best of each measurement counts: what else the machine does only ever makes one worse. Compare ratios, not figures
# of different machines.
#
# Usage: compliance/benches/run.sh [DIR]
#   DIR  where databases and reports go; a real disk, not a tmpfs [default: target/bench]
# ROUNDS=1 for a quick look. LIVES=1000000 also shows that the server's memory does not grow with the tasks.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-target}
dir=${1:-$target/bench}
rounds=${ROUNDS:-3}
lives=${LIVES:-200000}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
rm -f "$dir"/*.json

cargo build --release --locked -p rdq-cli
cargo bench --locked -p rdq-compliance --bench limits --no-run
rdq=$target/release/rdq

server=
work=
stop() {
    [[ -z $server ]] || { kill "$server" 2>/dev/null && wait "$server" || true; }
    [[ -z $work ]] || rm -rf "$work"
    server='' work=''
}
trap stop EXIT

# What the server holds, in MiB.
resident() { awk '/^VmRSS/ { printf "%d\n", $2 / 1024 }' "/proc/$server/status" 2>/dev/null || echo '?'; }

# measure NAME STORAGE ARGUMENT...: starts a server, runs `rdq bench` against it, keeps the report in DIR/NAME.json.
measure() {
    local name=$1 storage=$2 port before
    shift 2
    port=$((10000 + RANDOM % 10000)) # below those that systems hand out
    RDQ_LOG=warn "$rdq" serve --listen "127.0.0.1:$port" --http "127.0.0.1:$((port + 10000))" --storage "$storage" &
    server=$!
    export RDQ_SERVER=http://127.0.0.1:$port
    for _ in {1..100}; do
        "$rdq" stats >/dev/null 2>&1 && break
        sleep 0.1
    done
    "$rdq" bench --only lives --tasks 50000 >/dev/null # warm
    before=$(resident)
    "$rdq" bench --output json "$@" >"$dir/$name.json"
    printf '%s: the server holds %s MiB after the warm-up, %s MiB after the measurement\n' \
        "$name" "$before" "$(resident)"
    kill "$server" && wait "$server" || true
    server=''
}

reports=()
for ((round = 1; round <= rounds; round++)); do
    work=$(mktemp -d "$dir/run.XXXXXX")
    measure "sqlite-$round" "sqlite:$work/rdq.db" --tasks "$lives"
    measure "memory-$round" memory: --only lives --tasks "$lives"
    rm -rf "$work" && work=''
    reports+=(--sqlite "$dir/sqlite-$round.json" --memory "$dir/memory-$round.json")
done

echo
cargo bench --locked -q -p rdq-compliance --bench limits -- --dir "$dir" --rounds "$rounds" "${reports[@]}"
