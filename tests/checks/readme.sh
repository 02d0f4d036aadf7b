#!/usr/bin/env bash
# What README.md shows works: its C++ compiles and runs, its commands run, its links lead somewhere.
. "$(dirname "$0")/../support/check.sh"

have_cora=0
for folder in ${LIPGRAD_DATA:+"$LIPGRAD_DATA"} "${HOME:-/nonexistent}/.cache/lipgrad"; do
  [[ -e $folder/ind.cora.graph || -e $folder/planetoid/ind.cora.graph ]] && have_cora=1
done

# A place that looks like the root of the checkout, for programs and commands to write into.
root=$PWD blocks=$(mktemp -d)
trap 'rm -rf "$blocks"; [[ $check_failures == 0 ]] || exit 1' EXIT
mkdir "$blocks/root"
ln -s "$root/tools" "$root/build" "$blocks/root/"

# runs NAME LIMIT COMMAND...: the command ends well.
runs() {
  local name=$1 limit=$2
  shift 2
  if (cd "$blocks/root" && timeout "$limit" "$@" >"$root/build/readme.log" 2>&1 </dev/null); then
    ok "$name"
  else
    failed "$name" "status $?, see below"
    tail -20 build/readme.log
  fi
}

# Relative links in any page.
verdict "links" "$(files '*.md' | while read -r page; do
  awk '/^```/ { code = !code } !code' "$page" | grep -oE '\]\([^)#]+' | sed 's/^](//' | grep -vE '^[a-z]+:' | while read -r target; do
    [[ -e $(dirname "$page")/$target ]] || echo "$page: no $target"
  done
done)"

if ! cmake --build build/release --target readme >build/readme.log 2>&1; then
  failed "README.md: C++" "does not compile, see below"
  grep -E 'error' -A3 build/readme.log | head -20
  exit
fi
while read -r file language line condition; do
  name="README.md:$line ($language)"
  case $condition in
    "needs cora")
      if [[ $have_cora == 0 ]]; then
        skipped "$name" "no Cora in \$LIPGRAD_DATA or ~/.cache/lipgrad"
        continue
      fi
      ;;
    "not run:"*) continue ;;
  esac
  case $language in
    cpp)
      program=$root/build/release/tests/readme/$(basename "$file" .cpp)
      if [[ -x $program ]]; then runs "$name" 5m "$program"; else ok "$name"; fi
      ;;
    sh) runs "$name" 10m bash -e "$file" ;;
  esac
done < <(awk -v out="$blocks" -f tests/readme/extract.awk README.md)
