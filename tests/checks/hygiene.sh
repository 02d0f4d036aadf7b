#!/usr/bin/env bash
# Files that can be read in one sitting, and nothing in them that does not belong to the project.
. "$(dirname "$0")/../support/check.sh"

sources=('*.h' '*.cpp' '*.cu' '*.cuh' '*.proto' '*.py' '*.sh' 'CMakeLists.txt' '*.cmake' 'tools/*')
longest=450

verdict "top level" "$(files | sed 's#/.*##' | sort -u |
  grep -vxE 'core|ops|cuda|graph|vision|models|tests|tools|CMakeLists\.txt|README\.md|LICENSE|CHANGELOG\.md|CMakePresets\.json|\..*' |
  sed 's/$/ does not belong at the top level/')"

verdict "file length" "$(files "${sources[@]}" | grep -v '^tests/golden/' | sort -u |
  while read -r file; do
    lines=$(wc -l <"$file")
    [[ $lines -le $longest ]] || echo "$file: $lines lines, at most $longest are read in one sitting"
  done)"

# Text files only (grep -I); this script names what it looks for.
text() { files | grep -vE '^tests/golden/|^tests/checks/hygiene\.sh$|^LICENSE$'; }
verdict "machine paths" "$(text | xargs grep -InE '(^|[^A-Za-z0-9_.~-])/(work|root|home)/' | cut -c1-140)"
verdict "unfinished work" "$(text | xargs grep -InE '\b(TODO|FIXME|XXX)\b' | cut -c1-140)"
verdict "folder readmes" "$(files | grep / | sed 's#/[^/]*$##' | sort -u |
  grep -vE '^\.|/kernels$|^tests/(golden|core|ops|graph|vision|models|tools|cuda|support)(/|$)|^tests/cuda_emulation/' |
  while read -r folder; do
    [[ -e $folder/README.md ]] || echo "$folder/ has no README.md"
  done)"
verdict "large files" "$(files | while read -r file; do
  size=$(stat -c %s "$file")
  [[ $size -le 1048576 ]] || echo "$file: $size bytes, more than 1 MiB"
done)"

if command -v clang-format >/dev/null && [[ $(clang-format --version) == *"version 14."* ]]; then
  verdict "clang-format" "$(files '*.h' '*.cpp' '*.cu' '*.cuh' |
    xargs -P "$(nproc)" -n 8 clang-format --dry-run 2>&1 | grep 'warning:' | cut -d: -f1 | sort |
    uniq -c | awk '{ print $2 ": " $1 " places; run clang-format -i on it" }')"
else
  skipped "clang-format" "version 14 is not installed"
fi
