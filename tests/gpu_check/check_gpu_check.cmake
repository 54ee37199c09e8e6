# Runs scripts/gpu_check.sh against the emulated module and checks its page and figures. Needs
# SOURCE_DIR, BUILD_DIR, WORK_DIR.
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE ${WORK_DIR})
set(script ${SOURCE_DIR}/scripts/gpu_check.sh)
set(options --emulated --build ${BUILD_DIR} --work ${WORK_DIR}/work --out ${WORK_DIR})

# Runs the script with the other arguments, expects status `wanted`, and reads the page.
function(check wanted)
  execute_process(COMMAND ${script} ${options} ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL wanted)
    message(FATAL_ERROR "status ${status}, not ${wanted}, of gpu_check.sh ${ARGN}\n${out}")
  endif()
  if(EXISTS ${WORK_DIR}/gpu.md)
    file(READ ${WORK_DIR}/gpu.md page)
    set(page "${page}" PARENT_SCOPE)
  endif()
endfunction()

function(page_has)
  foreach(text ${ARGN})
    string(FIND "${page}" "${text}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "the page has no '${text}':\n${page}")
    endif()
  endforeach()
endfunction()

check(2 no_such_part)
check(0 build test)
page_has("emulated on the processor" "## Build" "cuda:0" "| suite | passed |" "## NCCL"
  "| met | fp32 losses on the device within 1e-4" "N = 2, 2 steps"
  "cuBLAS, Thrust and kernels of its own have no double")

check(0 --part sanitize kernels)
page_has("cuda:0" "no compute-sanitizer" "| AdamW, fp32 gradients |" "device copy"
  "| attention backward, bf16 |" "| RMS norm of heads backward, bf16 |" "equal heads, all keys: "
  "| grouped attention backward in documents of 4, bf16 |" "| wte dW, " "| measured | speed of AdamW, fp32 gradients")

check(0 train decoder memory checkpoint)
page_has("| tessera, a step as one graph | 2 |" "| tessera, recorded products | 2 |" "by one with recorded products"
  "bytes by remainders" "zero3: " "| met | qwen3-0.6b, bf16, batch 8, ddp and zero3 on one rank: bytes that"
  "| met | bytes that the library holds"
  "| zero3 | " "the same, to the byte" "| met | the ledger's unattributed row"
  "| met | zero3, 4 ranks: a run that is resumed on the device" "| met | ddp, 4 ranks: a run that is resumed"
  "| measured | zero3 and ddp, 4 ranks: s a step beside an asynchronous save")

check(0 multi predictions plans)
page_has("| not measured | collectives over NCCL between GPUs" "| one GPU |"
  "| measured | GPT-2 124M, 50304 rows" "| layer norm backward, bf16 | 1542 GB/s |"
  "| measured | steps that tessera plan --time plans" "| train: remainders, --head-rows 1024 | layers 1, "
  "| decoder: qwen3-0.6b on one rank, ddp | qwen3, seq 8, batch 1 |" "not planned: train: --offload optimizer")
set(ENV{TESSERA_EMULATED_CUDA_DEVICES} 2)
check(0 multi)
unset(ENV{TESSERA_EMULATED_CUDA_DEVICES})
page_has("| measured | collectives over NCCL between GPUs" "of 2 ranks, 4096 bytes" "| measured | share of zero3's gathers"
  "| measured | --channel-priority high" "| measured | --spare-multiprocessors 8" "| measured | --nccl-max-ctas 8" "| measured | --nccl-windows")

check(0 --compare ${WORK_DIR}/gpu.json nccl)
page_has("| met | NCCL, a job of one process" "| accepted |" "| 2 processes: all pass |"
  "2 of 2 named it |" "has left in the middle of the run")

# The programs' output gives figures with their sizes; the run is compared with itself.
page_has("On an emulated device" "- nccl: now only"
  "| the same | kernels: AdamW, fp32 gradients (1000 parameters) |"
  "| the same | kernels: wte forward (8 x 128 x "
  "| the same | kernels: cross entropy, bf16 (8 tokens in sequences of 8, hidden 32, vocab "
  "| the same | kernels: all_gather (4 ranks, 1024 bytes each) |"
  "| the same | memory: gpt2-large, zero3, measured on the fullest rank (layers 1, hidden 16, heads 2, seq 8, vocab 256, batch 1, 2 ranks) |")
file(READ ${WORK_DIR}/gpu.json figures)
string(JSON parts LENGTH "${figures}" parts)
string(JSON nccl GET "${figures}" parts 7 figures 0 unit)
if(NOT parts EQUAL 12 OR NOT nccl STREQUAL "ms")
  message(FATAL_ERROR "gpu.json has ${parts} parts, not 12, or no time of NCCL:\n${figures}")
endif()

# The page lists parts without time, and keeps everything else.
set(ENV{PART_SECONDS} 0)
check(4 train)
page_has("No time was left" "there was no time for it" "| AdamW, fp32 gradients |" "2 of 2 named it |")
string(FIND "${page}" "${SOURCE_DIR}" at)
if(NOT at EQUAL -1)
  message(FATAL_ERROR "the page names a folder of this machine:\n${page}")
endif()

# Products are recorded for as many multiprocessors as a run leaves to them. The emulated device has
# four.
set(ENV{TESSERA_CUDA_MODULE} ${BUILD_DIR}/lib/libtessera_cuda_emulated.so)
set(recorded ${WORK_DIR}/spared.json)
function(choose wanted text)
  execute_process(COMMAND ${BUILD_DIR}/bench/cuda/tessera_cuda_bench --small ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL wanted OR NOT out MATCHES "${text}")
    message(FATAL_ERROR "status ${status}, not ${wanted}, or no '${text}', of ${ARGN}:\n${out}")
  endif()
endfunction()
choose(0 "products are in" --spare 1 --choose ${recorded})
file(READ ${recorded} products)
string(JSON multiprocessors GET "${products}" multiprocessors)
if(NOT multiprocessors EQUAL 3)
  message(FATAL_ERROR "recorded for ${multiprocessors} multiprocessors, not 3")
endif()
choose(1 "is -1: choose 0 or more" --choose ${recorded} --spare -1)
choose(1 "is 4, but the device has 4" --choose ${recorded} --spare 4)
choose(1 "--spare has no effect without --choose" --spare 1)
