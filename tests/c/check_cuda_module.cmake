# Runs PROGRAM with MODULE as the CUDA module beside LIBRARY, under the name that the library opens.
# Also needs the library's SONAME, and WORK_DIR.
cmake_minimum_required(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)

file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
file(COPY_FILE ${LIBRARY} ${WORK_DIR}/${SONAME})
file(COPY_FILE ${MODULE} ${WORK_DIR}/libtessera_cuda.so)
run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${WORK_DIR} ${PROGRAM})
if(NOT output MATCHES "2 steps, norm 0")
  message(FATAL_ERROR "the program printed: ${output}")
endif()
