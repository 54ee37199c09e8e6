# Returns the run path of `file` as a list, empty if it has none. Fails if an entry is empty,
# because the loader would use the current folder. Needs READELF.
function(read_run_path file result)
  execute_process(COMMAND ${READELF} -d ${file} RESULT_VARIABLE status OUTPUT_VARIABLE dynamic
    ERROR_VARIABLE problem)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "status ${status} from ${READELF} -d ${file}: ${problem}")
  endif()
  set(path "")
  if(dynamic MATCHES "\\((RUNPATH|RPATH)\\)[^\n]*\\[([^]\n]*)\\]")
    set(path "${CMAKE_MATCH_2}")
    if(":${path}:" MATCHES "::")
      message(FATAL_ERROR "the run path of ${file} has an empty entry: ${path}")
    endif()
    string(REPLACE ":" ";" path "${path}")
  endif()
  set(${result} "${path}" PARENT_SCOPE)
endfunction()
