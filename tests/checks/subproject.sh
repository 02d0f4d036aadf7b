#!/usr/bin/env bash
# A project that takes lipgrad in with add_subdirectory gets its headers and C++20, and nothing
# else: no warning flags, no optimisation flags, no definitions, no tests, no programs.
. "$(dirname "$0")/../support/check.sh"

root=$PWD scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; [[ $check_failures == 0 ]] || exit 1' EXIT
cat >"$scratch/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(app LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_subdirectory($root lipgrad)
add_executable(app app.cpp)
target_link_libraries(app PRIVATE lipgrad::lipgrad)
add_executable(bystander app.cpp)
foreach(variable CMAKE_CXX_FLAGS CMAKE_CXX_STANDARD CMAKE_BUILD_TYPE BUILD_SHARED_LIBS)
  if(DEFINED \${variable} AND NOT "\${\${variable}}" STREQUAL "")
    message("changed: \${variable}=\${\${variable}}")
  endif()
endforeach()
END
cat >"$scratch/app.cpp" <<'END'
#include <lipgrad/lipgrad.h>
int main() { return lipgrad::zeros({2, 3}).numel() == 6 ? 0 : 1; }
END

# The environment's own flags are not lipgrad's doing.
if ! env -u CXXFLAGS -u CFLAGS cmake -S "$scratch" -B "$scratch/build" -G Ninja \
  >"$scratch/log" 2>&1; then
  failed "subproject configures" "see below"
  tail -20 "$scratch/log"
  exit
fi
commands=$(grep -E '"command".*app\.cpp' "$scratch/build/compile_commands.json")
# What is left of the two compilations of app.cpp when all that lipgrad may add is taken away.
foreign=$(sed -E "s#.*\"command\": \"##; s#\",?\$##" <<<"$commands" | tr ' ' '\n' |
  grep -vE '^(|/.*(c\+\+|g\+\+|clang\+\+)|-I.*/include|-isystem|-I.*|/usr/include.*|-std=(gnu|c)\+\+20|-o|-c|.*app\.cpp(\.o)?)$' |
  sort -u | sed 's/^/the flag /')
verdict "subproject gets no flags" "$foreign$(grep '^changed:' "$scratch/log")"
verdict "bystanders get no include paths" "$(grep bystander.dir <<<"$commands" | grep -o -- '-I[^ ]*')"
verdict "subproject builds no tests or programs" "$(ninja -C "$scratch/build" -t targets all |
  grep -oE '^(lipgrad_tests|lipgrad/tools/lipgrad|lipgrad_program)\b' | sort -u)"
if ninja -C "$scratch/build" CMakeFiles/app.dir/app.cpp.o >"$scratch/log" 2>&1; then
  ok "subproject compiles"
else
  failed "subproject compiles" "see below"
  grep -E 'error' -A3 "$scratch/log" | head -20
fi
