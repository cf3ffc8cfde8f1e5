#!/usr/bin/env bash
# Trains the networks of the everyday test-bed: PACS at 64x64, a ResNet-20 that saw CIFAR-10, every domain left out.
#   experiments/testbed.sh erm          three seeds of ERM, and photo alone
#   experiments/testbed.sh algorithms   two more epochs with each other algorithm, from the first seed of ERM
# Finished runs are found again, interrupted ones go on. One single-threaded run a core: a second thread gains little.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 PATH="$PWD/.venv/bin:$PATH"
base="domainadaptor train pacs --network resnet20 --size 64 --batch-size 33 --head-lr 2 --schedule cosine"
erm="$base --epochs 6 --lr 0.03"
more="$base --epochs 2 --lr 0.01"
targets="sketch cartoon photo art_painting"

erm_runs() {
    for seed in 0 1 2; do
        for target in $targets; do echo "$erm --seed $seed --target $target"; done
    done
    echo "$erm --source photo"
}

algorithm_runs() {
    for target in $targets; do
        start=$($erm --seed 0 --target "$target" --json | python -c \
            'import json, pathlib, sys; print(pathlib.Path(json.load(sys.stdin)[0]["checkpoint"]).parent.name)')
        for how in "--select swad" "--algorithm mldg" "--algorithm fsdcl" "--algorithm mvrml --option outer_lr=0.5" \
            "--task rotation" "--task jigsaw" "--algorithm arm"; do
            echo "$more $how --weights $start --target $target"
        done
    done
}

kind="${1:-erm}"
"${kind%s}_runs" | xargs -P "${JOBS:-$(getconf _NPROCESSORS_ONLN)}" -I{} sh -c \
    '{} > /dev/null && echo "done: {}" || echo "FAILED: {}"'
