# Runs scripts/gpu_check.sh against the emulated module and reads the page that it writes. Needs
# SOURCE_DIR, BUILD_DIR, WORK_DIR.
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE ${WORK_DIR})
set(script ${SOURCE_DIR}/scripts/gpu_check.sh)
set(options --emulated --build ${BUILD_DIR} --work ${WORK_DIR}/work --out ${WORK_DIR})

# Runs the script with `arguments`, wants `wanted` as its status, and reads the page.
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
page_has("emulated on the processor" "## Build" "cuda:0" "| suite | passed |" "## NCCL")

check(0 sanitize kernels)
page_has("cuda:0" "Not run: compute-sanitizer" "| AdamW, fp32 gradients |" "device copy"
  "| attention backward, bf16 |" "| wte dW, ")

check(0 train memory)
page_has("| tessera | " "| zero3 | " "gpt2-large, 4 ranks, zero2" "gpt2-xl, 8 ranks, ddp"
  "as planned on every rank")

# What fails is in the page, and takes nothing else from it.
set(ENV{PART_SECONDS} 0)
check(1 train)
page_has("the part's time was over" "**" "failed**" "| AdamW, fp32 gradients |" "gpt2-large, 4 ranks")
string(FIND "${page}" "${SOURCE_DIR}" at)
if(NOT at EQUAL -1)
  message(FATAL_ERROR "the page names a folder of this machine:\n${page}")
endif()
