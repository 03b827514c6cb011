#!/usr/bin/env bash
# All that a GPU can tell, in one call of at most eight minutes on a bare machine with Python, torch and a checkout.
#
#     benchmarks/gpu_day.sh [FOLDER]               results go to FOLDER (default: outputs/gpu-day)
#     benchmarks/gpu_day.sh --rehearse [FOLDER]    the same on a CPU, with tiny sizes, to see that it runs
#
# `make gpu-wheels` fills .gpu-wheels with the packages that such a machine lacks; they are put on the path, not
# installed. First `pytest -m gpu`, at most three minutes; then benchmarks/gpu.py, which writes gpu.json after each of
# its parts. A failure of one step does not end the others. Exit code 1: something failed, see the table at the end.
set -u
cd "$(dirname "$0")/.." || exit 2
rehearse=()
if [ "${1:-}" = --rehearse ]; then
  rehearse=(--rehearse)
  shift
fi
out=${1:-outputs/gpu-day}
limit=${GPU_DAY_SECONDS:-470}
python=${PYTHON:-python3}
mkdir -p "$out"
SECONDS=0 until=$(($(date +%s) + limit))

if ls .gpu-wheels/*.whl >/dev/null 2>&1; then
  site=$(mktemp -d)
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --target "$site" .gpu-wheels/*.whl ||
    echo "some wheels could not be installed" | tee -a "$out/tests.log"
  PYTHONPATH="$PWD/src:$site${PYTHONPATH:+:$PYTHONPATH}"
else
  PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
fi
export PYTHONPATH PYTHONUNBUFFERED=1

# Only files with such tests: others import packages that a bare machine lacks.
mapfile -t files < <(grep -rl --include='*.py' 'mark\.gpu' tests)
timeout --kill-after=5 180 "$python" -m pytest -m gpu -rs -p no:cacheprovider "${files[@]}" >"$out/tests.log" 2>&1
tests=$?
tail -n 25 "$out/tests.log"
echo "pytest -m gpu: exit code $tests after $SECONDS s"

"$python" benchmarks/gpu.py "${rehearse[@]}" --out "$out/gpu.json" --until "$until" 2>&1 | tee "$out/gpu.log"
speed=${PIPESTATUS[0]}
echo "pytest -m gpu: exit code $tests; benchmarks/gpu.py: exit code $speed; $SECONDS s in all"
[ "$tests" -eq 0 ] && [ "$speed" -eq 0 ]
