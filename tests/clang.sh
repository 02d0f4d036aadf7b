#!/usr/bin/env bash
# The library compiles with clang too, without a warning. Nothing is built.
. "$(dirname "$0")/support/check.sh"

if ! command -v clang++ >/dev/null; then
  skipped "clang" "clang++ is not installed"
  exit
fi
flags=(-std=c++20 -fsyntax-only -Wall -Wextra -Werror -DHWY_COMPILE_ONLY_STATIC
  -Ibuild/release/include -Ibuild/release/proto
  $(pkg-config --cflags openblas libhwy fmt protobuf-lite))
sources() { files {core,ops,graph,vision,models,cuda}/'*.cpp' cuda/'*.cu' tests/cuda_emulation/src/'*.cpp'; }
# CUDA sources as in the preset emulated.
flags+=(-isystem tests/cuda_emulation/include -Itests/cuda_emulation/src -Wno-unknown-pragmas -x c++)
verdict "clang: $(sources | wc -l) files" "$(sources |
  nice xargs -P "$(nproc)" -n 4 clang++ "${flags[@]}" 2>&1 | grep -E 'error|warning' | head -40)"
