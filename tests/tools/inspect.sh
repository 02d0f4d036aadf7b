#!/usr/bin/env bash
# lipgrad inspect: what it shows of good checkpoints, odd ones, and files that are none.
. "$(dirname "$0")/../support/program.sh"

odd_checkpoint=${lipgrad%/tools/lipgrad}/tests/odd_checkpoint

# shows NAME PATTERN...: the output so far has each of them.
shows() {
  local name=$1 pattern
  shift
  for pattern; do
    grep -qE -- "$pattern" out || { failed "$name" "no '$pattern' in the output"; return; }
  done
  ok "$name"
}
# holds NAME FILE PATTERN...: the JSON file has them, without regard to white space.
holds() {
  local name=$1 text pattern
  text=$(tr -d ' \n' <"$2")
  shift 2
  for pattern; do
    [[ $text == *"$pattern"* ]] || { failed "$name" "no '$pattern' in it"; return; }
  done
  ok "$name"
}

works "inspect: the golden file" inspect "$golden/checkpoint/v1.lip" --json v1.json
shows "inspect: the golden file's head" 'format 1, written by lipgrad 0\.1\.0' '^epoch +3$' '^step +1$' \
  '^optimizer +adam: beta1 0\.9, .*lr 0\.15625, steps 1' '^schedule +warmup' 'seed 81985529216486895, next draw 77' \
  '^dataset +cora$' '"model": "golden"'
shows "inspect: the golden file's tensors" \
  '^weight +parameter +f32 +\(2, 3\) +6 +24 +7\.734 +-1\.25 +7 +1\.542 +yes' \
  '^bias +parameter +f64 +\(3\) +3 +24 +1e\+300 ' '^weight/m +state +f32 ' \
  '^parameters +2 +9 +48' '^buffers +2 +6 +13' '^optimiser state +4 +14 +64'
holds "inspect: --json" v1.json '"config":{"model":"golden"}' '"format":1' '"next_draw":77' '"optimizer":{"kind":"adam"' \
  '"totals":{"buffers":{"bytes":13,"elements":6,"tensors":2}' '"metadata":{"dataset":"cora"}' '"shape":[2,3]'

works "inspect: trains" train gat --preset standard --data cora --quiet --epochs 3 --out run
for file in last best; do works "inspect: $file.lip of a run" inspect run/$file.lip; done
works "inspect: last.lip again" inspect run/last.lip
shows "inspect: a run's results" '^best_epoch +[0-9]+$' '^best_metrics +.*valid_accuracy 0?\.?[0-9]' '^last_metrics ' '"hidden": 8'

# Text is shown on one line without harm to the terminal, numbers as they are, nothing recurses.
"$odd_checkpoint" odd.lip || failed "inspect: an odd file" "not written"
works "inspect: an odd file" inspect odd.lip --json odd.json
shows "inspect: the odd file" '^not_finite +parameter .* 5 +-4 +3 +-0\.5 +no: 2 are not' \
  '^nothing_finite .* - +- +- +- +no: 2 are not' '^empty +parameter +f32 +\(3, 0\) +0 +0 +- ' \
  '^extreme .* 2e\+300 +-1e\+300 +1e\+300 +5e\+299 +yes' '^count .* 9\.223e\+18 ' '^mask .* 570\.2 +255 +255 +255 ' \
  '^bell +ring\?\?\[31mred\?second line$' '^metrics +acc nan, valid_loss 1\.5$' '^not_metrics +\[\["valid_loss",1\],\[\]\]$' \
  '^configuration +\[{400}\.\.\.$' '^optimizer +none$' '^generator +none$' '^2 tensors have values that are not finite$'
if LC_ALL=C grep -q $'[\x01-\x09\x0b-\x1f]' out; then failed "inspect: no control characters" "there are some"
else ok "inspect: no control characters"; fi
holds "inspect: the odd file's JSON" odd.json '"not_finite":2' '"valid_loss":1.5' '"config":"[[['

refused "inspect: no file named" 2 "checkpoint" inspect
refused "inspect: two files" 2 "two.lip" inspect odd.lip two.lip
refused "inspect: no such file" 1 "nosuch\.lip: .*No such file" inspect nosuch.lip
refused "inspect: a folder" 1 "^lipgrad: run: " inspect run
: >empty.lip
refused "inspect: an empty file" 1 "empty\.lip: " inspect empty.lip
refused "inspect: something else" 1 "stored\.npz: " inspect "$golden/npz/stored.npz"
head -c 5000 /dev/urandom >noise.lip
refused "inspect: noise" 1 "noise\.lip: " inspect noise.lip
size=$(stat -c %s run/last.lip)
for ((part = 1; part < 8; ++part)); do
  head -c $((size * part / 8)) run/last.lip >cut.lip
  refused "inspect: the first $part/8 of a file" 1 "cut\.lip: " inspect cut.lip
  { head -c $((size * part / 8)) run/last.lip; printf '\xa5\x5a\xa5'; tail -c +$((size * part / 8 + 4)) run/last.lip; } >bad.lip
  refused "inspect: bytes changed at $part/8" 1 "bad\.lip: damaged" inspect bad.lip
done
refused "inspect: --json nowhere, before the work" 1 "nowhere" inspect odd.lip --json nowhere/x.json
