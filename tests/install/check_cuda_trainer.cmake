# Builds examples/cuda_trainer.cu against an installed copy, as a separate project, and runs the
# parts that need no GPU: its plan and, if MODULE names the emulated module, all of its Tessera
# calls. Needs BUILD_DIR, SOURCE_DIR, WORK_DIR, CXX, NVCC, PYTHON, GENERATOR, ARCHITECTURES and
# MODULE (may be empty).
cmake_minimum_required(VERSION 3.22)
include(${SOURCE_DIR}/tests/support/run.cmake)

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/cuda_trainer -B ${WORK_DIR}/build -G ${GENERATOR}
  -DSOURCE=${SOURCE_DIR}/examples/cuda_trainer.cu -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX}
  -DCMAKE_CUDA_COMPILER=${NVCC} -DCMAKE_CUDA_ARCHITECTURES=${ARCHITECTURES})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
set(trainer ${WORK_DIR}/build/cuda_trainer)

run(${PYTHON} ${SOURCE_DIR}/tests/install/count_changes.py ${SOURCE_DIR}/examples/cuda_trainer.cu
  plain wrapped)
message("${output}")

run(${trainer} --plan zero3 4)
if(NOT output MATCHES "rank 0 and 3 like it hold [0-9]+ bytes")
  message(FATAL_ERROR "the plan says: ${output}")
endif()
if(MODULE)
  foreach(strategy ddp zero1 zero3)
    run(${CMAKE_COMMAND} -E env TESSERA_CUDA_MODULE=${MODULE}
      ${trainer} --without-kernels ${strategy} 3 4)
    if(NOT output MATCHES "rank 2 held [0-9]+ bytes.*as planned, to the byte")
      message(FATAL_ERROR "${strategy}, with no kernel of its own: ${output}")
    endif()
  endforeach()
else()
  message("not run over the emulated module, which is not built")
endif()
