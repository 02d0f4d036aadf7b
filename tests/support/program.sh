# For the scripts that check the lipgrad program: sourced by each, it goes to a scratch folder with a
# tiny data set and offers ways to run the program.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

lipgrad=$PWD/build/release/tools/lipgrad
golden=$PWD/tests/golden
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; [[ $check_failures == 0 ]] || exit 1' EXIT
cd "$scratch" || exit 1
# Planetoid's layout with the 14 nodes of tests/golden/planetoid, and no other data set.
export LIPGRAD_DATA=$scratch/data HOME=$scratch/home
mkdir data home
for file in "$golden"/planetoid/ind.tiny.*; do cp "$file" "data/ind.cora.${file##*/ind.tiny.}"; done

# refused NAME STATUS PATTERN ARGUMENT...: ends with STATUS ("1|2": either) and says PATTERN, in one line (a second
# one may point to --help) on standard error, with nothing on standard output.
refused() {
  local name=$1 status=$2 pattern=$3
  shift 3
  "$lipgrad" "$@" >out 2>err </dev/null
  local got=$?
  if [[ ! $got =~ ^($status)$ ]]; then
    failed "$name" "status $got, expected $status: $(tail -1 err)"
  elif ! grep -qE -- "$pattern" err; then
    failed "$name" "expected a message like '$pattern', got: $(head -3 err)"
  elif [[ $(grep -vc -- '--help' err) -gt 1 ]]; then
    failed "$name" "more than one line: $(head -4 err)"
  elif [[ -s out ]]; then
    failed "$name" "wrote to standard output: $(head -1 out)"
  else
    ok "$name"
  fi
}

# unchanged NAME FOLDER COMMAND...: the command leaves the folder's files and their bytes alone.
sums() { find "$1" -type f -exec sha256sum {} + | sort; }
unchanged() {
  local name=$1 folder=$2 before
  shift 2
  before=$(sums "$folder")
  "$@"
  if [[ $(sums "$folder") == "$before" ]]; then ok "$name: files unchanged"
  else failed "$name: files unchanged" "$(diff <(echo "$before") <(sums "$folder") | head -3)"; fi
}

# works NAME ARGUMENT...
works() {
  local name=$1
  shift
  if "$lipgrad" "$@" >out 2>err </dev/null; then ok "$name"
  else failed "$name" "status $?: $(tail -1 err)"; fi
}

# idx FOLDER COUNT NAME: images of 28 x 28 and their labels as Fashion-MNIST has them, ten classes.
idx() {
  local folder=$1 count=$2 name=$3 i
  mkdir -p "$folder"
  {
    printf '\0\0\10\3\0\0\0'
    printf "\\x$(printf %x "$count")"
    printf '\0\0\0\34\0\0\0\34'
    for ((i = 0; i < count; ++i)); do
      # Every class has a grey of its own.
      head -c 784 /dev/zero | tr '\0' "\\$(printf %o $((20 * (i % 10) + 30)))"
    done
  } >"$folder/$name-images-idx3-ubyte"
  {
    printf '\0\0\10\1\0\0\0'
    printf "\\x$(printf %x "$count")"
    for ((i = 0; i < count; ++i)); do printf "\\$((i % 10 / 8))$((i % 10 % 8))"; done
  } >"$folder/$name-labels-idx1-ubyte"
}
