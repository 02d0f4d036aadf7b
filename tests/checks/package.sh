#!/usr/bin/env bash
# The Debian package that cpack makes of the shared build: what is in it, what it says of itself,
# and that it installs, runs, is removed and leaves nothing behind. It is installed into an empty
# folder that takes the place of /, next to a copy of this machine's list of packages.
. "$(dirname "$0")/../support/check.sh"

if ! command -v dpkg-shlibdeps >/dev/null || ! command -v file >/dev/null; then
  skipped "Debian package" "dpkg-dev or file is not installed"
  exit
fi
log=$PWD/build/package.log scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; [[ $check_failures == 0 ]] || exit 1' EXIT
unset CXXFLAGS CFLAGS LDFLAGS LD_LIBRARY_PATH

rm -f build/shared/*.deb
if ! (. tools/setup.sh && build shared && cd build/shared && cpack -G DEB) >"$log" 2>&1; then
  failed "package builds" "see below"
  tail -20 "$log"
  exit
fi
package=$(echo build/shared/lipgrad_*_"$(dpkg --print-architecture)".deb)
verdict "package builds" "$([[ -f $package ]] || echo "no $package")"
[[ -f $package ]] || exit

contents=$(dpkg-deb -c "$package" | awk '{ print $6 }')
verdict "package holds all parts" "$(for part in bin/lipgrad lib/liblipgrad.so lib/pkgconfig/lipgrad.pc \
  lib/cmake/lipgrad/lipgradConfig.cmake include/lipgrad/lipgrad.h include/lipgrad/core/tensor.h \
  share/doc/lipgrad/copyright share/bash-completion/completions/lipgrad; do
  grep -qx "./usr/$part" <<<"$contents" || echo "no /usr/$part"
done)"
verdict "package belongs to root and is readable" "$(dpkg-deb -c "$package" |
  grep -vE '^(drwxr-xr-x|-rw-r--r--|-rwxr-xr-x|lrwxrwxrwx) root/root ')"

# field NAME PATTERN: a line for the verdict unless the field matches.
field() {
  local value
  value=$(dpkg-deb -f "$package" "$1")
  grep -qE "$2" <<<"$value" || echo "$1: $value"
}
version=$(sed -nE 's/^project\(lipgrad VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
verdict "package describes itself" "$(field Package '^lipgrad$'; field Version "^$version$"
  field Section '^libdevel$'; field Maintainer '^The lipgrad authors <'
  field Description '^[A-Z].*[a-z]$'; field Homepage '^$'
  for library in libc6 libstdc++6 libopenblas0 libfmt libprotobuf-lite libhwy zlib1g; do
    field Depends "(^|, )${library//+/[+]}"
  done)"

as_root=()
if [[ $(id -u) != 0 ]]; then
  if ! command -v fakeroot >/dev/null; then
    skipped "package installs" "neither root nor fakeroot is here"
    exit
  fi
  as_root=(fakeroot)
fi
place=$scratch/root
mkdir -p "$place"/var/lib/dpkg/{info,updates,triggers} "$scratch/bin"
cp /var/lib/dpkg/status "$place/var/lib/dpkg/"
# The package's scripts refresh the linker's cache: not this machine's.
printf '#!/bin/sh\necho "ldconfig was run"\n' >"$scratch/bin/ldconfig"
chmod +x "$scratch/bin/ldconfig"
elsewhere() { # dpkg in that place
  PATH=$scratch/bin:$PATH:/usr/sbin:/sbin "${as_root[@]}" dpkg --root="$place" --force-not-root \
    --force-script-chrootless --log=/dev/null "$@" >"$log" 2>&1
}
left() { (cd "$place" && find . -path ./var/lib/dpkg -prune -o -print | sort); }

before=$(left)
if elsewhere -i "$package"; then
  ok "package installs"
else
  failed "package installs" "see below"
  grep -v 'files list file for package' "$log" | tail -20
  exit
fi
verdict "package refreshes the linker's cache" "$(grep -q 'ldconfig was run' "$log" || echo "not so")"
verdict "package is installed whole" "$(dpkg --root="$place" --verify lipgrad 2>/dev/null)"
verdict "installed program runs" "$("$place/usr/bin/lipgrad" --version | grep -qF "lipgrad $version" ||
  echo "$place/usr/bin/lipgrad --version does not say $version")"
verdict "completion is bash" "$(bash -n "$place/usr/share/bash-completion/completions/lipgrad" 2>&1
  grep -q '^complete .*lipgrad' "$place/usr/share/bash-completion/completions/lipgrad" || echo "no complete command")"
verdict "installed program trains" "$("$place/usr/bin/lipgrad" train gat --data generated --epochs 2 \
  >"$log" 2>&1 || tail -5 "$log")"
if elsewhere -r lipgrad && elsewhere -P lipgrad; then
  ok "package is removed"
else
  failed "package is removed" "see below"
  tail -20 "$log"
fi
verdict "package leaves nothing behind" "$(diff <(echo "$before") <(left) | grep '^[<>]')"
