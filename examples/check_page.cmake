# Expects the table that PAGE shows to be what PROGRAM prints: every line that LINES matches, of
# which there are LEAST or more.
execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE status OUTPUT_VARIABLE output)
file(STRINGS ${PAGE} lines REGEX "${LINES}")
list(LENGTH lines count)
if(NOT status EQUAL 0 OR count LESS ${LEAST})
  message(FATAL_ERROR "status ${status}, ${count} lines in ${PAGE}")
endif()
foreach(line IN LISTS lines)
  string(FIND "${output}" "${line}\n" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${PAGE} shows what the program does not print:\n${line}")
  endif()
endforeach()
