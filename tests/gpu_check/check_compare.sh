#!/usr/bin/env bash
# Tests the output of scripts/gpu_check.sh --compare for two runs and for invalid documents.
#
#   check_compare.sh SCRATCH
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

source tests/gpu_check/made_up_machine.sh

# changed FILE CODE: prints the document, changed by Python code; `part` has its parts by name.
changed() {
  "$python" -c '
import json, sys
document = json.load(open(sys.argv[1]))
part = {each["name"]: each for each in document["parts"]}
figure = {name: {each["name"]: each for each in of["figures"]} for name, of in part.items()}
exec(sys.argv[2])
json.dump(document, sys.stdout)' "$@"
}

# compared OLD NEW [OPTION...]: writes the comparison to the output.
compared() {
  "$python" scripts/gpu_check/compare.py "${@:3}" "$1" "$2" >"$scratch/output" 2>&1 ||
    fail "status $? of compare.py"
}

# row TEXT...: the output has a line with these words in this order.
row() {
  local pattern
  pattern=$(printf '%s.*' "$@")
  grep -qE -- "$pattern" "$scratch/output" || fail "no line '$*'"
}
row_not() { ! grep -qE -- "$1" "$scratch/output" || fail "there is a line '$1'"; }

faster_and_slower() {
  check 0 -- kernels sanitize
  cp "$scratch/gpu.json" "$scratch/old.json"
  # One figure is slower and misses its bar, one is faster, the others are the same. The comparison
  # does not change the status.
  check 3 FAKE_ADAMW=3000 FAKE_PRODUCT=1.050 -- --compare "$scratch/old.json" kernels
  row '^\| slower \| kernels: AdamW, fp32 gradients \(500000000 parameters\) \| 4000 GB/s \| 3000 GB/s \| 0.750 \|'
  row '^\| faster \| kernels: c_fc dW / plain cuBLASLt' '\| 0.986 \| 1.05 \| 1.065 \|'
  row '^\| the same \| kernels: AdamW, bf16 gradients '
  row '^\| met \| NOT met \| kernels: speed of AdamW' 'torch.optim'
  row '^- sanitize: then only'
  row 'differs by at most 3 % is the same'
  has '^## Compared'
  has '^\| slower \| kernels: AdamW, fp32'
  # Rows that changed are first.
  [[ $(grep -E '^\| (slower|faster|the same) ' "$scratch/output" | head -n 2 | grep -c slower) == 2 ]] ||
    fail "the slower are not the first"

  # The old document may be the file that the run replaces.
  KEEP=1 check 0 FAKE_ADAMW=3900 -- --compare "$scratch/gpu.json" --noise 1.5 kernels
  row '^\| faster \| kernels: AdamW, fp32 gradients ' '3000 GB/s \| 3900 GB/s'
  row '^\| slower \| kernels: c_fc dW / '
  row 'at most 1.5 % is the same'
  # A later call without --compare prints no comparison.
  KEEP=1 check 0 -- --resume kernels
  has_not '^## Compared'
}

other_machines_and_sizes() {
  check 0 -- kernels
  cp "$scratch/gpu.json" "$scratch/old.json"
  KEEP=1 check 0 FAKE_DEVICE="another card" -- --compare "$scratch/old.json" kernels
  row '^- kernels: another GPU, then a card, .*, now another card, '
  row_not '^\| (the same|faster|slower) '
  check 0 FAKE_VOCAB=50257 -- --compare "$scratch/old.json" kernels
  row '^Of another size, not compared:'
  row '^- kernels: wte forward: then 620.5 TFLOP/s at 16384 x 50304 x 768, now 620.5 TFLOP/s at 16384 x 50257 x 768'
  row '^- kernels: cross entropy, bf16: then .*vocab 50304, now .*vocab 50257'
  row_not '^\| .* wte forward'
  row '^\| the same \| kernels: c_fc forward \(65536 x 3072 x 768\)'
  row '^\| the same \| kernels: squared norm'
}

rules() {
  local old=$scratch/old.json new=$scratch/new.json
  check 0 -- kernels train memory sanitize
  cp "$scratch/gpu.json" "$old"

  # Speeds and times within the noise are the same; bytes and counts are compared exactly. More
  # seconds are slower, more bytes larger.
  changed "$old" '
figure["train"]["GPT-2 on 4 ranks, zero3, a step"]["value"] = 0.2
figure["train"]["GPT-2 on 4 ranks, ddp, a step"]["value"] = 0.103
figure["train"]["GPT-2 on one rank, tessera"]["value"] = 971
figure["kernels"]["AdamW, bf16 gradients"]["value"] = 3870
figure["train"]["GPT-2 on 4 ranks, zero3, peak"]["value"] = 8
figure["memory"]["gpt2-large, ddp, measured on the fullest rank"]["value"] = 999
figure["memory"]["gpt2-large, ddp, unattributed"]["value"] = 1.02
figure["sanitize"]["memcheck, errors"]["value"] = 2' >"$new"
  compared "$old" "$new"
  row '^\| slower \| train: GPT-2 on 4 ranks, zero3, a step' '\| 0.1 s \| 0.2 s \| 2.000 \|'
  row '^\| the same \| train: GPT-2 on 4 ranks, ddp, a step'
  row '^\| the same \| train: GPT-2 on one rank, tessera \('
  row '^\| slower \| kernels: AdamW, bf16 gradients \('
  row '^\| larger \| train: GPT-2 on 4 ranks, zero3, peak' '\| 7 bytes \| 8 bytes \|'
  row '^\| smaller \| memory: gpt2-large, ddp, measured' '1000 bytes \| 999 bytes'
  row '^\| the same \| memory: gpt2-large, ddp, unattributed'
  row '^\| more \| sanitize: memcheck, errors' '\| 0 errors \| 2 errors \|  \|'
  row '^Of [0-9]+ figures that both have: 2 slower, 1 larger, 1 smaller, 1 more, [0-9]+ the same\.'
  compared "$old" "$new" --noise 0
  row '^\| slower \| train: GPT-2 on 4 ranks, ddp, a step'

  # Lists figures and parts of only one document, and differences of the machines.
  changed "$old" '
figure["kernels"]["squared norm, bf16"]["name"] = "a | new one"
document["parts"].remove(part["train"])
part["kernels"]["machine"]["driver"] = "600.1"
part["kernels"]["commit"] = "abc"
part["memory"]["bars"][0]["verdict"] = "NOT met"' >"$new"
  compared "$old" "$new"
  row '^Then only:'
  row '^- kernels: squared norm, bf16 \(.*\): 2390 GB/s'
  row '^Now only:'
  row '^- kernels: a \| new one '
  row '^- train: then only'
  row '^\| kernels \| driver \| something \| 600.1 \|'
  row '^\| kernels \| commit \| some commit \| abc \|'
  row '^\| met \| NOT met \| memory: bytes that the library holds'
  compared "$new" "$old"
  row '^- train: now only'

  # Stored documents of older runs can be compared.
  for old in docs/benchmarks/gpu-*.json; do
    compared "$old" "$old"
    row '^Of [1-9][0-9]+ figures that both have: [0-9]+ the same\.'
  done

  # Cards without a name cannot be identified as the same.
  changed "$scratch/gpu.json" 'part["kernels"]["machine"]["device"] = "no nvidia-smi"' >"$new"
  compared "$new" "$new"
  row '^- kernels: neither says which GPU it was on'
  row_not '^\| the same \| kernels'
}

# refused TEXT ARGUMENT...: status 2 and TEXT, before any program runs or any file is written.
refused() {
  local text=$1
  shift
  check 2 -- "$@" kernels
  grep -q '^error: ' "$scratch/output" || fail "no error"
  says "$text"
  ! grep -q Traceback "$scratch/output" || fail "not for people"
  [[ $(grep -vc '^python3 -S scripts/gpu_check/figures.py check ' "$FAKE_CALLS") == 0 ]] || fail "something was run"
  [[ ! -d $scratch/work ]] || fail "something was written"
}

hostile() {
  local bad=$scratch/bad.json good=$scratch/good.json
  check 0 -- sanitize
  mv "$scratch/gpu.json" "$good"

  refused "No such file" --compare "$scratch/nosuch.json"
  printf 'device: a card\n' >"$bad"
  refused "it is not JSON: " --compare "$bad"
  printf '{"format": "another", "version": 1, "parts": []}' >"$bad"
  refused "scripts/gpu_check.sh did not write it" --compare "$bad"
  mkfifo "$scratch/fifo"
  refused "it is not a file" --compare "$scratch/fifo"
  refused "--compare needs a file" --compare ""
  refused "no percentage" --compare "$good" --noise lots
  refused "--noise is for --compare" --noise 2
  # A file that is no such document is not replaced either.
  check_replaced "$bad"

  "$python" tests/gpu_check/hostile_documents.py "$good" "$scratch/bad" >"$scratch/output" 2>&1 ||
    fail "a document is not refused as it should be"
}

# A file at the place of gpu.json that is no such document stays unchanged.
check_replaced() {
  cp "$1" "$scratch/gpu.json"
  KEEP=1 refused "would be replaced"
  cmp -s "$1" "$scratch/gpu.json" || fail "it has been replaced"
  rm "$scratch/gpu.json"
}

run_scenarios hostile faster_and_slower rules other_machines_and_sizes
