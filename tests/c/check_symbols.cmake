# Compares what LIBRARY exports with the sorted list in LIST, and both with the functions of HEADER.
# Also needs NM.
cmake_minimum_required(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)

file(STRINGS ${LIST} listed)
set(sorted ${listed})
list(SORT sorted)
if(NOT sorted STREQUAL listed)
  message(FATAL_ERROR "${LIST} is not sorted")
endif()

run(${NM} -D --defined-only ${LIBRARY})
string(REGEX MATCHALL "[^\n]+" lines "${output}")
set(exported "")
foreach(line IN LISTS lines)
  # The version node is itself an absolute symbol.
  if(line MATCHES " A TESSERA_C_[0-9]+(@|$)")
    continue()
  endif()
  string(REGEX REPLACE "^[0-9a-f]+ . ([^@]+).*" "\\1" name "${line}")
  list(APPEND exported ${name})
endforeach()

# Every function of the header is declared at the start of a line.
file(READ ${HEADER} text)
string(REGEX MATCHALL "\n(tessera_status|const char\\*) tessera_[a-z_]+\\(" declared "${text}")
list(TRANSFORM declared REPLACE ".* (tessera_[a-z_]+)\\($" "\\1")

foreach(name IN LISTS listed)
  if(NOT name IN_LIST exported OR NOT name IN_LIST declared)
    message(SEND_ERROR "${name} is gone from the library or its header. Programs that are linked already need "
      "it: within a major version a function stays, with its meaning and its parameters. Bring it back; or "
      "begin a new major version, and take it out of ${LIST} there")
  endif()
endforeach()
set(either ${exported} ${declared})
list(REMOVE_DUPLICATES either)
foreach(name IN LISTS either)
  if(NOT name IN_LIST listed)
    message(SEND_ERROR "${name} is new. If it is a function of tessera/c.h that is to stay for all of this major "
      "version, add it to ${LIST}; if it is not, keep it out of the library's exports (src/c/exports.map)")
  endif()
endforeach()
list(LENGTH exported count)
message("${count} exported functions")
