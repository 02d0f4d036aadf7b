#!/usr/bin/env bash
# Every header compiles alone; public ones bring no other library with them (tests/headers).
. "$(dirname "$0")/../support/check.sh"

log=build/headers.log
if cmake --build build/release --target lipgrad_headers >"$log" 2>&1; then
  ok "headers compile alone"
else
  failed "headers compile alone" "see below"
  grep -E 'error|FAILED' "$log" | head -40
fi
