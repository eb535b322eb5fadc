#!/usr/bin/env bash
# One round of all speed goals on this machine: builds a release server, measures it with `rdq bench` on SQLite and on
# memory, measures the bare echo and the bare SQLite loops beside it, and prints the ratios in one table. The two are
# taken minutes apart at most, on the same cores and the same disk; compare rounds, not figures of different machines.
#
# Usage: compliance/benches/run.sh [DIR]
#   DIR  where databases and reports go; a real disk, not a tmpfs [default: target/bench]
# LIVES=1000000 compliance/benches/run.sh also shows that the server's memory does not grow with the tasks.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-target}
dir=${1:-$target/bench}
lives=${LIVES:-200000}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

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

# resident: what the server holds, in MiB.
resident() { awk '/^VmRSS/ { printf "%d\n", $2 / 1024 }' "/proc/$server/status" 2>/dev/null || echo '?'; }

# measure NAME STORAGE ARGUMENT...: starts a server, runs `rdq bench` against it, keeps the report in DIR/NAME.json.
measure() {
    local name=$1 storage=$2 port before
    shift 2
    port=$((20000 + RANDOM % 20000))
    RDQ_LOG=warn "$rdq" serve --listen "127.0.0.1:$port" --http "127.0.0.1:$((port + 1))" --storage "$storage" &
    server=$!
    export RDQ_SERVER=http://127.0.0.1:$port
    for _ in {1..100}; do
        "$rdq" stats >/dev/null 2>&1 && break
        sleep 0.1
    done
    "$rdq" bench --only lives --tasks 50000 >/dev/null # warm
    before=$(resident)
    "$rdq" bench --output json "$@" >"$dir/$name.json"
    printf '%s: the server holds %s MiB after the warm-up, %s MiB after the measurement\n' "$name" "$before" "$(resident)"
    kill "$server" && wait "$server" || true
    server=''
}

work=$(mktemp -d "$dir/run.XXXXXX")
measure sqlite "sqlite:$work/rdq.db" --tasks "$lives"
measure memory memory: --only lives --tasks "$lives"
rm -rf "$work" && work=''

echo
cargo bench --locked -q -p rdq-compliance --bench limits -- \
    --dir "$dir" --sqlite "$dir/sqlite.json" --memory "$dir/memory.json"
