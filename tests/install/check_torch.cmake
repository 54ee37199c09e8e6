# Installs the library and its component torch into an empty folder, and builds and runs an example
# against the copy, as a separate project. Needs BUILD_DIR, SOURCE_DIR, WORK_DIR, CXX, GENERATOR,
# READELF, PYTHON.
cmake_minimum_required(VERSION 3.22)
include(${SOURCE_DIR}/tests/support/run.cmake)

file(REMOVE_RECURSE ${WORK_DIR})
foreach(component libraries development torch torch-development)
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix --component ${component})
endforeach()
set(configure ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/torch_stranger -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix
  -DSOURCES=${SOURCE_DIR}/examples/torch)

# The package names no folder of the build.
file(GLOB package_files ${WORK_DIR}/prefix/lib*/cmake/tessera/*torch*.cmake
  ${WORK_DIR}/prefix/lib*/*/cmake/tessera/*torch*.cmake)
list(LENGTH package_files count)
if(count LESS 3)
  message(FATAL_ERROR "of the component torch only these files are installed: ${package_files}")
endif()
foreach(file ${package_files})
  file(READ ${file} text)
  foreach(path ${SOURCE_DIR} ${BUILD_DIR})
    string(FIND "${text}" "${path}/" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} names ${path}")
    endif()
  endforeach()
endforeach()

# Without libtorch the message says what is missing and what to do.
execute_process(COMMAND ${configure} -B ${WORK_DIR}/without -DTESSERA_TORCH_ROOT=/nonexistent
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(status EQUAL 0 OR NOT output MATCHES "libtorch was not found" OR
   NOT output MATCHES "libtorch-dev" OR NOT output MATCHES "TESSERA_TORCH_ROOT")
  message(FATAL_ERROR "without libtorch, CMake ends with ${status} and says: ${output}")
endif()

run(${configure} -B ${WORK_DIR}/build)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/train_char_model --text ${SOURCE_DIR}/LICENSE --ranks 2 --steps 20)
if(NOT output MATCHES "zero3 on 2 ranks.*largest relative difference: [0-9.]+e-0[678]")
  message(FATAL_ERROR "the example, built against the installed copy, printed: ${output}")
endif()
run(${READELF} -d ${WORK_DIR}/build/plain)
if(output MATCHES "torch")
  message(FATAL_ERROR "a program without the component is linked to libtorch: ${output}")
endif()

foreach(example train_classifier train_char_model)
  run(${PYTHON} ${SOURCE_DIR}/tests/install/count_changes.py
    ${SOURCE_DIR}/examples/torch/${example}.cpp plain sharded)
  message("${example}: ${output}")
endforeach()
