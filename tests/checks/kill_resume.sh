#!/usr/bin/env bash
# Training runs that are killed at random moments and resumed end with the bits of one that was not.
. "$(dirname "$0")/../support/check.sh"

if tests/kill_resume --compare "checkpoint.lip metrics.jsonl" build/release/tests/train_victim \
  --steps 100 >build/kill_resume.log 2>&1; then
  ok "killed 20 times and resumed"
else
  failed "killed 20 times and resumed" "see below"
  tail -20 build/kill_resume.log
fi
