#!/usr/bin/env bash
# The lipgrad program given wrong input, and stopped: one clear line, a status that is not zero, and
# files that were there stay as they were.
. "$(dirname "$0")/../support/program.sh"

quick=(train gat --preset standard --data cora --quiet)
short=("${quick[@]}" --epochs 3)

works "cli: --version" --version
[[ $(cat out) == "lipgrad "[0-9]* ]] || failed "cli: --version" "printed $(cat out)"
works "cli: --help" --help
grep -q "Exit status: 0 success, 1 an error, 2 a wrong command line, 130 stopped" out && ok "cli: --help tells the exit status" ||
  failed "cli: --help tells the exit status" "it does not"
works "cli: train gat --help" train gat --help
works "cli: trains on a tiny data set" "${short[@]}"

# The command line.
refused "cli: nothing to do" 2 "subcommand|required"
refused "cli: unknown subcommand" 2 "frobnicate|subcommand|required" frobnicate
refused "cli: a command mistyped" 2 "no command 'trian'; did you mean 'train'" trian gat
refused "cli: a model mistyped" 2 "train: no command 'gta'; did you mean 'gat'" train gta
refused "cli: no model" 2 "train: a command is required: .*gat" train
refused "cli: an option mistyped" 2 "train gat: no option '--heds'; did you mean '--heads'" train gat --layers 3 --heds 2
refused "cli: a mistyped option and its value" 2 "did you mean '--epochs'" train gat --epohcs=2
refused "cli: an option without its value" 2 "select" train gat --select
refused "cli: a word too many" 2 "cora" train gat cora
works "cli: --threads before the command" --threads 1 "${short[@]}"
works "cli: --threads after the command" "${short[@]}" --threads 1
refused "cli: unknown option" 2 "frobnicate" train gat --frobnicate
refused "cli: epochs below zero" 2 "epochs" train gat --epochs -1
refused "cli: epochs not a number" 2 "epochs" train gat --epochs many
refused "cli: no heads" 2 "heads" train gat --heads 0
refused "cli: dropout above one" 2 "dropout" train gat --dropout 1.5
refused "cli: dropout not a number" "1|2" "dropout" "${short[@]}" --dropout nan
refused "cli: rate not a number" "1|2" "lr|rate" "${short[@]}" --lr nan
refused "cli: rate below zero" 2 "lr" train gat --lr -0.1
refused "cli: rate without end" 2 "lr" train gat --lr inf
refused "cli: no runs" 2 "runs" train gat --runs 0
refused "cli: seed below zero" 2 "seed" train gat --seed -1
refused "cli: no threads" 2 "threads" --threads 0 gradcheck
refused "cli: resume from nowhere" 1 "--out" "${short[@]}" --resume
refused "cli: unknown op" 1 "nosuchop" gradcheck --op nosuchop
refused "cli: a device of another kind" 1 "device: 'gpu'; expected cpu, cuda or cuda:0" "${short[@]}" --device gpu
if "$lipgrad" doctor | grep -q "^CUDA  *not in this build"; then
  for command in "train gat --data cora" "gradcheck --op tanh" rates; do
    refused "cli: ${command%% *} on CUDA without it" 1 "cuda:0 asked for, but this build of lipgrad has no CUDA backend" \
      $command --device cuda
  done
fi
refused "cli: evaluations every 0 epochs" 2 "evaluate-every" "${short[@]}" --evaluate-every 0
works "cli: evaluations now and then" train gat --preset standard --data cora --epochs 5 --evaluate-every 3
works "cli: rates" rates --rows 8 --seconds 0 --only softmax --json rates.json
refused "cli: rates of too many rows" 2 "rows" rates --rows 99999999999
LIPGRAD_THREADS=some refused "cli: LIPGRAD_THREADS not a number" 1 "LIPGRAD_THREADS.*some" "${short[@]}"

# Data sets.
refused "cli: unknown data set" 1 "nosuch.*cora" train gat --data nosuch
refused "cli: data set not there" 1 "citeseer.*(LIPGRAD_DATA|fetch_data)" train gat --data citeseer
refused "cli: no such file" 1 "nosuch\.npz.*(No such file|not found)" train gat --data nosuch.npz
refused "cli: a folder for a file" 1 "home\.npz" train gat --data home.npz
refused "cli: npz of something else" 1 "stored\.npz" train gat --data "$golden/npz/stored.npz"
head -c 300 "$golden/npz/stored.npz" >short.npz
refused "cli: truncated npz" 1 "short\.npz" train gat --data short.npz
: >empty.npz
refused "cli: empty npz" 1 "empty\.npz" train gat --data empty.npz
head -c 5000 /dev/urandom >noise.npz
refused "cli: npz of noise" 1 "noise\.npz" train gat --data noise.npz
for file in data/ind.cora.*; do
  part=${file##*cora.}
  cp "$file" kept
  rm "$file"
  refused "cli: planetoid without $part" 1 "$part" "${short[@]}"
  # Half of a list of test nodes is a list of test nodes; cut it within a number's line.
  head -c $(($(stat -c %s kept) / 2)) kept >"$file"
  [[ $part == test.index ]] && echo "9x" >"$file"
  refused "cli: planetoid with half of $part" 1 "$part" "${short[@]}"
  cp kept "$file"
done

# Output that cannot be written.
echo occupied >file
refused "cli: --out is a file" 1 "file" "${short[@]}" --out file
refused "cli: --out below a file" 1 "file" "${short[@]}" --out file/run
refused "cli: --out nowhere" 1 "/proc/nosuch" "${short[@]}" --out /proc/nosuch/run
[[ $(cat file) == occupied ]] && ok "cli: the file is still there" || failed "cli: the file is still there" "it changed"
"$lipgrad" "${short[@]}" --json nowhere/results.json >out 2>err
[[ $? == 1 && $(cat err) == *nowhere* ]] && ok "cli: --json nowhere" || failed "cli: --json nowhere" "$(cat err)"
if [[ -w /dev/full ]]; then
  "$lipgrad" "${short[@]}" >/dev/full 2>err
  [[ $? != 0 && -s err ]] && ok "cli: standard output full" || failed "cli: standard output full" "no error: $(cat err)"
fi

# Checkpoints.
works "cli: trains with --out" "${short[@]}" --out run
works "cli: resumes" "${quick[@]}" --out run --resume --epochs 5
another_model() { refused "cli: checkpoint of another model" 1 "hidden|settings|config" "${quick[@]}" --out run --resume --epochs 9 --hidden 16; }
unchanged "cli: checkpoint of another model" run another_model
another_seed() { refused "cli: checkpoint of another seed" 1 "seed|settings|config" "${quick[@]}" --out run --resume --epochs 9 --seed 77; }
unchanged "cli: checkpoint of another seed" run another_seed
checkpoint=run/last.lip
cp "$checkpoint" kept
head -c $(($(stat -c %s kept) / 2)) kept >"$checkpoint"
truncated() { refused "cli: truncated checkpoint" 1 "last\.lip" "${quick[@]}" --out run --resume --epochs 9; }
unchanged "cli: truncated checkpoint" run truncated
{ head -c 200 kept; printf 'x'; tail -c +202 kept; } >"$checkpoint"
damaged() { refused "cli: damaged checkpoint" 1 "last\.lip" "${quick[@]}" --out run --resume --epochs 9; }
unchanged "cli: damaged checkpoint" run damaged
cp "$golden/npz/stored.npz" "$checkpoint"
foreign() { refused "cli: something else for a checkpoint" 1 "last\.lip" "${quick[@]}" --out run --resume --epochs 9; }
unchanged "cli: something else for a checkpoint" run foreign
cp kept "$checkpoint"
works "cli: resumes with the good checkpoint back" "${quick[@]}" --out run --resume --epochs 6

# A full disk: a file system of its own of 64 KiB, or else a limit on the size of files.
"$lipgrad" "${short[@]}" --out whole >/dev/null 2>&1
full_disk='
  mount -t tmpfs -o size=$1 none full || exit 77
  shift
  cp -r run full/run && before=$(sha256sum full/run/*.lip)
  head -c 1000000 /dev/zero >full/filler 2>/dev/null
  "$@" >out 2>err; status=$?
  [[ $(sha256sum full/run/*.lip) == "$before" ]] || exit 78
  exit $status'
mkdir full
blocks=$(($(du -sk run | cut -f1) + 8))
unshare -rm bash -c "$full_disk" full "${blocks}k" "$lipgrad" "${quick[@]}" --out full/run --resume --epochs 9 2>/dev/null
case $? in
  1) if grep -qE 'full/run.*[Nn]o space' err; then ok "cli: disk full"; else failed "cli: disk full" "$(cat err)"; fi ;;
  77) skipped "cli: disk full" "no file system can be mounted here" ;;
  78) failed "cli: disk full" "the checkpoint that was there is not as it was" ;;
  *) failed "cli: disk full" "status $?, $(cat err)" ;;
esac
limited() (
  trap '' XFSZ
  ulimit -f 1
  "$lipgrad" "${quick[@]}" --out run --resume --epochs 9 >out.limited 2>err.limited
  [[ $? == 1 ]]
)
before=$(sha256sum run/*.lip)
if limited; then
  ok "cli: file too large"
else
  failed "cli: file too large" "$(cat err.limited)"
fi
[[ $(sha256sum run/*.lip) == "$before" ]] && ok "cli: file too large: checkpoints unchanged" ||
  failed "cli: file too large: checkpoints unchanged" "they changed"

# Stopped: the epoch ends, a checkpoint is written, and training goes on from it.
set -m  # else bash would have the program ignore SIGINT from the start
for signal in INT TERM; do
  folder=stopped$signal
  "$lipgrad" train gat --preset standard --data cora --epochs 100000000 --out $folder --quiet >out 2>err </dev/null &
  program=$!
  for ((tenths = 0; tenths < 600; ++tenths)); do  # until it has trained an epoch
    { [[ -s $folder/metrics.jsonl ]] || ! kill -0 $program 2>/dev/null; } && break
    sleep 0.1
  done
  kill -s $signal $program
  wait $program
  status=$?
  if [[ $status == 130 && -e $folder/last.lip ]] && grep -q resume err; then
    ok "cli: stopped by SIG$signal"
  else
    failed "cli: stopped by SIG$signal" "status $status: $(cat err)"
    continue
  fi
  epochs=$(grep -oE 'after epoch [0-9]+' err | grep -oE '[0-9]+')
  works "cli: goes on after SIG$signal" train gat --preset standard --data cora --epochs $((epochs + 2)) \
    --out $folder --resume --quiet
done
