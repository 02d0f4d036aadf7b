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
  elif [[ -z ${part_expected:-} && -n $(find "$scratch/target" -name '.*' 2>/dev/null) ]]; then
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

# Checksums that are not known are those of the first download.
mkdir -p "$scratch/splits"
for set in cora citeseer pubmed; do
  for split in {0..9}; do echo "$set $split" >"$scratch/splits/${set}_split_0.6_0.2_$split.npz"; done
done
fetch "$scratch/splits" geom-gcn
expect "fetch_data: checksums that are not known" 0 'geom-gcn: 30 files in .*, 30 of them downloaded now'
grep -q 'recorded in .*SHA256SUMS' <<<"$output" ||
  failed "fetch_data: checksums that are not known" "no word of it: $output"
echo changed >"$scratch/target/geom_gcn_splits/cora_split_0.6_0.2_4.npz"
fetch "$scratch/splits" geom-gcn
expect "fetch_data: a file that changed" 0 'geom-gcn: 30 files in .*, 1 of them downloaded now'
rm "$scratch/target/geom_gcn_splits/cora_split_0.6_0.2_4.npz"
echo other >"$scratch/splits/cora_split_0.6_0.2_4.npz"
fetch "$scratch/splits" geom-gcn
expect "fetch_data: a download that changed" 1 'cora_split_0.6_0.2_4.npz has the checksum .*; it is not kept'

# Images: MD5 sums, as published.
mkdir -p "$scratch/images"
for file in {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz cifar-10-binary.tar.gz; do
  echo wrong >"$scratch/images/$file"
done
fetch "$scratch/images" fashion-mnist
expect "fetch_data: wrong images" 1 'expected md5:8d4fb7e6.*; it is not kept'
fetch "$scratch/images" cifar10
expect "fetch_data: a wrong archive" 1 'cifar-10-binary.tar.gz has the checksum md5:.*, expected md5:c32a1d4a'

# A download that was interrupted, by whatever: continued, begun anew where that does not fit.
if command -v unzip >/dev/null && command -v python3 >/dev/null; then
  mkdir -p "$scratch/zip/arxiv/raw"
  head -c 400000 /dev/urandom >"$scratch/zip/arxiv/raw/edge.csv.gz"
  (cd "$scratch/zip" && python3 -m zipfile -c arxiv.zip arxiv/)
  ogb=$scratch/target/ogb
  mkdir -p "$ogb"
  unpacked() {
    cmp -s "$scratch/zip/arxiv/raw/edge.csv.gz" "$ogb/arxiv/raw/edge.csv.gz" || failed "$1" "wrong content"
    [[ ! -e $ogb/arxiv.zip ]] || failed "$1" "the archive is left"
    rm -rf "$ogb/arxiv"
  }
  head -c 300000 "$scratch/zip/arxiv.zip" >"$ogb/.arxiv.zip.part"
  fetch "$scratch/zip" ogbn-arxiv
  expect "fetch_data: a download is continued" 0 'ogbn-arxiv: in '
  unpacked "fetch_data: a download is continued"
  head -c 300000 /dev/zero >"$ogb/.arxiv.zip.part"
  fetch "$scratch/zip" ogbn-arxiv
  expect "fetch_data: another file's beginning" 0 'ogbn-arxiv: in '
  unpacked "fetch_data: another file's beginning"
  cp "$scratch/zip/arxiv.zip" "$ogb/.arxiv.zip.part"
  echo x >>"$ogb/.arxiv.zip.part"
  fetch "$scratch/zip" ogbn-arxiv
  expect "fetch_data: more than there is" 0 'ogbn-arxiv: in '
  unpacked "fetch_data: more than there is"
  head -c 100000 "$scratch/zip/arxiv.zip" >"$ogb/.arxiv.zip.part"
  part_expected=yes
  fetch "$scratch/nowhere" ogbn-arxiv
  expect "fetch_data: what has come is kept" 1 'what has come is kept and continued'
  [[ $(stat -c %s "$ogb/.arxiv.zip.part") == 100000 ]] ||
    failed "fetch_data: what has come is kept" "it was not"
  (
    trap '' XFSZ
    ulimit -f 200
    LIPGRAD_DATA=$scratch/target LIPGRAD_DATA_URL=file://$scratch/zip tools/fetch_data ogbn-arxiv
  ) >"$scratch/full.log" 2>&1
  status=$? output=$(<"$scratch/full.log")
  expect "fetch_data: a full disk" 1 'cannot download '
  [[ -e $ogb/arxiv ]] && failed "fetch_data: a full disk" "something is unpacked"

  # A server that knows ranges and takes its time; /plain/ knows none.
  cat >"$scratch/server.py" <<'END'
import http.server, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self):
        data = open(os.path.join(sys.argv[1], os.path.basename(self.path)), "rb").read()
        first, ranges = 0, self.headers.get("Range")
        if ranges and "/plain/" not in self.path:
            first = int(ranges.split("=")[1].split("-")[0])
        self.send_response(416 if first >= len(data) else 206 if first else 200)
        if first < len(data):
            if first: self.send_header("Content-Range", f"bytes {first}-{len(data)-1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        with open(sys.argv[2], "a") as log: log.write(f"{self.path} {first}\n")
        slow = "/slow/" in self.path
        for at in range(first, len(data), 50000):
            self.wfile.write(data[at:at + 50000])
            self.wfile.flush()
            if slow: time.sleep(0.5)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
END
  python3 "$scratch/server.py" "$scratch/zip" "$scratch/requests" >"$scratch/port" 2>/dev/null &
  server=$!
  trap 'kill $server 2>/dev/null; rm -rf "$scratch"; [[ $check_failures == 0 ]] || exit 1' EXIT
  for _ in {1..100}; do [[ -s $scratch/port ]] && break; sleep 0.1; done
  web=http://127.0.0.1:$(<"$scratch/port")
  # get PATH: as fetch, from the server.
  get() {
    output=$(LIPGRAD_DATA=$scratch/target LIPGRAD_DATA_URL=$web/$1 tools/fetch_data ogbn-arxiv 2>&1)
    status=$?
  }
  part_expected=
  get plain
  expect "fetch_data: a server without ranges" 0 'ogbn-arxiv: in '
  unpacked "fetch_data: a server without ranges"
  # Interrupted as a terminal does it: the whole group gets the signal.
  set -m
  LIPGRAD_DATA=$scratch/target LIPGRAD_DATA_URL=$web/slow tools/fetch_data ogbn-arxiv >/dev/null 2>&1 &
  group=$!
  set +m
  for _ in {1..100}; do [[ -s $ogb/.arxiv.zip.part ]] && break; sleep 0.1; done
  kill -INT -- "-$group"
  wait "$group"
  status=$? output=interrupted part_expected=yes
  expect "fetch_data: interrupted" 130 interrupted
  [[ -s $ogb/.arxiv.zip.part && ! -e $ogb/arxiv ]] || failed "fetch_data: interrupted" "nothing is kept"
  part_expected=
  get fast
  expect "fetch_data: continued from a server" 0 'ogbn-arxiv: in '
  unpacked "fetch_data: continued from a server"
  [[ $(tail -1 "$scratch/requests" | cut -d' ' -f2) -gt 0 ]] ||
    failed "fetch_data: continued from a server" "from the beginning: $(<"$scratch/requests")"
  kill "$server"
  trap 'rm -rf "$scratch"; [[ $check_failures == 0 ]] || exit 1' EXIT
else
  skipped "fetch_data: interrupted downloads" "unzip or python3 is not installed"
fi

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
