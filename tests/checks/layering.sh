#!/usr/bin/env bash
# Who may include whom: core <- ops <- graph, vision <- models <- tools, and nobody includes cuda.
. "$(dirname "$0")/../support/check.sh"

# FILE:LINE FOLDER HEADER for every include of lipgrad's own headers outside tests/.
includes() {
  files '*.h' '*.cpp' '*.cu' '*.cuh' | grep -v '^tests/' | xargs awk '
    /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
      header = $0
      sub(/^[^<"]*[<"]/, "", header)
      sub(/[>"].*$/, "", header)
      folder = FILENAME
      sub(/\/.*/, "", folder)
      print FILENAME ":" FNR, folder, header, ($0 ~ /"/ ? "quoted" : "angled")
    }'
}

problems=$(includes | awk '
  BEGIN {
    may["core"] = "core"
    may["ops"] = "core ops"
    may["graph"] = "core ops graph"
    may["vision"] = "core ops vision"
    may["models"] = "core ops graph vision models"
    may["tools"] = "core ops graph vision models"
    may["cuda"] = "core"
    for (folder in may) {
      n = split(may[folder], list, " ")
      for (i = 1; i <= n; i++) allowed[folder, list[i]] = 1
    }
  }
  {
    place = $1; folder = $2; header = $3
    file = place; sub(/:.*/, "", file)
    # Quotes name parts of the folder itself, which tools/ and cuda/ alone have.
    if ($4 == "quoted") {
      if (folder != "tools" && folder != "cuda")
        print place ": write <lipgrad/...>, not \"" header "\""
      next
    }
    if (header !~ /^lipgrad\//) next
    target = header
    sub(/^lipgrad\//, "", target)
    if (target == "config.h") next
    if (target == "lipgrad.h") {
      if (folder != "tools") print place ": only programs include the umbrella <lipgrad/lipgrad.h>"
      next
    }
    path = target
    sub(/\/.*/, "", target)
    if (target == "cuda") { print place ": nobody includes cuda/"; next }
    if (file ~ /\.cuh?$/) {
      # Device code sees kernel declarations and the headers made for both compilers.
      if (path !~ /\/kernels\/[^\/]*\.h$/ && path !~ /^core\/(kernel|philox)\.h$/)
        print place ": a .cu file may include kernels/*.h, core/kernel.h, core/philox.h, not " path
      next
    }
    # What cuBLAS and cuSPARSE compute is declared where the CPU kernels are.
    if (folder == "cuda" && path ~ /\/kernels\/[^\/]*\.h$/) next
    if (!((folder, target) in allowed))
      print place ": " folder "/ may include " may[folder] ", not " target "/"
    else if (file ~ /\/kernels\// && path ~ /^core\/(tensor|tape|op|module|csr_matrix)\.h$/)
      print place ": kernels work on raw pointers and do not know " path
  }')
verdict layering "$problems"
