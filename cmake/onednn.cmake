# oneDNN, as the target tessera_onednn: sets TESSERA_HAS_ONEDNN and TESSERA_ONEDNN_LIBRARIES.
# Searches for its files: Debian's CMake package also requires OpenCL's headers, which Tessera does
# not need.
set(TESSERA_HAS_ONEDNN OFF)
if(TESSERA_ONEDNN STREQUAL "OFF")
  return()
endif()

include(CheckCXXSourceCompiles)
find_path(TESSERA_ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp)
find_library(TESSERA_ONEDNN_LIBRARY dnnl)
mark_as_advanced(TESSERA_ONEDNN_INCLUDE TESSERA_ONEDNN_LIBRARY)

set(onednn_problem "")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(onednn_problem "oneDNN is used only on x86-64, and this build is for ${CMAKE_SYSTEM_PROCESSOR}")
elseif(NOT TESSERA_ONEDNN_INCLUDE OR NOT TESSERA_ONEDNN_LIBRARY)
  set(onednn_problem "oneDNN was not found; install it (Debian and Ubuntu: libdnnl-dev)")
else()
  # Streams bring their own threads; the OpenMP of Debian's oneDNN is limited to one thread.
  set(CMAKE_REQUIRED_INCLUDES ${TESSERA_ONEDNN_INCLUDE})
  set(CMAKE_REQUIRED_LIBRARIES ${TESSERA_ONEDNN_LIBRARY})
  check_cxx_source_compiles("
    #include <oneapi/dnnl/dnnl.hpp>
    #if DNNL_CPU_RUNTIME != DNNL_RUNTIME_SEQ
    #error not sequential
    #endif
    int main() { return dnnl_version()->major; }" TESSERA_ONEDNN_IS_SEQUENTIAL)
  if(NOT TESSERA_ONEDNN_IS_SEQUENTIAL)
    list(APPEND CMAKE_REQUIRED_LIBRARIES gomp)
    check_cxx_source_compiles("
      #include <oneapi/dnnl/dnnl.hpp>
      #if DNNL_CPU_RUNTIME != DNNL_RUNTIME_OMP || DNNL_VERSION_MAJOR < 2
      #error another runtime
      #endif
      extern \"C\" void omp_set_num_threads(int);
      int main() { omp_set_num_threads(1); return dnnl_version()->major; }" TESSERA_ONEDNN_USES_GOMP)
    if(NOT TESSERA_ONEDNN_USES_GOMP)
      set(onednn_problem "the oneDNN in ${TESSERA_ONEDNN_LIBRARY} cannot be used: version 2 or 3 is \
needed, sequential or with GNU OpenMP (libgomp)")
    endif()
  endif()
  set(TESSERA_ONEDNN_LIBRARIES ${CMAKE_REQUIRED_LIBRARIES})
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()

if(NOT onednn_problem)
  set(TESSERA_HAS_ONEDNN ON)
  add_library(tessera_onednn INTERFACE)
  target_include_directories(tessera_onednn SYSTEM INTERFACE ${TESSERA_ONEDNN_INCLUDE})
  target_link_libraries(tessera_onednn INTERFACE ${TESSERA_ONEDNN_LIBRARIES})
elseif(NOT TESSERA_ONEDNN STREQUAL "AUTO")
  message(FATAL_ERROR "TESSERA_ONEDNN is ${TESSERA_ONEDNN}, but ${onednn_problem}. To build without oneDNN, \
configure with -DTESSERA_ONEDNN=OFF")
else()
  message(STATUS "Without oneDNN: ${onednn_problem}")
endif()
