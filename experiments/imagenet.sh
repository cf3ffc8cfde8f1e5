#!/usr/bin/env bash
# Trains PACS networks that start from ImageNet weights, every domain left out.
#   experiments/imagenet.sh resnet18   at 128x128, the paper's backbone
#   experiments/imagenet.sh lite0      EfficientNet-Lite0 at 160x160; first `make weights`
# Finished runs are found again, interrupted ones go on. One single-threaded run a core: a second thread gains little.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 PATH="$PWD/.venv/bin:$PATH"
base="domainadaptor train pacs --epochs 3 --batch-size 48 --schedule cosine"

resnet18() { echo "$base --network resnet18 --size 128 --lr 0.005"; }
lite0() { echo "$base --network tf_efficientnet_lite0 --size 160 --lr 0.01"; }

for target in art_painting cartoon photo sketch; do echo "$("${1:-resnet18}") --target $target"; done |
    xargs -P "${JOBS:-$(getconf _NPROCESSORS_ONLN)}" -I{} sh -c '{} > /dev/null && echo "done: {}" || echo "FAILED: {}"'
