#!/usr/bin/env bash
# lipgrad summary, train vision, eval and predict: sizes as published; a run that is killed ends with
# the same files; what eval measures is what training measured; images that cannot be read are named.
. "$(dirname "$0")/../support/program.sh"

idx data/fashion-mnist 120 train
idx data/fashion-mnist 40 t10k

# The table of the published models.
while read -r model parameters multiply_adds; do
  works "summary: $model" summary "$model" --json s.json
  if grep -q "\"parameters\": $parameters\b" s.json && grep -q "\"multiply_adds\": $multiply_adds\b" s.json; then
    ok "summary: $model is as published"
  else
    failed "summary: $model is as published" "$(tail -1 out)"
  fi
done <<'END'
swin_t 28288354 4490566656
lipsformer_swin_t 30908578 4977524736
cswin_t 22320552 4324203008
lipsformer_cswin_t 23780136 4674180608
vit_ti 5717416 1253683200
END
works "summary: parts alone" summary swin_t --norm centernorm --residual weighted --depth 0
grep -q "layers.3.blocks.1.mlp.fc2" out && ok "summary: modules" || failed "summary: modules" "$(head -3 out)"
refused "summary: an unknown model" 2 "swin_q" summary swin_q
refused "summary: sizes that do not divide" 1 "Swin: .*windows of 5 x 5" summary swin_t --window 5

tiny=(train vision --model lipsformer_swin --data fashion-mnist --width 8 --depths 1,1 --heads 1,2 --batch-size 8 --lr 0.01
  --mixup 0.2 --accumulate 2 --average 0.8 --quiet)
works "train vision" "${tiny[@]}" --epochs 8 --out whole --json r.json
for model in swin vit; do
  works "train vision: $model" train vision --model $model --preset micro --width 8 --depths 1,1 --heads 1,2 \
    --data fashion-mnist --epochs 1 --quiet --validation 0.2 --select score
done
for model in cswin lipsformer_cswin; do
  works "train vision: $model" train vision --model $model --preset micro --width 8 --depths 1,1 --heads 2,2 \
    --data fashion-mnist --epochs 1 --quiet --out $model
  works "eval: $model" eval $model/best.lip
  works "predict: $model" predict --checkpoint $model/best.lip "$golden/image/grey.png"
done
refused "summary: stripes that do not divide" 1 "Swin: .*stripes of 5" summary cswin_t --splits 5,5,5,5
works "train vision: the published recipe" train vision --model lipsformer_swin --preset paper --image-size 28 --patch 2 \
  --width 8 --depths 1,1 --heads 1,2 --batch-size 16 --epochs 1 --data fashion-mnist --quiet --json p.json
grep -q '"mixup": 0.8' p.json && grep -q '"warmup-epochs": 0,' p.json && grep -q '"beta2": 0.98' p.json &&
  ok "train vision: recipe" || failed "train vision: recipe" "$(head -c 300 p.json)"

# Killed again and again, at any moment, it ends with the same bytes.
kills=0
for ((try = 1; try <= 60; ++try)); do
  "$lipgrad" "${tiny[@]}" --epochs 8 --out parts --resume >/dev/null 2>&1 &
  program=$!
  sleep 0.$((10 + 7 * (try % 9)))
  if ! kill -9 $program 2>/dev/null; then break; fi
  wait $program 2>/dev/null
  kills=$((kills + 1))
done
[[ $kills -gt 0 ]] && ok "train vision: was killed" || failed "train vision: was killed" "it was too fast"
works "train vision: after kills" "${tiny[@]}" --epochs 8 --out parts --resume
for file in last.lip best.lip metrics.jsonl; do
  if cmp -s whole/$file parts/$file; then ok "train vision: $file after kills"
  else failed "train vision: $file after kills" "differs"; fi
done
works "train vision: a part of the images" "${tiny[@]}" --epochs 1 --train-images 24 --test-images 10 --out some
refused "train vision: more images than there are" 1 "test-images 41: the data set has 40" "${tiny[@]}" --test-images 41
refused "train vision: the loss is not finite" 1 "(the loss is (nan|inf)|the weights are not finite) in epoch [0-9]+; try a smaller learning rate$" "${tiny[@]/0.01/1e38}" --epochs 3 --out worse
refused "train vision: other settings" 1 "window was 7, is 14" "${tiny[@]}" --epochs 8 --out whole --resume --window 14
refused "train vision: no validation images" 1 "--validation" "${tiny[@]}" --select score
refused "train vision: no such data" 1 "nowhere" train vision --data nowhere

works "eval: images" eval whole/best.lip --json e.json
accuracy=$(grep -o '"test_accuracy": [0-9.]*' e.json)
if [[ -n $accuracy ]] && tail -1 whole/metrics.jsonl | tr -d ' ' | grep -q "$(tr -d ' ' <<<"$accuracy")"; then
  ok "eval: what training measured"
else
  failed "eval: what training measured" "$accuracy; $(tail -1 whole/metrics.jsonl | head -c 300)"
fi

works "predict" predict --checkpoint whole/best.lip --top 2 "$golden/image/grey.png" "$golden/image/rgb.jpg" --json p.json
if [[ $(grep -c '"probability"' p.json) == 4 ]]; then ok "predict: two classes each"
else failed "predict: two classes each" "$(head -c 300 p.json)"; fi
works "predict: test images" predict --checkpoint whole/best.lip --top 1 --test 4 --json t.json
if grep -q "image *label *class" out && [[ $(grep -c '"label"' t.json) == 4 ]] && grep -q '"label": "Trouser"' t.json; then
  ok "predict: test images have labels"
else failed "predict: test images have labels" "$(head -5 out)"; fi
refused "predict: more test images than there are" 1 "has 40 test images" predict --checkpoint whole/best.lip --test 41
refused "predict: nothing to look at" 1 "no images" predict --checkpoint whole/best.lip
head -c 100 "$golden/image/rgb.jpg" >broken.jpg
"$lipgrad" predict --checkpoint whole/best.lip broken.jpg "$golden/image/grey.png" >out 2>err
[[ $? == 1 ]] && grep -q "broken.jpg" err && grep -q "grey.png" out && ok "predict: an image that is broken" ||
  failed "predict: an image that is broken" "$(cat err)"

# A folder of two classes, one of whose images is broken.
mkdir -p folder/train/a folder/train/b folder/test/a
for name in train/a/1 train/a/2 train/b/1 test/a/1; do cp "$golden/image/rgb.jpg" folder/$name.jpg; done
cp broken.jpg folder/train/b/broken.jpg
small=(train vision --model swin --preset micro --width 8 --depths 1,1 --heads 1,2 --data folder --epochs 1 --quiet)
refused "train vision: an image that is broken" 1 "folder/train/b/broken.jpg" "${small[@]}"
works "train vision: it is left out as asked" "${small[@]}" --corrupt skip --out skipping
grep -q "left out 1 training image that" err && grep -q "folder/train/b/broken.jpg" err && ok "train vision: it is named" ||
  failed "train vision: it is named" "$(cat err)"
works "eval: the same" eval skipping/last.lip
grep -q "folder/train/b/broken.jpg" err && ok "eval: it is named" || failed "eval: it is named" "$(cat err)"
works "train: a graph network" train gat --preset standard --data cora --quiet --epochs 1 --out graph
refused "predict: a graph network" 1 "graph/last.lip: not a checkpoint of .lipgrad train vision" predict --checkpoint graph/last.lip \
  "$golden/image/grey.png"
