# The adapter for libtorch modules: component `torch`. Sets TESSERA_HAS_TORCH.
set(TESSERA_HAS_TORCH OFF)
if(TESSERA_TORCH STREQUAL "OFF")
  return()
endif()
# Not in builds with a sanitizer. The thread sanitizer would report false races: it does not see the
# locks and atomics of libtorch, which is compiled without it (reference counts, autograd's queues,
# thread pools). The address sanitizer's build uses clang, which cannot compile Debian's libtorch
# (below): tests/torch compiles the adapter for it in the release build.
if(TESSERA_SANITIZE)
  return()
endif()

include(${PROJECT_SOURCE_DIR}/cmake/libtorch.cmake)
tessera_find_libtorch("" torch_problem)
if(NOT torch_problem AND CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND TESSERA_LIBTORCH_VERSION VERSION_LESS 2)
  # The headers use a std::vector of c10::IValue before that class is complete, which clang rejects
  # since C++20.
  set(torch_problem "clang does not compile the headers of libtorch ${TESSERA_LIBTORCH_VERSION} as C++20; \
compile with GCC, or name the folder of a newer libtorch with -DTESSERA_TORCH_ROOT")
endif()
if(torch_problem)
  if(NOT TESSERA_TORCH STREQUAL "AUTO")
    message(FATAL_ERROR "TESSERA_TORCH is ${TESSERA_TORCH}, but ${torch_problem}. To build without libtorch, \
configure with -DTESSERA_TORCH=OFF")
  endif()
  message(STATUS "Without the adapter for libtorch modules: ${torch_problem}")
  return()
endif()
set(TESSERA_HAS_TORCH ON)

file(GLOB tessera_torch_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/torch/*.cpp)
set(TESSERA_TORCH_HAS_CUDA OFF)
if(TESSERA_LIBTORCH_HAS_CUDA AND TESSERA_CUDA_RUNTIME_INCLUDE)
  set(TESSERA_TORCH_HAS_CUDA ON)
endif()
message(STATUS "Adapter for modules of libtorch ${TESSERA_LIBTORCH_VERSION}, \
on CUDA devices: ${TESSERA_TORCH_HAS_CUDA}")
if(NOT TESSERA_TORCH_HAS_CUDA)
  list(FILTER tessera_torch_sources EXCLUDE REGEX "/cuda_stream\\.cpp$")
else()
  list(FILTER tessera_torch_sources EXCLUDE REGEX "/no_cuda_stream\\.cpp$")
endif()
add_library(tessera_torch ${tessera_torch_sources})
add_library(tessera::torch ALIAS tessera_torch)
set_target_properties(tessera_torch PROPERTIES EXPORT_NAME torch)
target_include_directories(tessera_torch PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(tessera_torch PUBLIC tessera tessera::libtorch
  PRIVATE $<BUILD_INTERFACE:tessera_options>)
if(TESSERA_TORCH_HAS_CUDA)  # the headers of libtorch's CUDA part need the toolkit's
  target_include_directories(tessera_torch SYSTEM PRIVATE ${TESSERA_CUDA_RUNTIME_INCLUDE})
endif()
# Parsing libtorch's headers takes most of a source's compile time.
tessera_compile_together(tessera_torch MOST 20)

# A project that uses the component finds libtorch again.
tessera_install_component(torch TARGETS tessera_torch GROUP torch DEPENDENCIES
  "include(\${CMAKE_CURRENT_LIST_DIR}/tessera-libtorch.cmake)"
  "tessera_find_libtorch(\"${TESSERA_LIBTORCH_VERSION}\" tessera_torch_problem)"
  "if(tessera_torch_problem)"
  "  set(tessera_FOUND FALSE)"
  "  set(tessera_NOT_FOUND_MESSAGE \"\${tessera_torch_problem}\")"
  "endif()")
if(TESSERA_INSTALL)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/libtorch.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tessera RENAME tessera-libtorch.cmake
    COMPONENT torch-development)
endif()
