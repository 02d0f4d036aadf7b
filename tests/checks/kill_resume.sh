#!/usr/bin/env bash
# Training runs that are killed at random moments and resumed end with the bits of one that was not.
. "$(dirname "$0")/../support/check.sh"

# survives NAME FILES PROGRAM ARGUMENT...
survives() {
  local name=$1 files=$2
  shift 2
  if tests/kill_resume --compare "$files" "$@" >build/kill_resume.log 2>&1; then
    ok "$name killed 20 times and resumed"
  else
    failed "$name killed 20 times and resumed" "see below"
    tail -20 build/kill_resume.log
  fi
}

survives "a training loop" "checkpoint.lip metrics.jsonl" build/release/tests/train_victim --steps 100
survives "lipgrad train" "last.lip best.lip metrics.jsonl" build/release/tools/lipgrad train gat \
  --preset missing --layers 4 --hidden 16 --data generated --epochs 60 --checkpoint-every 5 --log-gradients 3 --quiet
