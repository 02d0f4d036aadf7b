# For the check scripts: sourced by each, it goes to the root of the checkout and offers the three
# ways to report, which tools/test counts.

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
check_failures=0

ok() { echo "ok $1"; }
failed() {
  echo "FAILED $1: $2"
  check_failures=$((check_failures + 1))
}
skipped() { echo "skipped $1: $2"; }

# verdict NAME PROBLEMS: "ok", or "FAILED" with the problems (one a line) below.
verdict() {
  if [[ -z $2 ]]; then
    ok "$1"
  else
    failed "$1" "$(grep -c . <<<"$2") places"
    sed 's/^/    /' <<<"$2"
  fi
}

# The project's files: those that git tracks or would, one a line.
files() {
  git ls-files --cached --others --exclude-standard -- "$@" 2>/dev/null | while read -r file; do
    [[ -e $file ]] && echo "$file"
  done
}

trap '[[ $check_failures == 0 ]] || exit 1' EXIT
