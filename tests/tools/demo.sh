#!/usr/bin/env bash
# tools/demo --vision, on images made up for the purpose: both models are trained, and what they see is shown.
. "$(dirname "$0")/../support/program.sh"
demo=${lipgrad%/build/*}/tools/demo
idx data/fashion-mnist 120 train
idx data/fashion-mnist 40 t10k

if "$demo" --vision 100 >out 2>err </dev/null; then ok "demo: --vision"
else failed "demo: --vision" "status $?: $(tail -3 out err)"; fi
problems=
for line in "^28 x 28 pixels, 100 images once +LipsFormer +Swin$" "^test accuracy +[0-9.]+ % +[0-9.]+ %$" \
  "^a test image: Trouser +[A-Z][A-Za-z -]+ [0-9]+ % +[A-Z][A-Za-z -]+ [0-9]+ %$"; do
  grep -qE "$line" out || problems+="no '$line'"$'\n'
done
[[ $(grep -c "^a test image: " out) == 8 ]] || problems+="not eight images"$'\n'
verdict "demo: side by side" "${problems%$'\n'}"
for words in "--vision 0" "--vision all" "--vision 1 2" "--sound"; do
  read -ra list <<<"$words"
  "$demo" "${list[@]}" >out 2>err
  [[ $? == 2 ]] && grep -q "^usage: tools/demo" err && ok "demo: $words" || failed "demo: $words" "$(head -2 err)"
done
