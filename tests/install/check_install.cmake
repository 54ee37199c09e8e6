# Installs the build tree into an empty folder, builds a stranger's project against the copy, and
# runs it. Needs BUILD_DIR, SOURCE_DIR, WORK_DIR, CXX, GENERATOR, VERSION.
cmake_minimum_required(VERSION 3.22)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "status ${status} from: ${command}\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

# The copy must stand alone: neither the sources nor the build tree may be named in it.
file(GLOB_RECURSE package_files ${prefix}/*.cmake)
foreach(file ${package_files})
  file(READ ${file} text)
  foreach(path ${SOURCE_DIR} ${BUILD_DIR})
    string(FIND "${text}" "${path}/" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} names ${path}")
    endif()
  endforeach()
endforeach()

run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/stranger -B ${WORK_DIR}/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/stranger)
if(NOT output MATCHES "4 of 4 ranks")
  message(FATAL_ERROR "the stranger's program printed: ${output}")
endif()

run(${prefix}/bin/tessera --version)
if(NOT output STREQUAL "tessera ${VERSION}\n")
  message(FATAL_ERROR "the installed command calls itself: ${output}")
endif()

# The CUDA module is there too, and the installed command takes that one.
if(EXISTS ${BUILD_DIR}/lib/libtessera_cuda.so)
  file(GLOB_RECURSE module ${prefix}/libtessera_cuda.so)
  run(${prefix}/bin/tessera doctor)
  string(REGEX MATCH "\n  module +([^\n]+)" line "${output}")
  if(NOT module OR NOT line OR NOT CMAKE_MATCH_1 STREQUAL module)
    message(FATAL_ERROR "installed was the module '${module}', and the command says:\n${output}")
  endif()
endif()
