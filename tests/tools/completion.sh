#!/usr/bin/env bash
# lipgrad completion bash: the script is sourced and asked, as bash does when Tab is pressed.
. "$(dirname "$0")/../support/program.sh"

works "completion: the script" completion bash
cp out lipgrad.bash
bash -n lipgrad.bash 2>err && [[ ! -s err ]] && ok "completion: the script is bash" ||
  failed "completion: the script is bash" "$(head -1 err)"
. ./lipgrad.bash
[[ $(complete -p lipgrad) == "complete -F _lipgrad_complete lipgrad" ]] && ok "completion: it registers" ||
  failed "completion: it registers" "$(complete -p lipgrad 2>&1)"

# answers WORD...: what is offered for the last word, on one line.
answers() {
  COMP_WORDS=(lipgrad "$@") COMP_CWORD=$#
  _lipgrad_complete lipgrad "${!#}" "" 2>err
  printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd ' '
}
# offers EXPECTED WORD...
offers() {
  local expected=$1 got
  shift
  got=$(answers "$@")
  if [[ $got == "$expected" && ! -s err ]]; then ok "completion: lipgrad $*"
  else failed "completion: lipgrad $*" "got '$got' expected '$expected' $(head -1 err)"; fi
}
# among EXPECTED WORD...: it is one of those offered.
among() {
  local expected=$1 got
  shift
  got=$(answers "$@")
  if [[ " $got " == *" $expected "* ]]; then ok "completion: lipgrad $* has $expected"
  else failed "completion: lipgrad $* has $expected" "got '$got'"; fi
}

offers "train" tr
offers "doctor" do
offers "--version" --v
among "gradcheck" ""
offers "gat gatv2 gcn ggnn transformer vision" train ""
offers "--select" train gat --sel
offers "last loss score" train gat --select ""
offers "last loss" train gat --select l
offers "loss" train gat --select = lo
offers "last loss score" train gat --select =
offers "score" train gat --layers 3 --resume --select s
offers "auto dense sparse" train gat --features ""
offers "--threads" train gat --thr
offers "train" --threads 2 tr
offers "" train gat --layers ""
offers "" frobnicate --x
offers "bash" completion ""
offers "citeseer" train gat --data cit
offers "paper-figure5 paper-gradients paper-table1" sweep paper
offers "contrast paper" sweep --protocol ""
among "generated" train gat --data ""
offers "fashion-mnist" train vision --data fash
offers "" train gat --data fash
offers "cifar10 cifar100 citeseer" sweep --data ci
offers "lipsformer_swin_micro" train vision --model lipsformer_swin_m
offers "micro paper" train vision --preset ""
offers "--train-images" train vision --train
offers "none padded random-resized" train vision --crop ""
offers "warmup" sweep war

# Every command and option of --help is offered, and no other.
mkdir runs && touch data.json graph.npz "runs/a b.lip"
for path in "" train "train gat" "train vision" sweep convert predict summary inspect doctor gradcheck rates completion; do
  read -ra command <<<"$path"
  "$lipgrad" "${command[@]}" --help >out
  expected=$(grep -oE '^ +(-[a-z],)?--[a-z0-9-]+' out | grep -oE -- '--[a-z0-9-]+' | sort | paste -sd ' ')
  [[ $path == "" ]] || expected=$(printf '%s\n' $expected --threads | sort | paste -sd ' ')
  offers "$expected" "${command[@]}" --
done
offers "data.json" train gat --json data.
offers "runs" train gat --out r
offers "graph.npz" train gat --data gr
offers "runs" inspect r
offers "runs/a b.lip" inspect runs/
among "data.json" inspect --json ""
