# Expects PROGRAM to refuse ARGUMENTS: exit status 2, one line that says what to give.
execute_process(COMMAND ${PROGRAM} ${ARGUMENTS} RESULT_VARIABLE status OUTPUT_VARIABLE out
  ERROR_VARIABLE error)
if(NOT status EQUAL 2 OR NOT out STREQUAL "" OR NOT error MATCHES "^[^\n]*: give one number of ranks, from [^\n]*\n$")
  message(FATAL_ERROR "status ${status}; ${out}${error}")
endif()
