# Compiles each header of FOLDER, or the one header that it is, alone and twice included. Needs
# FOLDER, CXX, and INCLUDES, the folders to search, separated by commas. SYSTEM_INCLUDES, of others'
# headers, ARCH, the processor to compile for, and SKIP, an expression for headers to leave out, may
# be given.
cmake_minimum_required(VERSION 3.22)

string(REPLACE "," ";" INCLUDES "${INCLUDES}")
string(REPLACE "," ";" SYSTEM_INCLUDES "${SYSTEM_INCLUDES}")
# A header that one source includes for its functions leaves them unused here.
set(flags -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Wno-unused-function -DFMT_HEADER_ONLY)
if(ARCH)
  list(APPEND flags -march=${ARCH})
endif()
foreach(include ${INCLUDES})
  list(APPEND flags -I ${include})
endforeach()
foreach(include ${SYSTEM_INCLUDES})
  list(APPEND flags -isystem ${include})
endforeach()

if(IS_DIRECTORY ${FOLDER})
  file(GLOB_RECURSE headers ${FOLDER}/*.hpp)
else()
  set(headers ${FOLDER})
endif()
if(SKIP)
  list(FILTER headers EXCLUDE REGEX "${SKIP}")
endif()
if(NOT headers)
  message(FATAL_ERROR "no headers in ${FOLDER}")
endif()
foreach(header ${headers})
  execute_process(
    COMMAND ${CXX} ${flags} -include ${header} -include ${header} -x c++ /dev/null
    RESULT_VARIABLE status ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(SEND_ERROR "${header} does not compile alone:\n${errors}")
  endif()
endforeach()
list(LENGTH headers count)
message(STATUS "${count} headers compile alone")
