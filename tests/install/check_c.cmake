# Installs the build tree into an empty folder, builds the C trainers against the copy as a project
# in pure C, and compares their losses. Needs BUILD_DIR, SOURCE_DIR, WORK_DIR, CC, GENERATOR,
# PYTHON.
cmake_minimum_required(VERSION 3.22)
include(${SOURCE_DIR}/tests/support/run.cmake)

file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/c_stranger -B ${WORK_DIR}/build -G ${GENERATOR}
  -DCMAKE_C_COMPILER=${CC} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=Release
  -DEXAMPLES=${SOURCE_DIR}/examples)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${PYTHON} -B ${SOURCE_DIR}/tests/c/compare_trainers.py ${WORK_DIR}/build/c_plain_trainer
  ${WORK_DIR}/build/c_trainer)
message("${output}")

# A missing component is refused.
file(WRITE ${WORK_DIR}/missing/CMakeLists.txt "cmake_minimum_required(VERSION 3.22)
project(missing LANGUAGES C)
find_package(tessera REQUIRED COMPONENTS c nothing)
")
execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK_DIR}/missing -B ${WORK_DIR}/missing/build
  -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix} RESULT_VARIABLE status ERROR_VARIABLE error
  OUTPUT_QUIET)
if(status EQUAL 0 OR NOT error MATCHES "'nothing'")
  message(FATAL_ERROR "a component that does not exist was found: ${error}")
endif()
