# Configures an outside project that contains Tessera, through FetchContent and as a folder: every
# variable, option, target, flag, test or installed file that this adds must have Tessera's prefix
# or belong to a package that it looks for. Builds and runs the first. Needs BUILD_DIR, SOURCE_DIR,
# WORK_DIR, PYTHON and GENERATOR.
cmake_minimum_required(VERSION 3.22)
include(${SOURCE_DIR}/tests/packages/reuse.cmake)

file(REMOVE_RECURSE ${WORK_DIR})
set(program ${SOURCE_DIR}/tests/install/stranger/main.cpp)

# Variables that find_package(), enable_language() and project() leave in any project.
set(of_packages
  "^cache (CLI11|Eigen3|fmt|nlohmann_json)_DIR$"
  "^cache (MPI|MPIEXEC|CUDA|CUDAToolkit)_"
  "^cache (pkgcfg_lib|PKG_CONFIG)_"
  "^cache (FIND_PACKAGE_MESSAGE_DETAILS_|CMAKE_HAVE_|HAVE_)"
  "^cache CMAKE_PROJECT_VERSION(_[A-Z]+)?$"  # if the outside project has no version
  "^cache CMAKE_(C|CUDA)_|^cache CMAKE_INSTALL_[A-Z]+DIR$|^cache _GNUInstallDirs_")
set(of_fetch "^(cache|variable) (FETCHCONTENT_|tessera_(SOURCE_DIR|BINARY_DIR|POPULATED|IS_TOP_LEVEL)$)")

function(check_what_came how folder)
  file(STRINGS ${folder}/came.txt all)
  set(prefixed 0)
  set(theirs 0)
  set(leaked "")
  foreach(one IN LISTS all)
    set(allowed OFF)
    if(one MATCHES "^(cache|BUILDSYSTEM_TARGETS) (TESSERA_|tessera)|${of_fetch}|^(options|definitions) $")
      math(EXPR prefixed "${prefixed} + 1")
      set(allowed ON)
    endif()
    foreach(pattern IN LISTS of_packages)
      if(NOT allowed AND one MATCHES "${pattern}")
        math(EXPR theirs "${theirs} + 1")
        set(allowed ON)
      endif()
    endforeach()
    if(NOT allowed)
      list(APPEND leaked "${one}")
    endif()
  endforeach()
  message("${how}: ${prefixed} entries and targets with Tessera's prefix, ${theirs} of packages that it \
looks for")
  if(leaked)
    list(JOIN leaked "\n  " leaked)
    message(FATAL_ERROR "${how}: these have come into the outside project:\n  ${leaked}")
  endif()
  list(FILTER all INCLUDE REGEX "^BUILDSYSTEM_TARGETS tessera")
  list(JOIN all ", " all)
  string(REPLACE "BUILDSYSTEM_TARGETS " "" all "${all}")
  message("  targets: ${all}")
endfunction()

write_settings_to_reuse(${WORK_DIR}/settings.cmake _deps/tessera-build)
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/packages/outside -B ${WORK_DIR}/fetch -G ${GENERATOR}
  -C ${WORK_DIR}/settings.cmake -DHOW=fetch -DTESSERA=${SOURCE_DIR} -DPROGRAM=${program})
check_what_came("FetchContent" ${WORK_DIR}/fetch)
# Without any option, not even a build type, and without slow package searches.
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/packages/outside -B ${WORK_DIR}/folder -G ${GENERATOR}
  -DHOW=folder -DTESSERA=${SOURCE_DIR} -DPROGRAM=${program} -DTESSERA_CUDA=OFF -DTESSERA_MPI=OFF)
check_what_came("add_subdirectory" ${WORK_DIR}/folder)

run(${CMAKE_COMMAND} --build ${WORK_DIR}/fetch --target outside_program)
say_what_was_reused(${WORK_DIR}/fetch)
run(${CMAKE_COMMAND} --install ${WORK_DIR}/fetch --prefix ${WORK_DIR}/prefix)
file(GLOB_RECURSE installed RELATIVE ${WORK_DIR}/prefix ${WORK_DIR}/prefix/*)
if(NOT installed STREQUAL "bin/outside_program")
  message(FATAL_ERROR "with the outside project was installed: ${installed}")
endif()
run(${WORK_DIR}/prefix/bin/outside_program)
if(NOT output MATCHES "4 of 4 ranks")
  message(FATAL_ERROR "the outside program printed: ${output}")
endif()
