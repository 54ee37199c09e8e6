# Fills a bundle from the installed packages, and builds a program of each of them from it alone.
# Needs SOURCE_DIR, WORK_DIR, CXX, GENERATOR.
cmake_minimum_required(VERSION 3.22)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "status ${status} from: ${command}\n${out}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run(${SOURCE_DIR}/scripts/bundle_deps.sh ${WORK_DIR}/bundle)
execute_process(COMMAND ${SOURCE_DIR}/scripts/without_packages.sh true RESULT_VARIABLE status
  ERROR_VARIABLE problem)
if(status EQUAL 0)
  set(hidden ${SOURCE_DIR}/scripts/without_packages.sh)
  # If packages were not hidden, this check would show nothing.
  execute_process(COMMAND ${hidden} ls /usr/include/fmt OUTPUT_VARIABLE files)
  if(NOT files STREQUAL "")
    message(FATAL_ERROR "the packages are not hidden: ${files}")
  endif()
else()
  message("the packages are not hidden: ${problem}")
  set(hidden "")
endif()
run(${hidden} ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/bundle -B ${WORK_DIR}/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DSOURCE_DIR=${SOURCE_DIR} -DTESSERA_BUNDLE=${WORK_DIR}/bundle
  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_BUILD_TYPE=Debug)
run(${hidden} ${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${hidden} ${WORK_DIR}/build/bundle_user)

# What the compiler reads, given the options that it was called with.
file(STRINGS ${WORK_DIR}/build/compile_commands.json command REGEX "command.*tests/bundle/main.cpp")
string(REGEX REPLACE ".*\"command\": \"(.*)\".*" "\\1" command "${command}")
separate_arguments(command UNIX_COMMAND "${command}")
run(${CMAKE_COMMAND} -E chdir ${WORK_DIR}/build ${command} -M -MF ${WORK_DIR}/files)
file(READ ${WORK_DIR}/files files)
if(NOT files MATCHES "bundle/include/eigen3/Eigen/Core")
  message(FATAL_ERROR "the test does not see what the compiler reads:\n${files}")
endif()
string(REGEX MATCH "/usr/include/(eigen3|fmt|nlohmann|CLI|benchmark|gtest|gmock|xxhash)[^ ]*"
  foreign "${files}")
if(foreign)
  message(FATAL_ERROR "${foreign} came from the system, not from the bundle")
endif()
