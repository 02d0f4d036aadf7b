#!/usr/bin/env bash
# tools/fetch_data against local folders in place of the network.
. "$(dirname "$0")/../support/check.sh"

if ! command -v curl >/dev/null; then
  skipped fetch_data "curl, which reads file:// addresses, is not installed"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; [[ $check_failures == 0 ]] || exit 1' EXIT
target=$scratch/target/planetoid

# fetch FOLDER NAME...: status and output of tools/fetch_data that downloads from FOLDER.
fetch() {
  local from=$1
  shift
  output=$(LIPGRAD_DATA=$scratch/target LIPGRAD_DATA_URL=file://$from tools/fetch_data "$@" 2>&1)
  status=$?
}

# expect NAME STATUS PATTERN: judges what fetch left in status and output.
expect() {
  if [[ $status != "$2" ]]; then
    failed "$1" "status $status, expected $2: $output"
  elif ! grep -q -- "$3" <<<"$output"; then
    failed "$1" "no '$3' in: $output"
  elif [[ -n $(find "$scratch/target" -name '.ind*' 2>/dev/null) ]]; then
    failed "$1" "a temporary file is left"
  else
    ok "$1"
  fi
}

fetch /nowhere
expect "fetch_data: no name" 2 '^usage: '
fetch /nowhere coral
expect "fetch_data: unknown name" 2 "unknown data set 'coral'; known are cora, citeseer, pubmed"
fetch "$scratch/nowhere" cora
expect "fetch_data: no such address" 1 "cannot download file://$scratch/nowhere/ind.cora.x"

mkdir -p "$scratch/wrong"
echo wrong >"$scratch/wrong/ind.cora.x"
fetch "$scratch/wrong" cora
expect "fetch_data: wrong content" 1 'expected 23cfa55d.*; it is not kept'
[[ -e $target/ind.cora.x ]] && failed "fetch_data: wrong content" "the file was kept"

data=
for root in "${LIPGRAD_DATA:-}" "${HOME:-}/.cache/lipgrad"; do
  [[ -e $root/planetoid/ind.cora.x ]] && data=$root/planetoid && break
done
if [[ -z $data ]]; then
  skipped "fetch_data: the real files" "no planetoid/ind.cora.* in \$LIPGRAD_DATA or ~/.cache/lipgrad"
  exit 0
fi
data=$(cd "$data" && pwd)
echo damaged >"$target/ind.cora.y"
fetch "$data" cora
expect "fetch_data: a download" 0 'cora: 8 files in .*, 8 of them downloaded now'
cmp -s "$data/ind.cora.y" "$target/ind.cora.y" ||
  failed "fetch_data: a download" "a damaged file was not replaced"
fetch "$scratch/nowhere" cora
expect "fetch_data: again" 0 'cora: 8 files in .*, 0 of them downloaded now'
if [[ -e $data/ind.citeseer.x ]]; then
  fetch "$data" citeseer cora
  expect "fetch_data: two names" 0 'citeseer: 8 files in .*, 8 of them downloaded now'
fi
