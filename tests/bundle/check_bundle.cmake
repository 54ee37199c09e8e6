# Fills a bundle from the installed packages and builds a program that uses each of them from the
# bundle only. Needs SOURCE_DIR, WORK_DIR, CXX, GENERATOR.
cmake_minimum_required(VERSION 3.22)
include(${SOURCE_DIR}/tests/support/run.cmake)

file(REMOVE_RECURSE ${WORK_DIR})
# A fake cuDNN frontend in a folder that also has other headers.
set(frontend ${WORK_DIR}/cudnn/include)
file(WRITE ${frontend}/cudnn_frontend.h "#include <cudnn.h>\n#include \"cudnn_frontend_utils.h\"\n")
file(WRITE ${frontend}/cudnn_frontend_utils.h "  # include \"../include/cudnn_backend_base.h\"\n")
file(WRITE ${frontend}/cudnn_backend_base.h "#include \"cudnn_parts/part.h\"\n")
file(WRITE ${frontend}/cudnn_parts/part.h "#include \"../cudnn_frontend/graph.h\"\n")
file(WRITE ${frontend}/cudnn_frontend/graph.h "#include \"node/node.h\"\n")
file(WRITE ${frontend}/cudnn_frontend/node/node.h "#include \"../../cudnn_frontend_utils.h\"\n")
file(WRITE ${frontend}/cudnn.h "#include \"cudnn_graph.h\"\n")
file(WRITE ${frontend}/cudnn_graph.h "")
run(${SOURCE_DIR}/scripts/bundle_deps.sh --cudnn-frontend ${frontend} ${WORK_DIR}/bundle)

# Every quoted include exists beside its header or in the bundle's include folder, except for the
# libraries of Eigen's optional back ends.
set(others_headers "^(mkl_lapacke.h|lapacke_config.h|SuiteSparseQR.hpp|Eigen/src/Core/arch/HIP/.*)$")
set(include ${WORK_DIR}/bundle/include)
file(GLOB_RECURSE headers RELATIVE ${include} ${include}/*)
set(includes 0)
foreach(header IN LISTS headers)
  get_filename_component(folder ${include}/${header} DIRECTORY)
  file(STRINGS ${include}/${header} lines REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" name "${line}")
    math(EXPR includes "${includes} + 1")
    if(NOT EXISTS ${folder}/${name} AND NOT EXISTS ${include}/${name} AND
       NOT (header MATCHES "^eigen3/" AND name MATCHES "${others_headers}"))
      message(SEND_ERROR "${header} includes \"${name}\", which is not in the bundle")
    endif()
  endforeach()
endforeach()
if(includes LESS 500)
  message(SEND_ERROR "the check has found ${includes} includes: it does not see the headers")
endif()
foreach(foreign cudnn.h cudnn_graph.h)
  if(EXISTS ${include}/${foreign})
    message(SEND_ERROR "${foreign} is cuDNN's own, not its frontend's")
  endif()
endforeach()
execute_process(COMMAND ${SOURCE_DIR}/scripts/without_packages.sh true RESULT_VARIABLE status
  ERROR_VARIABLE problem)
if(status EQUAL 0)
  set(hidden ${SOURCE_DIR}/scripts/without_packages.sh)
  # If the packages were visible, this check would prove nothing.
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

# The files that the compiler reads with the options of the build.
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
