#!/usr/bin/env bash
# What hostile streams of 16 images a batch leave of a CIFAR-10 network under methods that remember batches.
#   experiments/stress.sh tent       1,000 batches of each kind, with and without the guard
#   experiments/stress.sh methods    200 of each hostile kind, with the guard only, for the others
# The data folder is the variable DOMAINADAPTOR_DATA; results go to stress-results/<method>.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 PATH="$PWD/.venv/bin:$PATH"
hostile=(--kind one-class --kind sorted --kind noise --kind constant --kind alternating --kind tiny)
base="domainadaptor stress resnet20 cifar10-c --weights pretrained --batch-size 16 --probe 500"

case "${1:-}" in
tent) $base --method tent --batches 1000 --every 50 --output stress-results/tent ;;
methods)
    for method in eata sar roid deyo delta rotta; do
        $base --method "$method" --guard --batches 200 --every 100 "${hostile[@]}" --output "stress-results/$method"
    done
    ;;
*)
    sed -n '2,5p' "$0"
    exit 2
    ;;
esac
