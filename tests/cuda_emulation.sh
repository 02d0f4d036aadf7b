#!/usr/bin/env bash
# The emulation sees what it is there to see: each bug planted in tests/cuda_emulation/selftest shows
# in every layer that is named with it, and correct programs show nothing in any.
. "$(dirname "$0")/support/check.sh"

folder=build/cuda_emulation
launcher=()
if command -v ccache >/dev/null; then
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1
fi
mkdir -p $folder
for kind in plain address,undefined thread; do
  sanitizer=$kind
  [[ $kind == plain ]] && sanitizer=
  if ! { cmake -S tests/cuda_emulation/selftest -B "$folder/$kind" -G Ninja "${launcher[@]}" \
      -DCMAKE_BUILD_TYPE=None "-DSELFTEST_SANITIZE=$sanitizer" &&
    cmake --build "$folder/$kind" -j "$(nproc)"; } >"$folder/build.log" 2>&1; then
    failed "cuda emulation" "the self-test does not build ($kind)"
    grep -E 'error' "$folder/build.log" | head -20 | sed 's/^/    /'
    exit
  fi
done

# ThreadSanitizer of GCC 12 cannot cope with the address randomisation of newer kernels.
fixed=()
setarch "$(uname -m)" -R true 2>/dev/null && fixed=(setarch "$(uname -m)" -R)
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1 TSAN_OPTIONS=halt_on_error=1

# look BUILD BUG [VARIABLE=VALUE...]: what one run shows.
look() {
  local build=$1 bug=$2 output status
  shift 2
  output=$(env "$@" timeout 60 "${fixed[@]}" "$folder/$build/selftest" "$bug" 2>&1)
  status=$?
  if grep -q 'ERROR: AddressSanitizer' <<<"$output"; then
    echo address
  elif grep -q 'WARNING: ThreadSanitizer: data race' <<<"$output"; then
    echo thread
  elif grep -q 'runtime error:' <<<"$output"; then
    echo undefined
  elif [[ $status == 139 ]]; then
    echo fault
  elif [[ $status == 1 ]] && grep -q '^seen: wrong value' <<<"$output"; then
    echo value
  elif [[ $status == 1 ]] && grep -q '^seen: ' <<<"$output"; then
    echo emulation
  elif [[ $status == 0 ]]; then
    echo nothing
  else
    echo "status $status"
  fi
}

# Whether a layer sees a bug: prints what it saw instead when not.
layer() {
  local bug=$1 layer=$2 saw all=
  case $layer in
    emulation | fault) all=$(look plain "$bug" A=) ;;
    value)
      for order in 0 1 2 3; do
        saw=$(look plain "$bug" LIPGRAD_EMULATION_ORDER=$order)
        [[ $saw == value ]] && return
        all="$all $saw"
      done ;;
    lazy)
      saw=$(look plain "$bug" LIPGRAD_EMULATION_LAZY=1)
      [[ $saw == value ]] && return
      all=$saw ;;
    address | undefined) all=$(look address,undefined "$bug" A=) ;;
    thread) all=$(look thread "$bug" A=) ;;
  esac
  [[ $all == "$layer" ]] || echo "$bug: $layer should see it, saw: $all"
}

# One bug and its layers; a correct program has none.
planted() {
  local bug=$1 name
  shift
  for name in "$@"; do layer "$bug" "$name"; done
  [[ $# -gt 0 ]] && return
  local saw
  while read -r build set; do
    saw=$(look "$build" "$bug" "$set")
    [[ $saw == nothing ]] || echo "$bug is correct, but $build ($set) saw: $saw"
  done <<'END'
plain LIPGRAD_EMULATION_ORDER=0
plain LIPGRAD_EMULATION_ORDER=1
plain LIPGRAD_EMULATION_ORDER=2
plain LIPGRAD_EMULATION_LAZY=1
address,undefined LIPGRAD_EMULATION_ORDER=0
address,undefined LIPGRAD_EMULATION_LAZY=1
thread LIPGRAD_EMULATION_ORDER=0
thread LIPGRAD_EMULATION_LAZY=1
END
}

list=$("$folder/plain/selftest" --list)
problems=$(sed 's/: */ /' <<<"$list" | while read -r bug layers; do
  # shellcheck disable=SC2086
  planted "$bug" $layers
done)
verdict "cuda emulation: $(grep -c ': .' <<<"$list") planted bugs seen, $(grep -c ': *$' <<<"$list") correct programs let pass" "$problems"
