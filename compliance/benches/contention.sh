#!/usr/bin/env bash
# The storages under contention, beside the bare driver and through the server, with the goals beside the figures:
# builds the release server and the benchmark, which starts the databases that are installed. Compare ratios, not
# figures of different machines. Several minutes for each backend.
#
# Usage: compliance/benches/contention.sh [ARGUMENT]...
#   ARGUMENT  of the benchmark: `--help` shows all, `--only postgres` measures one backend, `--json` is for programs
# Databases are kept in TMPDIR: a real disk, not a tmpfs.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked -p rdq-cli -p rdq-contention
exec "$target/release/rdq-contention" --rdq "$target/release/rdq" "$@"
