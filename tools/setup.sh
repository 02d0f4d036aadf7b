# Shared by the scripts in tools/: the Debian packages that lipgrad needs, and how it is built.
# Sourced, not run; leaves the shell in the root of the checkout.

cd -P "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

build_packages=(g++ cmake ninja-build ccache pkg-config libopenblas-dev libhwy-dev libfmt-dev
  zlib1g-dev libprotobuf-dev protobuf-compiler nlohmann-json3-dev libcli11-dev)
test_packages=(doctest-dev libmetis-dev libjpeg62-turbo-dev libpng-dev)
package_packages=(dpkg-dev file)  # for cpack
docs_packages=(doxygen)
fuzz_packages=(clang libclang-rt-14-dev)
bench_packages=(libbenchmark-dev)
cmake_options=()  # for build()

say() { printf '\n== %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# install_packages NAME...: installs those Debian packages that are missing.
install_packages() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "Not a Debian system; this needs what Debian calls: $*"
    return
  fi
  local package missing=() as_root=()
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return
  if [[ $(id -u) != 0 ]]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      echo "These Debian packages are missing: ${missing[*]}"
      echo "Install them with this line, then run tools/$(basename "$0") again:"
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
      exit 1
    fi
  fi
  say "Installing the Debian packages that are missing: ${missing[*]}"
  echo "(this can take some minutes)"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  "${apt[@]}" update || echo "The package lists could not be refreshed; trying with those here."
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
}

# As many compilers at a time as there are processors, and 1.5 GiB of memory for each.
build_jobs() {
  awk -v processors="$(nproc)" '/^MemAvailable:/ { by_memory = int($2 / 1572864) }
    END { n = by_memory < processors ? by_memory : processors; print n < 1 ? 1 : n }' /proc/meminfo
}

# build PRESET [TARGET...]: configures and builds in build/PRESET, with ccache where it is there.
build() {
  local preset=$1 log=build/$1/configure.log targets=() options=("${cmake_options[@]}")
  shift
  [[ $# -gt 0 ]] && targets=(--target "$@")
  if command -v ccache >/dev/null; then
    options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1
  fi
  mkdir -p "build/$preset"
  # A build folder that came from elsewhere is configured anew.
  cmake --preset "$preset" "${options[@]}" >"$log" 2>&1 ||
    cmake --fresh --preset "$preset" "${options[@]}" >"$log" 2>&1 || {
    cat "$log"
    die "CMake cannot configure the $preset build (above: why)"
  }
  cmake --build "build/$preset" -j "$(build_jobs)" "${targets[@]}" || die "the $preset build failed"
}
