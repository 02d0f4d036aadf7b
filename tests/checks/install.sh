#!/usr/bin/env bash
# lipgrad installed, static and shared: the files are those for users, hold no path of the checkout,
# and the consumer project (tests/consumer) builds against them and runs, by way of CMake and of
# pkg-config, also after the whole installation has been moved.
. "$(dirname "$0")/../support/check.sh"

root=$PWD log=$PWD/build/install.log scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; [[ $check_failures == 0 ]] || exit 1' EXIT
# The environment's own flags are not lipgrad's doing.
unset CXXFLAGS CFLAGS LDFLAGS LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH

# works NAME COMMAND...: the command ends well.
works() {
  local name=$1
  shift
  if "$@" >"$log" 2>&1; then
    ok "$name"
  else
    failed "$name" "status $?, see below"
    tail -20 "$log"
  fi
}

# by_cmake PREFIX BUILD: the consumer finds lipgrad there, builds and runs.
by_cmake() {
  cmake -S tests/consumer -B "$2" -G Ninja -DCMAKE_PREFIX_PATH="$1" &&
    grep -F "lipgrad_DIR:PATH=$1/" "$2/CMakeCache.txt" &&
    cmake --build "$2" && "$2/app"
}

# by_pkg_config PREFIX [OPTION]: the same with nothing but the compiler.
by_pkg_config() {
  local flags
  flags=$(PKG_CONFIG_PATH=$1/lib/pkgconfig pkg-config "${@:2}" --cflags --libs lipgrad) &&
    g++ -std=c++20 tests/consumer/app.cpp $flags -o "$scratch/app" &&
    LD_LIBRARY_PATH=$1/lib "$scratch/app"
}

# every_header PREFIX: all that are installed compile, so nothing that they include is missing.
every_header() {
  (cd "$1/include" && find lipgrad -name '*.h' | sort | sed 's/.*/#include <&>/') >"$scratch/all.cpp"
  grep -q lipgrad/core/tensor.h "$scratch/all.cpp" &&
    g++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I"$1/include" "$scratch/all.cpp"
}

if ! (. tools/setup.sh && build release lipgrad lipgrad_completion && build shared) >"$log" 2>&1; then
  failed "libraries build" "see below"
  tail -20 "$log"
  exit
fi
ok "libraries build"

for mode in static shared; do
  build=build/release
  [[ $mode == shared ]] && build=build/shared
  prefix=$scratch/$mode
  works "$mode: installs" cmake --install "$build" --prefix "$prefix"
  verdict "$mode: installed files name no folder of this machine" \
    "$(grep -rlF -e "$root" -e "$scratch" "$prefix" | sed "s#^$prefix/##")"
  works "$mode: program runs" "$prefix/bin/lipgrad" --version
  works "$mode: consumer by CMake" by_cmake "$prefix" "$scratch/$mode-build"
  mv "$prefix" "$scratch/$mode-moved"
  prefix=$scratch/$mode-moved
  works "$mode, moved: program runs" "$prefix/bin/lipgrad" --version
  works "$mode, moved: consumer by CMake" by_cmake "$prefix" "$scratch/$mode-moved-build"
  works "$mode, moved: consumer by pkg-config" by_pkg_config "$prefix"
  [[ $mode == static ]] &&
    works "static, moved: consumer by pkg-config --static" by_pkg_config "$prefix" --static
done

prefix=$scratch/shared-moved
works "installed headers compile" every_header "$prefix"
verdict "private headers stay behind" "$(grep -rl '^// Private:' "$prefix/include")"
verdict "symbols of other libraries stay inside" "$(nm -D --defined-only "$prefix/lib/liblipgrad.so" |
  awk '{ print $NF }' | grep -vE '^_Z(T[A-Za-z]*[0-9_]*|GV)?Z?NK?7lipgrad' | head -20)"
verdict "messages stay inside" \
  "$(nm -D --defined-only "$prefix/lib/liblipgrad.so" | grep -E '7lipgrad5proto|6google8protobuf|8nlohmann' | head)"
verdict "shared library needs no other when linked" \
  "$(grep -rnE 'find_dependency\(|LINK_ONLY' "$prefix/lib/cmake/lipgrad/lipgradTargets.cmake")"
cmake --install build/shared --prefix "$scratch/runtime" --component lipgrad_runtime >"$log"
verdict "component lipgrad_runtime" "$(cd "$scratch/runtime" && find . ! -type d |
  grep -vE '^\./(bin/lipgrad|lib/liblipgrad\.so\.[0-9.]+|share/bash-completion/completions/lipgrad)$')"
works "component lipgrad_runtime: program runs" "$scratch/runtime/bin/lipgrad" --version
