#!/usr/bin/env bash
# lipgrad sweep: grids, what is chosen and by what, runs that stop, are killed and go on, files in the way, figures.
real_data=${LIPGRAD_DATA:-}
. "$(dirname "$0")/../support/program.sh"

tiny=(sweep --hidden 4 --heads 1 --data cora --schedule constant --quiet)
rest=(--attention-norm none,lipschitz --epochs 3 --seeds 2)
grid=("${tiny[@]}" --layers 2,3 "${rest[@]}")
more=("${tiny[@]}" --layers 2,3,4 "${rest[@]}")

# has NAME FILE PATTERN...
has() {
  local name=$1 file=$2
  shift 2
  for pattern; do
    grep -qE -- "$pattern" "$file" 2>/dev/null || { failed "$name" "no '$pattern' in $file: $(head -c 600 "$file" 2>&1)"; return; }
  done
  ok "$name"
}
count() { local name=$1 expected=$2 got=$3; [[ $got == "$expected" ]] && ok "$name" || failed "$name" "$got, expected $expected"; }
same() { if cmp -s "$2" "$3"; then ok "$1"; else failed "$1" "$2 and $3 differ: $(diff "$2" "$3" | head -3)"; fi; }
lines() { [[ -e $1 ]] && wc -l <"$1" || echo none; }
xml() {
  python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$2" 2>err && [[ $(head -c 4 "$2") == "<svg" ]] &&
    ok "$1" || failed "$1" "$(tail -1 err)"
}

# Grids.
works "sweep: --dry-run" "${grid[@]}" --dry-run
count "sweep: runs of a grid" 8 "$(grep -c 'seed' out)"
count "sweep: each with an id of its own" 8 "$(grep seed out | cut -c1-16 | sort -u | wc -l)"
has "sweep: they are told" out "8 runs, about" "layers 3, attention-norm lipschitz, seed 1$"
cat >grid.toml <<'END'
# a grid
lr = 0.01
layers = [2, 3, 4]
seeds = [7, 9]
choose = ["layers"]
[method.plain]
attention-norm = "none"
[method.Lip]
attention-norm = "lipschitz"
norm = "pairnorm"
END
works "sweep: a grid file" "${tiny[@]}" --config grid.toml --dry-run
has "sweep: methods of a grid file" out "12 runs" "plain, layers 2, seed 7" "Lip, layers 4, seed 9"
works "sweep: the command line before the file" "${tiny[@]}" --config grid.toml --layers 5,6 --methods Lip --dry-run
has "sweep: axes replaced, methods left out" out "4 runs" "layers 6, seed 9"
printf 'layers = [2, 3]\n[method.base]\n[method.fast]\nlr = 0.1\n' >base.toml
works "sweep: a method of no settings" "${tiny[@]}" --config base.toml --dry-run
has "sweep: it is one of the grid" out "4 runs" "base, layers 2" "fast, layers 3"
refused "sweep: a setting that methods set" 1 "norm is set by the method 'Lip'" "${tiny[@]}" --config grid.toml --norm layernorm --dry-run
refused "sweep: no such method" 1 "no method 'Lop'.*plain, Lip" "${tiny[@]}" --config grid.toml --methods Lop
refused "sweep: an axis that is no setting" 2 "layrs" "${tiny[@]}" --layrs 2,3
refused "sweep: a value that is none" 1 "layers = many" "${tiny[@]}" --layers 2,many --out s
refused "sweep: a value out of range" 1 "dropout = 7" "${tiny[@]}" --dropout 0,7 --out s
refused "sweep: a value twice" 1 "layers has the value 2 twice" "${tiny[@]}" --layers 2,3,2 --out s
refused "sweep: an empty value" 1 "layers.*commas" "${tiny[@]}" --layers 2,,3 --out s
refused "sweep: no such model" 1 "no model 'cnn'" "${tiny[@]}" --model cnn --out s
refused "sweep: no seeds" 1 "seeds" "${tiny[@]}" --seeds 0 --out s
refused "sweep: seeds that are none" 1 "seeds" "${tiny[@]}" --seeds 1,x --out s
refused "sweep: chosen, but no axis" 1 "choose 'lr'" "${tiny[@]}" --choose lr --out s
refused "sweep: seeds are not chosen" 1 "choose 'seed'" "${tiny[@]}" --seeds 2 --choose seed --out s
refused "sweep: no such preset" 2 "paper-table9" sweep paper-table9
refused "sweep: --quick of nothing" 1 "quick" "${tiny[@]}" --quick
refused "sweep: no --out" 1 "out DIR" "${tiny[@]}"
refused "sweep: no such data" 1 "nosuch" sweep --data nosuch --out s
refused "sweep: too large a grid" 1 "at most 100000" "${tiny[@]}" --seeds 100000 --layers 2,3 --out s
refused "sweep: a model that cannot be, before any run" 1 "lr 0.1.*linear_ends" "${tiny[@]}" --lr 0.1,0.01 --identity-map 0.5 --linear-ends false --out s
printf 'layers = [2, 3]\n[models.GAT]\nlr = 1\n' >bad.toml
refused "sweep: another section" 1 "bad\.toml:2" "${tiny[@]}" --config bad.toml --out s
printf '[method.GAT]\nlayers = [2, 3]\n' >bad.toml
refused "sweep: a method with two values" 1 "bad\.toml.*layers.*one value" "${tiny[@]}" --config bad.toml --out s
printf 'layrs = [2, 3]\n' >bad.toml
refused "sweep: a file's axis that is no setting" 1 "layrs" "${tiny[@]}" --config bad.toml --out s
head -c 3000 /dev/urandom >bad.toml
refused "sweep: noise for a grid" 1 "bad\.toml" "${tiny[@]}" --config bad.toml --out s
[[ ! -e s ]] && ok "sweep: nothing is written for a wrong grid" || failed "sweep: nothing is written for a wrong grid" "$(ls s)"

# One grid of several models: each takes the settings that it has.
works "sweep: models of unlike settings" "${tiny[@]}" --model gcn,gat --attention-norm none,lipschitz --epochs 1 --out models
count "sweep: models of unlike settings, runs" 3 "$(lines models/runs.jsonl)"
count "sweep: models of unlike settings, lines of the grid" 5 "$(lines models/results.csv)"
printf '[method.GCN]\nmodel = "gcn"\nheads = 3\n' >bad.toml
refused "sweep: a method with a setting that its model lacks" 1 "GCN.*heads|heads" "${tiny[@]}" --config bad.toml --out s

# A sweep, the same again, and a larger one.
works "sweep: runs" "${grid[@]}" --out whole --jobs 2
count "sweep: a line a run" 8 "$(lines whole/runs.jsonl)"
count "sweep: results.csv" 9 "$(lines whole/results.csv)"
has "sweep: table.md" whole/table.md "mean ± sample standard deviation over 2 seeds" "attention-norm lipschitz" "± "
has "sweep: the table on standard output" out "attention-norm lipschitz"
python3 -c 'import json; r = json.load(open("whole/results.json")); assert r["finished"] == 8 and len(r["configurations"]) == 4' 2>err &&
  ok "sweep: results.json" || failed "sweep: results.json" "$(tail -1 err)"
xml "sweep: depth.svg is XML" whole/depth.svg
[[ ! -e $(echo whole/runs/*/last.lip | head -1) ]] && ok "sweep: checkpoints of finished runs are gone" ||
  failed "sweep: checkpoints of finished runs are gone" "$(ls whole/runs/*)"
again() { works "sweep: the same again" "${grid[@]}" --out whole; }
unchanged "sweep: the same again" whole again
works "sweep: other numbers of runs at a time and threads" "${grid[@]}" --out other --jobs 1 --threads 2
same "sweep: change no result" whole/results.csv other/results.csv
same "sweep: change no figure" whole/depth.svg other/depth.svg
"$lipgrad" "${more[@]/--quiet/--threads=2}" --out other >out 2>err
has "sweep: a changed grid is told" err "the grid has changed.*4 runs are new, 0 have" "12 runs, 8 done already"
count "sweep: and its runs are added" 12 "$(lines other/runs.jsonl)"
"$lipgrad" "${grid[@]/--quiet/--threads=2}" --out other >out 2>err
has "sweep: so is a smaller one" err "0 runs are new, 4 have no part"
same "sweep: which shows its own runs" whole/results.csv other/results.csv
rm whole/results.csv whole/depth.svg
works "sweep: --figures-only" "${grid[@]}" --out whole --figures-only
same "sweep: figures and results from what is there" whole/results.csv other/results.csv
refused "sweep: --figures-only of nothing" 1 "nosuch" "${grid[@]}" --out nosuch --figures-only

# A run alone does the same: sweep and train agree.
id=$(grep -m1 'layers.:3' whole/runs.jsonl | grep -oE '"id":"[0-9a-f]+' | cut -c7-)
works "sweep: a run of train with its settings" train gat --hidden 4 --heads 1 --data cora --schedule constant --layers 3 --epochs 3 \
  --quiet --attention-norm none --out alone
single=$(grep -E '^3,none,0,' whole/results.csv | cut -d, -f4)
same "sweep: runs are those of train" alone/metrics.jsonl "whole/runs/$single/metrics.jsonl"

# Chosen on validation: test scores that would tempt are planted.
chosen=("${tiny[@]}" --layers 2,3 --epochs 3 --seeds 2 --choose layers)
works "sweep: chooses" "${chosen[@]}" --out plant
plant() {
  python3 - "$@" <<'END'
import json, sys
lines = [json.loads(line) for line in open("plant/runs.jsonl")]
for line in lines:
    good = line["config"]["layers"] == int(sys.argv[1])
    line["result"].update(valid_accuracy=0.75 if good else 0.5, test_accuracy=0.25 if good else 1.0)
    line["result"].update(test_accuracy_last=0.25 if good else 1.0, valid_loss=1.0)
open("plant/runs.jsonl", "w").writelines(json.dumps(line) + "\n" for line in lines)
END
}
for depth in 2 3; do
  plant $depth
  works "sweep: planted test scores, $depth layers are best on validation" "${chosen[@]}" --out plant --figures-only
  has "sweep: a high test score tempts nobody, $depth layers" plant/table.md "25\.0 ± 0\.0 \($depth layers\)"
  grep -q "100" plant/table.md && failed "sweep: nor is it in the table" "$(cat plant/table.md)" || ok "sweep: nor is it in the table, $depth layers"
  count "sweep: chosen in results.csv, $depth layers" 2 "$(grep -cE "^$depth,[01],[0-9a-f]{16},1,accuracy" plant/results.csv)"
  count "sweep: and no others, $depth layers" 2 "$(grep -cE ",[0-9a-f]{16},1,accuracy" plant/results.csv)"
done

# A file of runs that is damaged: the damage is told, and those runs are done again.
cp -r whole hurt
head -c -20 whole/runs.jsonl >hurt/runs.jsonl
"$lipgrad" "${grid[@]/--quiet/--threads=1}" --out hurt >out 2>err
has "sweep: half a line at the end" err "runs\.jsonl:8: an incomplete line"
count "sweep: is written again" 8 "$(lines hurt/runs.jsonl)"
same "sweep: to the same result" hurt/results.csv other/results.csv
{
  echo "garbage"
  sed -n 1p whole/runs.jsonl | sed 's/"layers":[0-9]*/"layers":9/'
  sed -n 2p whole/runs.jsonl | sed 's/"test_accuracy":[0-9.]*/"test_accuracy":7.5/'
  sed -n 3p whole/runs.jsonl | sed 's/"result":{.*}/"result":[]}/'
  printf '[[[[\n\n{}\nnull\n\xff\xfe\x00\n'
  sed -n 4,8p whole/runs.jsonl
} >hurt/runs.jsonl
"$lipgrad" "${grid[@]/--quiet/--threads=1}" --out hurt >out 2>err
has "sweep: garbage in the file of runs" err "runs\.jsonl:1: not a run's line" "runs\.jsonl:2: .*id is not" "runs\.jsonl:3: .*test_accuracy is 7\.5" \
  "runs\.jsonl:4: not" "runs\.jsonl:9: not" "8 runs, 5 done already"
same "sweep: garbage does no harm" hurt/results.csv other/results.csv
head -c 4000 /dev/urandom >hurt/runs.jsonl
head -c 4000 /dev/urandom >hurt/sweep.json
works "sweep: noise for runs" "${grid[@]}" --out hurt
same "sweep: noise does no harm" hurt/results.csv other/results.csv

# Stopped by signals, and killed: it goes on to the same bytes.
long=("${tiny[@]}" --layers 3 --attention-norm none,lipschitz --epochs 400 --seeds 2 --checkpoint-every 5 --jobs 2)
works "sweep: the whole way" "${long[@]}" --out long.whole
set -m  # else bash would have the program ignore SIGINT from the start
# start OUT: until its first runs are under way.
start() {
  "$lipgrad" "${long[@]/--quiet/--threads=2}" --out "$1" >started.out 2>started.err &
  program=$!
  for ((i = 0; i < 1000; ++i)); do
    [[ -n $(compgen -G "$1/runs/*/last.lip") ]] && break
    kill -0 $program 2>/dev/null || break
    sleep 0.01
  done
}
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
for signal in INT TERM; do
  start long.$signal
  kill -s $signal $program
  wait $program
  count "sweep: status of SIG$signal" 130 $?
  has "sweep: SIG$signal is told" started.err "stopped: [0-3] of 4 runs are done; the same command goes on"
  works "sweep: after SIG$signal" "${long[@]}" --out long.$signal
  same "sweep: the rest after SIG$signal, same bytes" long.$signal/results.csv long.whole/results.csv
done
for moment in 0 0.05 0.2; do
  start long.kill
  sleep $moment
  workers=$(children $program)
  kill -9 $program 2>/dev/null
  wait $program 2>/dev/null
  sleep 0.1
  alive=$(for worker in $workers; do grep -l '^State:[^Z]*$' "/proc/$worker/status" 2>/dev/null; done)
  [[ -z $alive ]] && ok "sweep: its runs end with it, killed after $moment s" || failed "sweep: its runs end with it" "still there: $alive"
done
works "sweep: after SIGKILL" "${long[@]}" --out long.kill
same "sweep: the rest after SIGKILL, same bytes" long.kill/results.csv long.whole/results.csv
same "sweep: and the same table" long.kill/table.md long.whole/table.md
start long.worker
read -r worker _ <<<"$(children $program)"
kill -9 "$worker"
refused_while_running() { refused "sweep: two at once" 1 "another sweep is running" "${long[@]}" --out long.worker; }
refused_while_running
wait $program
count "sweep: status when a run was killed" 0 $?
has "sweep: and it is told" started.err "killed by signal 9.*once more"
same "sweep: a run that was killed is done again, same bytes" long.worker/results.csv long.whole/results.csv
set +m

# Runs that come to nothing are told and count as such.
works "sweep: a rate at which the loss has no end" "${tiny[@]}" --layers 2 --lr 0.01,1e38 --epochs 40 --out lost
has "sweep: is told" lost/table.md "lr 1e38.*(–|diverged)"
has "sweep: and has its line" lost/results.csv "^1e38,0,[0-9a-f]{16},0,.*(loss is|weights are not finite)"

# Models of images: their options are axes, rates at which the loss is not finite end a run early, and what trains is told.
idx data/fashion-mnist 120 train
idx data/fashion-mnist 40 t10k
images=(sweep warmup --quick --quiet --width 8 --heads 1,2 --depths "1,1;2,1" --warmup-epochs 0,0.5 --lr 0.02,1e38 --train-images 80 --test-images 40
  --epochs 3 --evaluate-every 3)
works "sweep: images" "${images[@]}" --out images
count "sweep: images, a line a run" 16 "$(lines images/runs.jsonl)"
has "sweep: what trains is said" images/table.md "halfway from guessing \(10\.0 %\)" "^## Swin, no warm-up" "^## LipsFormer, warm-up of 0\.5 epochs" \
  "^\| depths 2,1 \|.*\| diverged \|" "^\| no warm-up, depths 1,1 \| .* \| .* \| .* \|" "LipsFormer / Swin"
count "sweep: rates.csv" 17 "$(lines images/rates.csv)"
count "sweep: those that diverged" 8 "$(grep -c '1e38,1,1,,diverged,' images/rates.csv)"
python3 - <<'END' 2>err && ok "sweep: the highest rates follow from the runs" || failed "sweep: the highest rates follow from the runs" "$(tail -1 err)"
import csv, json, collections
rows = list(csv.DictReader(open("images/rates.csv")))
best = max(float(r["test_last"]) for r in rows if r["test_last"])
highest = collections.defaultdict(list)
for r in rows:
    assert abs(float(r["threshold"]) - (0.1 + best) / 2) < 1e-12
    good = r["test_last"] != "" and float(r["test_last"]) >= float(r["threshold"])
    assert r["fate"] == ("diverged" if r["diverged"] != "0" else "trains" if good else "untrained"), r
    highest[r["method"], r["warmup-epochs"], r["depths"]].append(float(r["lr"]) if good else 0)
rates = json.load(open("images/results.json"))["rates"]
assert len(rates["highest"]) == len(highest) == 8 and len(rates["ratios"]) > 0
for entry in rates["highest"]:
    s = entry["settings"]
    assert (entry["rate"] or 0) == max(highest[s["method"], s["warmup-epochs"], s["depths"]])
END
xml "sweep: rates.svg is XML" images/rates.svg
has "sweep: rates.svg" images/rates.svg ">diverged<" ">depths 2,1<" ">learning rate<" ">LipsFormer, no warm-up<"
images_again() { works "sweep: images again" "${images[@]}" --out images; }
unchanged "sweep: images again" images images_again
works "sweep: images, a plain grid" sweep --model swin,vit --depths "1,1;2,2" --heads "1,2;2,2" --width 8 --epochs 1 --validation 0.2 --choose heads \
  --quiet --out plain
count "sweep: depths and heads are lists" 8 "$(lines plain/runs.jsonl)"
printf 'depths = ["1,1", "2,2"]\nmodel = "swin"\nwidth = 8\nheads = "1,2"\nepochs = 1\n' >images.toml
works "sweep: images, a grid file" sweep --config images.toml --dry-run
has "sweep: images, a grid file" out "2 runs" "depths 2,2"
refused "sweep: nothing to choose by" 1 "needs validation images" sweep --config images.toml --lr 0.1,0.2 --choose lr --out s
refused "sweep: a model of images that cannot be" 1 "windows of 5 x 5" sweep --config images.toml --window 5 --out s
refused "sweep: more images than there are" 1 "train-images 121: the data set has 120" sweep --config images.toml --train-images 121 --out s
printf '[method.graph]\nmodel = "gcn"\ndata = "cora"\nhidden = 4\n[method.image]\nmodel = "swin"\nwidth = 8\ndepths = "1,1"\nheads = "1,2"\n' >both.toml
works "sweep: graphs and images" sweep --config both.toml --epochs 1 --quiet --out both
count "sweep: graphs and images" 2 "$(lines both/runs.jsonl)"

# Output that cannot be written.
echo occupied >file
refused "sweep: --out is a file" 1 "file" "${grid[@]}" --out file
refused "sweep: --out below a file" 1 "file" "${grid[@]}" --out file/s
refused "sweep: --out nowhere" 1 "/proc/nosuch" "${grid[@]}" --out /proc/nosuch/s
mkdir full
full_disk='mount -t tmpfs -o size=100k none full || exit 77
  "$@" >out 2>err; status=$?
  umount full; exit $status'
unshare -rm bash -c "$full_disk" full "$lipgrad" "${grid[@]/#4/64}" --out full/s 2>/dev/null
case $? in
  1) has "sweep: disk full" err "[Nn]o space" ;;
  77) skipped "sweep: disk full" "no file system can be mounted here" ;;
  *) failed "sweep: disk full" "$(cat err)" ;;
esac

# Figures of presets, of the tiny data.
works "sweep: gradients" sweep paper-gradients --hidden 4 --epochs 4 --layers 2,4 --out gradients --quiet
xml "sweep: gradients.svg is XML" gradients/gradients.svg
xml "sweep: training.svg is XML" gradients/training.svg
has "sweep: heat maps without and with the norm" gradients/gradients.svg ">none<" ">LipschitzNorm<" ">attention layer<" ">epoch<"
works "sweep: ablation" sweep ablation --quick --hidden 4 --epochs 2 --layers 2,3 --methods whole,glorot --out ablation --quiet
xml "sweep: ablation.svg is XML" ablation/ablation.svg
works "sweep: figure 5" sweep paper-figure5 --quick --hidden 4 --epochs 2 --layers 2,5 --seeds 2 --out figure5 --quiet
xml "sweep: figure 5 is XML" figure5/depth.svg
has "sweep: figure 5 has what was published" figure5/table.md "\*82\.2\*" "\| GAT-Lip \|"
works "sweep: table 1" sweep paper-table1 --hidden 4 --epochs 2 --layers 2,3 --seeds 2 --out table1 --quiet
has "sweep: table 1 has what was published" table1/table.md "\*83\.1 ± 0\.5 \(5 layers\)\*" "0 % missing" "100 % missing"
has "sweep: table 1 says what it leaves out, and how it deviates" table1/table.md "Left out: citeseer" "deviates"
printf '[method.a<b&c"d]\nlr = 0.1\n[method.e]\nlr = 0.2\n' >odd.toml
works "sweep: names that XML would take for its own" "${tiny[@]}" --config odd.toml --layers 2,3 --epochs 1 --out odd
xml "sweep: are written as text" odd/depth.svg

# The presets' time, on the data they are for.
if [[ -n $real_data ]] && LIPGRAD_DATA=$real_data "$lipgrad" sweep paper-gradients --data cora --dry-run >/dev/null 2>&1; then
  for preset in paper-table1 paper-figure5 paper-gradients ablation warmup; do
    LIPGRAD_DATA=$real_data "$lipgrad" --threads 2 sweep $preset --quick --dry-run >out 2>err
    minutes=$(sed -nE 's/.*about ([0-9]+):[0-9][0-9] on 2 cores$/\1/p' out)
    [[ -n $minutes && $minutes -lt 30 ]] && ok "sweep: $preset --quick takes less than half an hour" ||
      failed "sweep: $preset --quick takes less than half an hour" "$(cat out err | tail -1)"
  done
else
  skipped "sweep: the presets' time" "cora is not here"
fi
