#!/usr/bin/env bash
# lipgrad convert and predict --logits: weights go out and come back the same; every tensor is
# accounted for; models of timm and PyTorch Geometric give the logits they give there, where
# $LIPGRAD_PYTHON (python3 unless set) has these.
python=${LIPGRAD_PYTHON:-python3}
convert_py=$PWD/tests/tools/convert.py
. "$(dirname "$0")/../support/program.sh"

idx data/fashion-mnist 40 train
idx data/fashion-mnist 20 t10k

# same NAME FILE FILE
same() { if cmp -s "$2" "$3"; then ok "$1"; else failed "$1" "$2 and $3 differ"; fi; }

# There and back: the same logits, the same file again.
works "convert: a graph network to convert" train gat --preset standard --data cora --quiet --epochs 2 --out gat
works "convert: a model of images to convert" train vision --model lipsformer_swin --data fashion-mnist --width 8 \
  --depths 1,1 --heads 1,2 --batch-size 8 --epochs 1 --quiet --out swin
for model in gat swin; do
  works "convert: $model out" convert $model/best.lip $model.safetensors --json out.json
  works "convert: $model in" convert $model.safetensors $model.lip
  works "convert: $model out again" convert $model.lip again.safetensors
  same "convert: $model comes back" $model.safetensors again.safetensors
  works "convert: $model is measured" eval $model.lip --json imported.json
  works "convert: $model was measured" eval $model/best.lip --json trained.json
  if diff <(grep -v checkpoint imported.json) <(grep -v checkpoint trained.json) >/dev/null; then ok "convert: $model measures the same"
  else failed "convert: $model measures the same" "$(diff imported.json trained.json | head -3)"; fi
  works "convert: $model is inspected" inspect $model.lip
done
grep -q '"names": "lipsformer"' out.json && ok "convert: --json" || failed "convert: --json" "$(head -5 out.json)"
works "predict: logits of nodes" predict --checkpoint gat.lip --logits y.npy
[[ $(head -c 128 y.npy | grep -ac "'<f4'.*(14, 3)") == 1 ]] && ok "predict: logits" || failed "predict: logits" "$(head -c 100 y.npy)"

# What is wrong.
refused "convert: no such file" 1 "none.safetensors: cannot open" convert none.safetensors x.lip
refused "convert: two checkpoints" 1 "one must end in .lip" convert gat.lip x.lip
echo nonsense >bad.safetensors
refused "convert: no safetensors" 1 "bad.safetensors: not a .safetensors file" convert bad.safetensors x.lip
refused "convert: another model's names" 1 "these are no names of a gat" convert gat.lip x.safetensors --names swin
cp "$golden/safetensors/plain.safetensors" plain.safetensors
refused "convert: unknown names" 1 "names are those of no model known here" convert plain.safetensors x.lip
refused "convert: unfit names" 1 'it has no "patch_embed.proj.weight"' convert plain.safetensors x.lip --names timm-vit
[[ -e x.lip || -e x.safetensors ]] && failed "convert: nothing is written" "there is a file" || ok "convert: nothing is written"
refused "predict: no images" 1 "no images: name files" predict --checkpoint swin.lip
refused "predict: images for a graph network" 1 "not a checkpoint of .lipgrad train vision" predict --checkpoint gat.lip a.png

# Beside the libraries the weights are of.
# logits CASE ARGUMENT...: what predict is given.
logits() {
  local case=$1 got
  shift
  got=$("$lipgrad" predict --checkpoint "$case/model.lip" --logits "$case/y.npy" "$@" 2>&1) ||
    { failed "convert: $case predicts" "$(tail -1 <<<"$got")"; return; }
}
agrees() {
  local got
  if got=$("$python" "$convert_py" compare "$2" "$3" "$4" 2>&1); then ok "$1: $got"; else failed "$1" "$got"; fi
}
for case in timm-vit timm-swin pyg-gat pyg-gatv2 pyg-transformer; do
  why=$("$python" "$convert_py" make $case $case 2>err | tail -1)
  if [[ ! -s $case/expected64.npy ]]; then
    if [[ $why == no\ * ]]; then echo "skipped convert: $case: $why for $python"
    else failed "convert: $case" "$(tail -1 err)"; fi
    continue
  fi
  heads=()
  [[ $case == pyg-transformer ]] && heads=(--heads 4)
  works "convert: $case" convert $case/weights.safetensors $case/model.lip "${heads[@]}" --verbose
  if [[ $case == timm-* ]]; then
    logits $case --inputs $case/x.npy
    agrees "convert: $case in f32" $case/y.npy $case/expected.npy 1e-4
    logits $case --inputs $case/x.npy --dtype f64
  else
    logits $case --data $case/graph.npz
    agrees "convert: $case in f32" $case/y.npy $case/expected.npy 1e-4
    logits $case --data $case/graph.npz --dtype f64
  fi
  agrees "convert: $case in f64" $case/y.npy $case/expected64.npy 1e-10
  works "convert: $case back" convert $case/model.lip $case/back.safetensors --names $case
  "$python" - "$case" <<'END' 2>&1 | grep -v '^ok$' >err
import sys
from safetensors.torch import load_file
a, b = (load_file(f"{sys.argv[1]}/{name}.safetensors") for name in ("weights", "back"))
b = {name.replace("convs.", "conv."): t for name, t in b.items()}
left = {n for n in a if not n.endswith(("relative_position_index", "attn_mask"))}
print("ok" if left == set(b) and all(a[n].equal(b[n]) for n in left) else f"differs: {left ^ set(b)}")
END
  [[ -s err ]] && failed "convert: $case comes back" "$(tail -1 err)" || ok "convert: $case comes back"
done
