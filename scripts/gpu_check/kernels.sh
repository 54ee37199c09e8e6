# Part kernels of scripts/gpu_check.sh.

part_kernels() {
  timed=yes
  bar adamw_fp32 "speed of AdamW, fp32 gradients, 500 M parameters: at least 0.90 of a device copy's"
  bar adamw_bf16 "speed of AdamW, bf16 gradients, 500 M parameters: at least 0.90 of a device copy's"
  bar adamw_torch "speed of AdamW, fp32 gradients: at least that of torch.optim.AdamW(fused=True)"
  bar products "speed of matrix products: at least 0.97 of plain cuBLASLt's"
  bar moving "speed of casts, squared norms, layer norm backward and cross entropy: at least 0.80 of a device copy's"
  local status ours='' program=$build/bench/cuda/tessera_cuda_bench small=() elems=500000000
  if [[ $emulated == yes ]]; then small=(--small) elems=1000; fi
  bench_group adamw
  beside_copy adamw_fp32 "AdamW, fp32 gradients"
  beside_copy adamw_bf16 "AdamW, bf16 gradients"
  if ((status == 0)); then ours=$(cell "AdamW, fp32 gradients" 2 "$log"); fi
  beside_torch "$ours"
  bench_group products
  slowest_product
  choose_products
  bench_group attention
  bench_group memory
  slowest_mover
  bench_group collectives
  bench_group host
  bench_group launches
}

# bench_group GROUP: runs a group of benchmarks, and sets $status.
bench_group() {
  status=0
  keep table "$program" "${small[@]}" "$1" || status=$?
  if ((status == 0)); then bench_figures "$1"; fi
}

# Records the fastest of the algorithms that cuBLASLt offers, for `tessera train --products` and the two
# trainings that part train compares with PyTorch.
choose_products() {
  local status=0 models=(gpt2:64 gpt2-xl:8)
  if [[ $emulated == yes ]]; then models=(); fi
  makes=("$work/products.json")
  keep table "$program" "${small[@]}" --choose "$work/products.json" "${models[@]}" || status=$?
  makes=()
  if ((status == 0)); then bench_figures choices; fi
}

# bench_figures GROUP: records the rows of the table in $log. The size of products and collectives is in
# their name, that of the others in the line above the table.
bench_figures() {
  local name ours limit of_limit sizes shape
  declare -A bar_of=(["AdamW, fp32 gradients"]=adamw_fp32 ["AdamW, bf16 gradients"]=adamw_bf16)
  sizes=$(grep -m 1 '^[0-9]* parameters, ' "$log" || true)
  while IFS=$'\t' read -r name ours limit of_limit; do
    shape=$(shape_of "$1" "$name" "$sizes")
    if [[ $name == *", $shape" ]]; then name=${name%", $shape"}; fi
    figure "$name" "$shape" "${ours% *}" "${ours##* }"
    figure "$name / ${limit%%:*}" "$shape" "$of_limit" ratio "${bar_of[$name]-}"
  done < <(awk -F ' *[|] *' -v OFS='\t' '$3 ~ /^[0-9.e-]+ ((GB|TFLOP)\/s|ms|us)$/ { print $2, $3, $4, $5 }' "$log")
}

# shape_of GROUP NAME LINE: prints the size of a row; the whole LINE if it has an unknown form.
shape_of() {
  local products='([0-9]+ x [0-9]+ x [0-9]+)$' collectives='([0-9]+ ranks, [0-9]+ bytes each)$'
  local all='^([0-9]+ parameters), (.*), (vocab [0-9]+);'
  if [[ $1 == launches || $1 == host ]]; then
    echo ""
  elif [[ $2 =~ $products || $2 =~ $collectives ]]; then
    echo "${BASH_REMATCH[1]}"
  elif [[ ! $3 =~ $all ]]; then
    echo "$3"
  elif [[ $1 == adamw ]]; then
    echo "${BASH_REMATCH[1]}"
  elif [[ $2 == "cross entropy"* ]]; then
    echo "${BASH_REMATCH[2]}, ${BASH_REMATCH[3]}"
  else
    echo "${BASH_REMATCH[2]}"
  fi
}

# beside_copy BAR ROW: judges a row of the last group that ran.
beside_copy() {
  if ((status != 0)); then
    judge "$1" "not measured" "$(reason_of "$status")" "$shown"
  else
    at_least "$1" "$(cell "$2" 4 "$log")" 0.90 "$(row_figure "$2" "$log")" "$shown"
  fi
}

# cell NAME COLUMN LOG: prints a cell of the first row whose first cell is NAME; COLUMN counts from 1.
cell() {
  awk -F ' *[|] *' -v name="$1" -v column="$2" '$2 == name { print $(column + 1); exit }' "$3"
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
  if ((status == 0)); then
    figure "PyTorch's AdamW, fp32 gradients" "$elems parameters" "$theirs" GB/s
    figure "AdamW, fp32 gradients / PyTorch" "$elems parameters" "$(quotient "${1% GB/s}" "$theirs")" ratio adamw_torch
  fi
  if ((status != 0)) || [[ -z $theirs || -z $1 ]]; then
    judge adamw_torch "not measured" "ours: ${1:-none}, PyTorch's: ${theirs:-$(reason_of "$status")}" "$shown"
  else
    at_least adamw_torch "${1% GB/s}" "$theirs" "$1, PyTorch's $theirs GB/s" "$shown"
  fi
}

slowest_mover() {
  local least
  if ((status != 0)); then
    judge moving "not measured" "$(reason_of "$status")" "$shown"
    return
  fi
  least=$(awk -F ' *[|] *' '$2 ~ /^(cast|squared norm|layer norm backward|cross entropy)/ && (least == "" || $5 + 0 < least) { least = $5 + 0; name = $2 }
    END { if (least != "") print least, name }' "$log")
  at_least moving "${least%% *}" 0.80 "${least:-no figure}" "$shown"
}

# Judges the products that were also measured with plain cuBLASLt.
slowest_product() {
  local least count name
  if ((status != 0)); then
    judge products "not measured" "$(reason_of "$status")" "$shown"
    return
  fi
  least=$(awk -F ' *[|] *' '$4 ~ /^plain cuBLASLt/ { n++; if (least == "" || $5 + 0 < least) { least = $5 + 0; name = $2 } }
    END { if (n) printf "%s %d %s", least, n, name }' "$log")
  read -r least count name <<<"$least"
  figure "the slowest product / plain cuBLASLt" "${count:-no} products" "$least" ratio products
  at_least products "$least" 0.97 "${least:-nothing beside it, no plain cuBLASLt was built in}${least:+, the least of $count: $name}" "$shown"
}
