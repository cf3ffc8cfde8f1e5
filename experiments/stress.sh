#!/usr/bin/env bash
# What hostile streams leave of a CIFAR-10 network under each method that remembers batches, with and without the guard.
#   experiments/stress.sh tent       1,000 batches of each kind
#   experiments/stress.sh methods    200 of each, with the guard only, for the others
# The data folder is the variable DOMAINADAPTOR_DATA; results go to stress-results/<method>.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 PATH="$PWD/.venv/bin:$PATH"
base="domainadaptor stress resnet20 cifar10-c --weights pretrained"

case "${1:-}" in
tent) $base --method tent --output stress-results/tent ;;
methods)
    for method in eata sar roid deyo delta rotta; do
        $base --method "$method" --guard --batches 200 --output "stress-results/$method"
    done
    ;;
*)
    sed -n '2,5p' "$0"
    exit 2
    ;;
esac
