# Part kernels of scripts/gpu_check.sh.

part_kernels() {
  timed=yes
  bar adamw_fp32 "speed of AdamW, fp32 gradients, 500 M parameters: at least 0.90 of a device copy's"
  bar adamw_bf16 "speed of AdamW, bf16 gradients, 500 M parameters: at least 0.90 of a device copy's"
  bar adamw_torch "speed of AdamW, fp32 gradients: at least that of torch.optim.AdamW(fused=True)"
  bar products "speed of matrix products: at least 0.97 of plain cuBLASLt's"
  local program=$build/bench/cuda/tessera_cuda_bench small=() elems=500000000
  if [[ $emulated == yes ]]; then small=(--small) elems=1000; fi
  bench_group adamw
  local ours
  ours=$(cell "AdamW, fp32 gradients" 2 "$log")
  at_least adamw_fp32 "$(cell "AdamW, fp32 gradients" 4 "$log")" 0.90 \
    "$(row_figure "AdamW, fp32 gradients" "$log")" "$shown"
  at_least adamw_bf16 "$(cell "AdamW, bf16 gradients" 4 "$log")" 0.90 \
    "$(row_figure "AdamW, bf16 gradients" "$log")" "$shown"
  beside_torch "$ours"
  bench_group products
  slowest_product
  local group
  for group in attention memory collectives; do bench_group "$group"; done
}

bench_group() { keep table "$program" "${small[@]}" "$1" || true; }

# cell NAME COLUMN LOG: of the first row of the table whose first cell is NAME, 1 being that cell.
cell() {
  awk -F ' *[|] *' -v name="$1" -v column="$2" '$2 == name { print $(column + 1); exit }' "$3" 2>/dev/null
}

row_figure() {
  local of_limit
  of_limit=$(cell "$1" 4 "$2")
  echo "${of_limit:-no figure}${of_limit:+ ($(cell "$1" 2 "$2"), $(cell "$1" 3 "$2"))}"
}

beside_torch() {
  local theirs status=0
  if ! has_torch; then
    judge adamw_torch "not measured" "$no_torch"
    return
  fi
  keep table "$python" bench/peers/torch_adamw.py --device "$torch_device" --parameters "$elems" || status=$?
  theirs=$(sed -n 's/^| AdamW([^|]*| \([0-9.]*\) GB.*/\1/p' "$log")
  if ((status != 0)) || [[ -z $theirs || -z $1 ]]; then
    judge adamw_torch "not measured" "PyTorch's: $(reason_of "$status")" "$shown"
  else
    at_least adamw_torch "${1% GB/s}" "$theirs" "$1, PyTorch's $theirs GB/s" "$shown"
  fi
}

# A product that has no plain one beside it is judged by none.
slowest_product() {
  local least
  least=$(awk -F ' *[|] *' '$4 ~ /^plain cuBLASLt/ { n++; if (least == "" || $5 + 0 < least) { least = $5 + 0; name = $2 } }
    END { if (n) printf "%s %d %s", least, n, name }' "$log")
  read -r least count name <<<"$least"
  at_least products "$least" 0.97 "${least:-nothing beside it, no plain cuBLASLt was built in}${least:+, the least of $count: $name}" "$shown"
}
