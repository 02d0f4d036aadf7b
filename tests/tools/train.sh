#!/usr/bin/env bash
# lipgrad train and eval: settings from the command line, files and presets; results, logs and
# checkpoints that fit together. What is wrong on the command line or with files is in cli.sh.
. "$(dirname "$0")/../support/program.sh"

tiny=(train gat --preset standard --data cora --quiet --epochs 4)
# holds NAME FILE PATTERN...: the file has all the patterns, white space left out.
holds() {
  local name=$1 text
  text=$(tr -d ' \n' <"$2" 2>/dev/null)
  shift 2
  for pattern; do
    grep -qE -- "$pattern" <<<"$text" || { failed "$name" "no '$pattern' in $(head -c 400 <<<"$text")"; return; }
  done
  ok "$name"
}
# same NAME FILE FILE
same() { if cmp -s "$2" "$3"; then ok "$1"; else failed "$1" "$2 and $3 differ"; fi; }

# Where settings come from: the command line before a file, a file before a preset.
cat >some.toml <<'END'
# a comment
layers = 3
attention-norm = "lipschitz"
linear-ends = true
dropout = 0.25
preset = "contrast"
END
works "train: --config" train gat --config some.toml --dropout 0.5 --heads 2 --hidden 4 --data cora --quiet --epochs 2 --json r.json
holds "train: the command line, then the file, then the preset" r.json '"layers":3,' '"attention-norm":"lipschitz"' \
  '"dropout":0.5,' '"heads":2,' '"lr":0.001,' '"schedule":"constant"' '"linear-ends":true'
works "train: defaults" "train" gat --data cora --quiet --epochs 1 --heads 1 --json r.json
holds "train: the paper's protocol" r.json '"attention-dropout":0.3' '"attention-norm":"none"' '"dropout":0.6' \
  '"hidden":64' '"lr":0.005' '"schedule":"plateau"' '"select":"last"' '"weight-decay":0.0005' '"row-normalize":false'
works "train: preset depth" train gat --preset depth --layers 10 --data cora --quiet --epochs 2 --json r.json
holds "train: preset depth" r.json '"residual-gain":5' '"residual":"damped"' '"initial-residual":0.1' '"identity-map":0.5' \
  '"norm":"centernorm"' '"scale-lr-factor":0.02' '"scale-weight-decay":0' '"layer-weight-decay":0.01' '"init":"spectral"'
works "train: preset missing" train gat --preset missing --data cora --quiet --epochs 2 --json r.json
holds "train: preset missing" r.json '"layers":11' '"missing":100' '"missing-seed":0' '"schedule":"cosine"'
for norm in pairnorm pairnorm-si pairnorm-scs layernorm layernorm-graph centernorm; do
  for residual in plain weighted damped; do
    works "train: --norm $norm --residual $residual" train gat --data cora --quiet --epochs 2 --layers 3 --heads 2 \
      --hidden 4 --norm $norm --residual $residual --attention-norm lipschitz-reference
  done
done

echo 'layrs = 3' >bad.toml
refused "train: a name that is no setting" 1 "bad\.toml: .*layrs" "${tiny[@]}" --config bad.toml
echo 'layers = many' >bad.toml
refused "train: a value that is none" 1 "bad\.toml: layers = many" "${tiny[@]}" --config bad.toml
echo 'dropout = 7' >bad.toml
refused "train: a value out of range" 1 "bad\.toml: dropout = 7" "${tiny[@]}" --config bad.toml
echo 'layers' >bad.toml
refused "train: a line that is no setting" 1 "bad\.toml:1: " "${tiny[@]}" --config bad.toml
printf '[model]\nlayers = 3\n' >bad.toml
refused "train: a section" 1 "bad\.toml:1: " "${tiny[@]}" --config bad.toml
echo 'layers = [1, 2]' >bad.toml
refused "train: two values" 1 "bad\.toml: 'layers'" "${tiny[@]}" --config bad.toml
head -c 3000 /dev/urandom >bad.toml
refused "train: noise for settings" 1 "bad\.toml" "${tiny[@]}" --config bad.toml
head -c 2000000 /dev/zero | tr '\0' '#' >bad.toml
refused "train: settings too large" 1 "bad\.toml.*megabyte" "${tiny[@]}" --config bad.toml
refused "train: no file of settings" 1 "nosuch\.toml" "${tiny[@]}" --config nosuch.toml
refused "train: a folder of settings" 1 "home" "${tiny[@]}" --config home
refused "train: an unknown preset" 2 "preset" train gat --preset best
refused "train: missing out of range" 2 "missing" train gat --missing 101
refused "train: an unknown norm" 2 "norm" train gat --attention-norm spectral
refused "train: identity map without linear ends" 1 "linear_ends" "${tiny[@]}" --identity-map 0.5
refused "train: identity map between widths" 1 "identity map" "${tiny[@]}" --linear-ends true --identity-map 0.5 --input-width 3

# Results that can be written are known before training.
refused "train: --json nowhere, before training" 1 "nowhere" "${tiny[@]}" --json nowhere/r.json

works "train: --json into the directory of --out" "${tiny[@]}" --out both/run --json both/run/r.json
holds "train: --json into the directory of --out" both/run/r.json '"test_accuracy_mean"'

# Logs, and the same with gradients.
works "train: --out" "${tiny[@]}" --out plain
works "train: --log-gradients" "${tiny[@]}" --out logged --log-gradients 2
same "train: logging gradients changes nothing" plain/best.lip logged/best.lip
[[ $(grep -c '"gradient_norm/conv.0.lin.weight"' logged/metrics.jsonl) == 2 ]] && ok "train: gradients in epochs 1 and 3" ||
  failed "train: gradients in epochs 1 and 3" "$(head -c 300 logged/metrics.jsonl)"
[[ $(ls logged/events.out.tfevents.* | wc -l) == 1 && $(strings -n 8 logged/events.out.tfevents.* 2>/dev/null ||
  cat logged/events.out.tfevents.*) == *gradient_norm/conv.1.att_src* ]] && ok "train: events" ||
  failed "train: events" "$(ls logged)"

# A run that stops and one that does not, with a schedule and gradients.
long=(train gat --preset missing --layers 3 --hidden 8 --data cora --quiet --log-gradients 1)
works "train: the whole way" "${long[@]}" --epochs 8 --out whole
works "train: half of the way" "${long[@]}" --schedule plateau --epochs 4 --out half
refused "train: the rest with another schedule" 1 "schedule" "${long[@]}" --epochs 8 --out half --resume
works "train: half of the way by plateau" "${long[@]}" --schedule plateau --epochs 4 --out part
works "train: and the rest" "${long[@]}" --schedule plateau --epochs 8 --out part --resume
works "train: the whole way by plateau" "${long[@]}" --schedule plateau --epochs 8 --out all
for file in last.lip best.lip metrics.jsonl; do same "train: resumed bit for bit, $file" part/$file all/$file; done

# Several runs, and what is measured of their checkpoints.
works "train: three runs" train gat --preset contrast --layers 3 --hidden 4 --data cora --quiet --epochs 3 --runs 3 --missing 50 \
  --out runs --json runs.json
holds "train: results of three runs" runs.json '"test_accuracy_mean":[0-9.e-]+' '"test_accuracy_std":[0-9.e-]+' \
  '"test_accuracy_last_mean":' '"seconds_per_epoch":[0-9.e-]+' '"peak_memory_bytes":[0-9]+' '"seed":2' '"missing-seed":0'
for run in 0 1 2; do
  works "eval: run $run" eval runs/run$run/best.lip --json eval.json
  tested=$(tr -d ' \n' <runs.json | grep -oE '"seed":'$run',"test_accuracy":[0-9.e-]+' | sed 's/.*"test_accuracy"://')
  evaluated=$(tr -d ' \n' <eval.json | grep -oE '"test_accuracy":[0-9.e-]+' | sed 's/.*://')
  [[ -n $tested && $tested == "$evaluated" ]] && ok "eval: what training measured, run $run" ||
    failed "eval: what training measured, run $run" "'$tested' and '$evaluated'"
done
works "train: evaluated now and then" "${tiny[@]}" --evaluate-every 3 --out sparse
works "eval: of a run evaluated now and then" eval sparse/best.lip
refused "eval: no checkpoint named" 2 "checkpoint" eval
refused "eval: no such file" 1 "nosuch\.lip" eval nosuch.lip
refused "eval: a checkpoint of something else" 1 "v1\.lip.*model" eval "$golden/checkpoint/v1.lip"
head -c 300 plain/best.lip >short.lip
refused "eval: a truncated checkpoint" 1 "short\.lip" eval short.lip
refused "eval: unknown data" 1 "nosuch" eval plain/best.lip --data nosuch
refused "eval: data of another shape" 1 "best\.lip" eval plain/best.lip --data generated
refused "eval: --json nowhere" 1 "nowhere" eval plain/best.lip --json nowhere/r.json
