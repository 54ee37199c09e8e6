# A machine whose only cuBLASLt is a stub, which linkers accept and programs cannot load. The
# project configures without CUDA and says why, unless CUDA was requested. Needs SOURCE_DIR,
# WORK_DIR, CXX, GENERATOR, NVCC, NCCL_LIBRARY, NCCL_INCLUDE and BUNDLE (may be empty).
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE ${WORK_DIR})
set(stub ${WORK_DIR}/stubs/libcublasLt.so)
file(MAKE_DIRECTORY ${WORK_DIR}/stubs)
execute_process(COMMAND ${CXX} -shared -fPIC -Wl,-soname,libcublasLt.so.13 -DFUNCTION=stub -DPLACE="stub"
  -o ${stub} ${SOURCE_DIR}/tests/libraries/library.cpp COMMAND_ERROR_IS_FATAL ANY)

# Expects status `wanted`, and `text` in the output.
function(configure cuda wanted text)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
      -DCMAKE_CXX_COMPILER=${CXX} -DTESSERA_NVCC=${NVCC} -DCUDA_cublasLt_LIBRARY=${stub}
      -DTESSERA_NCCL_LIBRARY=${NCCL_LIBRARY} -DTESSERA_NCCL_INCLUDE=${NCCL_INCLUDE}
      -DTESSERA_BUNDLE=${BUNDLE} -DTESSERA_CUDA=${cuda} -DTESSERA_CUDNN=OFF -DTESSERA_MPI=OFF -DTESSERA_ONEDNN=OFF
      -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_EXAMPLES=OFF -DTESSERA_BUILD_TOOLS=OFF
    RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  string(REGEX REPLACE "[ \n]+" " " out "${out}")  # errors have line breaks
  string(FIND "${out}" "${text}" at)
  if(NOT status EQUAL wanted OR at EQUAL -1)
    message(FATAL_ERROR "TESSERA_CUDA=${cuda}: status ${status}, not ${wanted}, or no '${text}':\n${out}")
  endif()
endfunction()
set(why "a program linked to ${stub} asks for libcublasLt.so.13, which is not beside it")
configure(AUTO 0 "Without CUDA: ${why}")
configure(ON 1 "TESSERA_CUDA is ON, but ${why}")
