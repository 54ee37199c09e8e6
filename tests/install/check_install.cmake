# Installs the build tree into an empty folder, builds an external project against the copy, and
# runs it. Needs BUILD_DIR, SOURCE_DIR, WORK_DIR, CXX, GENERATOR, READELF, VERSION.
cmake_minimum_required(VERSION 3.22)
include(${SOURCE_DIR}/tests/libraries/read_run_path.cmake)
include(${SOURCE_DIR}/tests/support/run.cmake)

file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

# The copy must not name the sources or the build tree.
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

function(build_stranger compiler folder)
  run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/stranger -B ${folder} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${compiler} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=Release
    -DEXAMPLES=${SOURCE_DIR}/examples)
  run(${CMAKE_COMMAND} --build ${folder})
  run(${folder}/stranger)
  if(NOT output MATCHES "4 of 4 ranks")
    message(FATAL_ERROR "the stranger's program, compiled by ${compiler}, printed: ${output}")
  endif()
  run(${folder}/own_layers)
  if(NOT output MATCHES "ddp and zero3 give the same bits")
    message(FATAL_ERROR "own_layers, compiled by ${compiler}, printed: ${output}")
  endif()
endfunction()
build_stranger(${CXX} ${WORK_DIR}/build)

# The refusal of a missing component says how to build it.
execute_process(COMMAND ${CMAKE_COMMAND} -DCOMPONENTS=mosaic ${WORK_DIR}/build
  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE output)
string(REGEX REPLACE "[ \n]+" " " output "${output}")
if(status EQUAL 0 OR NOT output MATCHES
   "has no component 'mosaic': configure Tessera's sources with -DTESSERA_MOSAIC=ON")
  message(FATAL_ERROR "a component that is not installed: ${output}")
endif()

# A program built by another compiler can use the installed copy.
execute_process(COMMAND ${CXX} --version OUTPUT_VARIABLE version)
if(version MATCHES "clang")
  set(others g++)
else()
  set(others clang++-19 clang++-16 clang++)
endif()
find_program(other_compiler NAMES ${others} NO_CACHE)
if(other_compiler)
  message("installed by ${CXX}, used by ${other_compiler}")
  build_stranger(${other_compiler} ${WORK_DIR}/other_build)
else()
  list(JOIN others ", " others)
  message("not tried with another compiler than ${CXX}: there is none of ${others}")
endif()

# The copy can be moved, and used with pkg-config.
find_program(pkg_config NAMES pkg-config NO_CACHE)
if(pkg_config)
  file(RENAME ${prefix} ${WORK_DIR}/moved)
  file(GLOB_RECURSE pc ${WORK_DIR}/moved/*/tessera.pc)
  get_filename_component(pc_folder "${pc}" DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${pc_folder})
  run(sh -c "'${CXX}' -std=c++20 '${SOURCE_DIR}/tests/install/stranger/main.cpp' \
    -o '${WORK_DIR}/by_pkg_config' $(pkg-config --cflags --libs tessera)")
  run(${WORK_DIR}/by_pkg_config)
  if(NOT output MATCHES "4 of 4 ranks")
    message(FATAL_ERROR "the stranger's program, built with pkg-config, printed: ${output}")
  endif()
  file(RENAME ${WORK_DIR}/moved ${prefix})
else()
  message("not tried with pkg-config, which is not installed")
endif()

run(${prefix}/bin/tessera --version)
if(NOT output STREQUAL "tessera ${VERSION}\n")
  message(FATAL_ERROR "the installed command calls itself: ${output}")
endif()

# The CUDA module is installed too, and the installed command uses it.
if(EXISTS ${BUILD_DIR}/lib/libtessera_cuda.so)
  file(GLOB_RECURSE module ${prefix}/libtessera_cuda.so)
  run(${prefix}/bin/tessera doctor)
  string(REGEX MATCH "\n  module +([^\n]+)" line "${output}")
  if(NOT module OR NOT line OR NOT CMAKE_MATCH_1 STREQUAL module)
    message(FATAL_ERROR "installed was the module '${module}', and the command says:\n${output}")
  endif()
  # Like the build's module it loads the libraries that the build was configured with.
  if(output MATCHES "; built with ")
    message(FATAL_ERROR "the installed module has loaded other libraries:\n${output}")
  endif()
  read_run_path(${module} installed)
  read_run_path(${BUILD_DIR}/lib/libtessera_cuda.so built)
  if(NOT installed OR NOT installed STREQUAL built)
    message(FATAL_ERROR "the run path is ${built} where it was built, ${installed} where installed")
  endif()
endif()
