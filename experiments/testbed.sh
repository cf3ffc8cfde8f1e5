#!/usr/bin/env bash
# Trains the networks of the everyday test-bed: PACS at 64x64, a ResNet-20 that saw CIFAR-10, every domain left out.
# Finished runs are found again, interrupted ones go on. Usage: DOMAINADAPTOR_DATA=... experiments/testbed.sh [WORD]
# where WORD picks the lines that contain it. One single-threaded run a core: two threads for one run gain little.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 PATH="$PWD/.venv/bin:$PATH"
base="domainadaptor train pacs --network resnet20 --size 64 --epochs 8 --batch-size 64 --lr 0.05 --head-lr 2 --schedule cosine"

runs() {
    for seed in 0 1 2; do
        for target in art_painting cartoon photo sketch; do echo "$base --seed $seed --target $target"; done
    done
    echo "$base --source photo"
    for more in "--select swad" "--algorithm mldg" "--algorithm fsdcl" "--algorithm mvrml --option outer_lr=0.5" \
        "--algorithm arm" "--task rotation" "--task jigsaw"; do
        for target in art_painting cartoon photo sketch; do echo "$base $more --target $target"; done
    done
}

runs | { grep -e "${1:-}" || true; } | xargs -P "${JOBS:-$(getconf _NPROCESSORS_ONLN)}" -I{} sh -c '{} > /dev/null && echo "done: {}" || echo "FAILED: {}"'
