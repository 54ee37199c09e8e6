# SOURCE must fail to compile with a message that matches its line "// expected: REGEX", and must
# compile with MENDED defined, so that only the marked line fails. Needs SOURCE, CXX, INCLUDE.
cmake_minimum_required(VERSION 3.22)

file(STRINGS ${SOURCE} expected REGEX "^// expected: ")
string(REPLACE "// expected: " "" expected "${expected}")
if(expected STREQUAL "")
  message(FATAL_ERROR "${SOURCE} does not say what is expected")
endif()

# Quotes in messages depend on the language.
set(compile ${CMAKE_COMMAND} -E env LC_ALL=C ${CXX} -std=c++20 -fsyntax-only -I ${INCLUDE})
execute_process(COMMAND ${compile} -DMENDED ${SOURCE} RESULT_VARIABLE status ERROR_VARIABLE errors)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the mended form does not compile:\n${errors}")
endif()
execute_process(COMMAND ${compile} ${SOURCE} RESULT_VARIABLE status ERROR_VARIABLE errors)
if(status EQUAL 0)
  message(FATAL_ERROR "compiles, and must not")
endif()
if(NOT errors MATCHES "${expected}")
  message(FATAL_ERROR "fails for another reason than '${expected}':\n${errors}")
endif()
