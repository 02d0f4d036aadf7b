#!/usr/bin/env bash
# lipgrad doctor: it tells what is there, warns of what is slow, and fails where work is impossible.
. "$(dirname "$0")/../support/program.sh"
unset LIPGRAD_THREADS OPENBLAS_CORETYPE

# says NAME STATUS PATTERN ARGUMENT...: as that, on standard output.
says() {
  local name=$1 status=$2 pattern=$3 got
  shift 3
  "$lipgrad" "$@" >out 2>err </dev/null
  got=$?
  if [[ $got != "$status" ]]; then failed "$name" "status $got, expected $status: $(cat err)"
  elif ! grep -qE -- "$pattern" out; then failed "$name" "no '$pattern' in the output"
  else ok "$name"; fi
}

says "doctor: a healthy machine" 0 "^BLAS +OpenBLAS [0-9.]+" doctor --json doctor.json
problems=
for line in "^lipgrad +[0-9.]+, built by (GCC|Clang) [0-9]" "^CUDA +not in this build" "^processor +." "^kernels +(AVX|SCALAR|SSE)" \
  "^threads +[0-9]+; LIPGRAD_THREADS is not set" "^memory +[0-9.]+ [GMT]iB, " "^  found +cora, generated" \
  "^  missing +citeseer, pubmed" "^products, f32 +[0-9.]+ GFLOP/s on 1 thread" "^products, f64 +[0-9.]+ GFLOP/s" \
  "^images +this build reads IDX, CIFAR" "^  missing +.*cifar10, cifar100" \
  "^memory, triad +[0-9.]+ GB/s" "^warning: .*fetch_data citeseer pubmed"; do
  grep -qE "$line" out || problems+="no '$line'"$'\n'
done
verdict "doctor: all lines are there" "${problems%$'\n'}"
problems=
for key in version compiler cuda processor kernels threads memory blas data images rates warnings problems gemm_f32_gflops \
  gemm_f64_gflops triad_gb_per_s; do
  grep -q "\"$key\":" doctor.json || problems+="no $key"$'\n'
done
grep -q "\"cora\": \"$LIPGRAD_DATA/ind.cora.\"" doctor.json || problems+="not where cora is"$'\n'
verdict "doctor: the JSON file" "${problems%$'\n'}"

LIPGRAD_THREADS=1 says "doctor: one thread" 0 "^threads +1; LIPGRAD_THREADS is 1" doctor
if grep -q "on 2 threads" out; then failed "doctor: one thread measured" "two were"; else ok "doctor: one thread measured"; fi
says "doctor: too many threads" 0 "^warning: 64 threads share" --threads 64 doctor
LIPGRAD_DATA=$scratch/nosuch says "doctor: no data folder" 0 "^warning: LIPGRAD_DATA is .*nosuch, which is no folder" --threads 1 doctor
if grep -q avx2 /proc/cpuinfo && grep -q DYNAMIC_ARCH doctor.json; then
  OPENBLAS_CORETYPE=Nehalem says "doctor: OpenBLAS kernels for another processor" 0 \
    "^warning: the processor has AVX.*Nehalem.*OPENBLAS_CORETYPE" doctor --threads 1
else
  skipped "doctor: OpenBLAS kernels for another processor" "no AVX2, or OpenBLAS has one kind of kernels"
fi
mkdir -p data/npz/texas.npz
says "doctor: a folder for a data set" 1 "^problem: data set texas: .*texas\.npz is not a file" doctor --threads 1
[[ $(cat err) == "lipgrad: doctor: 1 problem, named above" ]] && ok "doctor: it fails in one line" ||
  failed "doctor: it fails in one line" "$(cat err)"
rmdir data/npz/texas.npz
refused "doctor: something to examine" 2 "heart" doctor heart
LIPGRAD_THREADS=some refused "doctor: LIPGRAD_THREADS not a number" 1 "LIPGRAD_THREADS.*some" doctor
refused "doctor: --json nowhere, before the work" 1 "nowhere" doctor --json nowhere/x.json
