#!/usr/bin/env bash
# The CUDA build: everything compiles and links with nvcc, no kernel spills registers or keeps
# arrays in local memory, and the programs start on a machine that has no CUDA driver.
. "$(dirname "$0")/support/check.sh"
. tools/setup.sh

command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
if ! command -v nvcc >/dev/null; then
  skipped "cuda" "nvcc is not installed"
  exit
fi

# Kernels are compiled anew each time (the compiler cache makes that quick), since ptxas reports what
# they use only then.
command -v ccache >/dev/null && cmake_options+=(-DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
[[ -d build/cuda ]] && find build/cuda -name '*.cu.o' -delete
start=$SECONDS
mkdir -p build/cuda
if ! (build cuda lipgrad_cuda_tests lipgrad_program) >build/cuda/build.log 2>&1; then
  failed "cuda build" "nvcc $(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
  grep -E 'error|undefined reference|FAILED|cannot configure' build/cuda/build.log | head -40 |
    sed 's/^/    /'
  exit
fi
ok "cuda build: $((SECONDS - start)) s on $(nproc) processors"

# For each kernel and architecture ptxas says "Compiling entry function NAME for ARCH", then "N bytes
# stack frame, N bytes spill stores, N bytes spill loads", then "Used N registers".
report=$(awk -v quote="'" '
  /Compiling entry function/ { split($0, part, quote); kernel = part[2] " for " part[4]; kernels++ }
  /Function properties for/ { where = $NF }
  /bytes stack frame/ {
    if ($1 > 0 || $5 > 0 || $9 > 0)
      print where (index(kernel, where) ? substr(kernel, length(where) + 1) : " in " kernel) ": " $0
  }
  /Used [0-9]+ registers/ {
    for (i = 1; i < NF; i++) if ($i == "Used" && $(i + 1) > most) { most = $(i + 1); by = kernel }
  }
  END { print "kernels " kernels + 0; print "most " most " registers: " by }' build/cuda/build.log)
kernels=$(sed -n 's/^kernels //p' <<<"$report")
if [[ $kernels == 0 ]]; then
  failed "cuda resources" "the build reported no kernel"
else
  echo "$report" | grep '^most' | c++filt | sed 's/^/    /'
  verdict "cuda resources: $kernels kernels for all architectures, no spills, no local memory" \
    "$(grep -vE '^(kernels|most) ' <<<"$report" | c++filt | sort | head -40)"
fi

program=build/cuda/tests/lipgrad_cuda_tests
if ldd $program | grep -q 'not found'; then
  failed "cuda programs" "$(ldd $program | grep 'not found' | head -3 | xargs)"
  exit
fi
log=build/cuda/tests.log
timeout 10m $program --no-colors=true >"$log" 2>&1 </dev/null
status=$?
ran=$(sed -n 's/^\[doctest\] test cases: *\([0-9]*\) .*/\1/p' "$log")
without=$(awk '/^TEST CASE: /{ test = $0 } /MESSAGE: skipped: / && !(test in seen) { seen[test]; n++ }
  END { print n + 0 }' "$log")
if [[ $status != 0 || ${ran:-0} == 0 ]]; then
  failed "cuda tests" "status $status, ${ran:-no} tests ran; see $log"
elif [[ $without == 0 ]]; then
  ok "cuda tests: $ran passed on the device"
elif build/cuda/tools/lipgrad doctor 2>&1 | grep -q 'no CUDA driver'; then
  ok "cuda programs: they start without a driver, and lipgrad doctor says that there is none"
  skipped "cuda tests" "$without of $ran: $(sed -n 's/.*MESSAGE: skipped: //p' "$log" | head -1)"
else
  failed "cuda tests" "$without of $ran skip"
fi
