# Lets builds of Tessera next to the complete one in BUILD_DIR reuse its objects where the
# compilation is identical. Needs BUILD_DIR, SOURCE_DIR and PYTHON.
include(${SOURCE_DIR}/tests/support/run.cmake)

# Writes `file` for cmake -C: the settings of BUILD_DIR, and a launcher that reuses its objects.
# `folder` is Tessera's folder within the other build, empty if that build is Tessera itself.
function(write_settings_to_reuse file folder)
  run(${PYTHON} -c "print(__import__('sys').executable)")  # a shim takes a tenth of a second
  string(STRIP "${output}" python)
  file(WRITE ${file}.launcher.sh "#!/bin/sh\nexec '${python}' -I -S \
'${SOURCE_DIR}/tests/packages/reuse.py' '${BUILD_DIR}' '${folder}' \"$@\"\n")
  file(CHMOD ${file}.launcher.sh PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(text "")
  foreach(language CXX CUDA)
    string(APPEND text "set(CMAKE_${language}_COMPILER_LAUNCHER [[${file}.launcher.sh]] CACHE STRING \"\")\n")
  endforeach()
  file(STRINGS ${BUILD_DIR}/CMakeCache.txt lines REGEX
    "^(CMAKE_(CXX_COMPILER|CXX_FLAGS|BUILD_TYPE|(EXE|MODULE)_LINKER_FLAGS)|TESSERA_[A-Z_]+):[A-Z]+=.")
  list(FILTER lines EXCLUDE REGEX
    "-(ADVANCED|STRINGS):|:INTERNAL=|^TESSERA_(BUILD_|INSTALL|BOTH_KINDS|[A-Z_]*PYTHON|BASH)")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([^:]+):[^=]+=(.*)" line "${line}")
    string(APPEND text "set(${CMAKE_MATCH_1} [[${CMAKE_MATCH_2}]] CACHE STRING \"\")\n")
    if(CMAKE_MATCH_1 STREQUAL "CMAKE_MODULE_LINKER_FLAGS")
      string(APPEND text "set(CMAKE_SHARED_LINKER_FLAGS [[${CMAKE_MATCH_2}]] CACHE STRING \"\")\n")
    endif()
  endforeach()
  file(WRITE ${file} "${text}")
endfunction()

# Prints the files that the build in `folder` had to compile.
function(say_what_was_reused folder)
  file(STRINGS ${folder}/reuse.log lines)
  set(anew ${lines})
  list(FILTER anew INCLUDE REGEX "^compiled")
  list(TRANSFORM anew REPLACE "^compiled " "")
  list(LENGTH lines all)
  list(LENGTH anew size)
  list(JOIN anew ", " names)
  message("${all} files, of which compiled here: ${size} (${names})")
endfunction()
