#!/bin/sh
# The duel on a machine with a real GPU, under 8 minutes: four models on CPU and GPU. Prints each verdict and table, and
# leaves duels, profiles and reports in $OUT (default out/device). Without a GPU it does the same on the CPU and says so.
#
#   PYTHON=.venv/bin/python OUT=out/device BUDGET_S=60 sh bench/device.sh
#
# Exits with 1 if a model failed. On CUDA, ONNX Runtime's own provider is used where it was built in, else torch.
set -u
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
out=${OUT:-out/device}
budget_s=${BUDGET_S:-60}
PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
mkdir -p "$out"

if command -v nvidia-smi >/dev/null && nvidia-smi -L; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
else
    echo "No GPU is here (nvidia-smi finds none): the duel compares ways to run on the CPU."
fi

# Of a script that must end in time, each model gets its own limit: loading and probing come on top of the budget.
limit_s=$((budget_s + 55))
failed=0
models=$("$python" "$here/device_models.py" "$out/models") || exit 1
while read -r name path; do
    printf '\n== %s\n' "$name"
    timeout "$limit_s" "$python" -m turnout measure "$path" --batch 1,2,4,8,16,32,64,128,256 \
        --budget-s "$budget_s" --out "$out/$name" || { echo "$name failed with $?"; failed=1; }
done <<EOF
$models
EOF
exit $failed
