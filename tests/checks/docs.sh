#!/usr/bin/env bash
# Doxygen makes the documentation of the interface without a warning, and finds the comments in it.
. "$(dirname "$0")/../support/check.sh"

if ! command -v doxygen >/dev/null; then
  skipped "documentation" "doxygen is not installed"
  exit
fi
if tools/docs >build/docs.log 2>&1; then
  ok "documentation builds without warnings"
else
  failed "documentation builds without warnings" "see below"
  tail -40 build/docs.log
  exit
fi

# shows PAGE TEXT: a line for the verdict unless the page has the text.
shows() {
  sed 's/<[^>]*>//g' "build/docs/html/$1" 2>/dev/null | grep -qF "$2" || echo "$1 does not say: $2"
}
verdict "documentation holds the comments" "$(
  shows index.html "lipgrad is a deep-learning framework in C++20"
  shows classlipgrad_1_1Tensor.html "A contiguous row-major array: a cheap handle on shared storage."
  shows structlipgrad_1_1CrossEntropyOptions.html "Weight s of the uniform distribution in the target"
  shows structlipgrad_1_1GatConvOptions.html "features of a node that come in"
  shows loss_8h.html "averaged over all elements; equal shapes."
  shows op_8h.html "How differentiable operations are written."
)"
verdict "documentation names no folder of this machine" "$(grep -rlF "$PWD" build/docs/html | head)"
