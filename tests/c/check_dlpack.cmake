# Runs dlpack.py against LIBRARY with a Python that has NumPy: PYTHON if it has, else the system's.
cmake_minimum_required(VERSION 3.22)
foreach(python ${PYTHON} /usr/bin/python3)
  execute_process(COMMAND ${python} -c "import numpy; numpy.from_dlpack"
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(status EQUAL 0)
    execute_process(COMMAND ${python} -B ${CMAKE_CURRENT_LIST_DIR}/dlpack.py ${LIBRARY}
      RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "dlpack.py ended with status ${status}")
    endif()
    return()
  endif()
endforeach()
message("skipped: no Python here has NumPy with from_dlpack (scripts/install_deps.sh --tests installs it)")
