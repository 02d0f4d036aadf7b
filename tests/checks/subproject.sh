#!/usr/bin/env bash
# A project that takes lipgrad in, with add_subdirectory or with FetchContent, gets its headers and
# C++20, and nothing else: no warning flags, no optimisation flags, no definitions, no tests, no
# programs, nothing installed.
. "$(dirname "$0")/../support/check.sh"

root=$PWD scratch=$(mktemp -d)
mkdir "$scratch/source"
trap 'rm -rf "$scratch"; [[ $check_failures == 0 ]] || exit 1' EXIT
# The environment's own flags are not lipgrad's doing.
unset CXXFLAGS CFLAGS
cat >"$scratch/source/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(app LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(FETCH)
  include(FetchContent)
  FetchContent_Declare(lipgrad SOURCE_DIR $root)
  FetchContent_MakeAvailable(lipgrad)
else()
  add_subdirectory($root lipgrad)
endif()
add_executable(app app.cpp)
target_link_libraries(app PRIVATE lipgrad::lipgrad)
add_executable(bystander app.cpp)
foreach(variable CMAKE_CXX_FLAGS CMAKE_CXX_STANDARD CMAKE_BUILD_TYPE BUILD_SHARED_LIBS
        CMAKE_POSITION_INDEPENDENT_CODE CMAKE_INSTALL_LIBDIR CPACK_GENERATOR)
  if(DEFINED \${variable} AND NOT "\${\${variable}}" STREQUAL "")
    message("changed: \${variable}=\${\${variable}}")
  endif()
endforeach()
END
cat >"$scratch/source/app.cpp" <<'END'
#include <lipgrad/lipgrad.h>
int main() { return lipgrad::zeros({2, 3}).numel() == 6 ? 0 : 1; }
END

# configured NAME OPTION...: the project in a build folder of that name.
configured() {
  local name=$1
  shift
  if ! cmake -S "$scratch/source" -B "$scratch/$name" -G Ninja "$@" >"$scratch/log" 2>&1; then
    failed "$name: configures" "see below"
    tail -20 "$scratch/log"
    return 1
  fi
}

for name in add_subdirectory FetchContent; do
  fetch=OFF
  [[ $name == FetchContent ]] && fetch=ON
  configured "$name" -DFETCH="$fetch" || continue
  commands=$(grep -E '"command".*app\.cpp' "$scratch/$name/compile_commands.json")
  # What is left of the two compilations of app.cpp when all that lipgrad may add is taken away.
  foreign=$(sed -E "s#.*\"command\": \"##; s#\",?\$##" <<<"$commands" | tr ' ' '\n' |
    grep -vE '^(|/.*(c\+\+|g\+\+|clang\+\+)|-I.*/include|-isystem|-I.*|/usr/include.*|-std=(gnu|c)\+\+20|-o|-c|.*app\.cpp(\.o)?)$' |
    sort -u | sed 's/^/the flag /')
  verdict "$name: gives no flags" "$foreign$(grep '^changed:' "$scratch/log")"
  verdict "$name: gives bystanders no include paths" \
    "$(grep bystander.dir <<<"$commands" | grep -o -- '-I[^ ]*')"
  verdict "$name: builds no tests or programs" "$(ninja -C "$scratch/$name" -t targets all |
    grep -oE '^(lipgrad_tests|.*/tools/lipgrad|lipgrad_program)\b' | sort -u)"
  verdict "$name: installs nothing" "$(cmake --install "$scratch/$name" --prefix "$scratch/prefix" 2>&1 |
    grep -v '^-- Install configuration')$(find "$scratch/prefix" 2>/dev/null)"
  # Compiled, but not linked, as that would compile all of lipgrad again.
  verdict "$name: links what lipgrad is made with" "$(link=$(ninja -C "$scratch/$name" -t commands app | tail -1)
    for library in liblipgrad.a openblas hwy fmt libz protobuf-lite; do
      grep -qF "$library" <<<"$link" || echo "no $library"
    done)"
done
if ninja -C "$scratch/FetchContent" CMakeFiles/app.dir/app.cpp.o >"$scratch/log" 2>&1; then
  ok "FetchContent: program compiles"
else
  failed "FetchContent: program compiles" "see below"
  grep -E 'error' -A3 "$scratch/log" | head -20
fi
