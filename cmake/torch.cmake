# The adapter for libtorch modules: component `torch`. Sets TESSERA_HAS_TORCH.
set(TESSERA_HAS_TORCH OFF)
if(TESSERA_TORCH STREQUAL "OFF")
  return()
endif()
# libtorch's library is compiled without the thread sanitizer: what it orders by locks and atomics of
# its own (reference counts, autograd's queues, pools of threads) would be reported as races of the
# code around it. Ranks that are threads are ordered by the library, which is tested without it.
if(TESSERA_SANITIZE MATCHES "thread")
  return()
endif()

# Debian's libtorch-dev, or the folder `torch` of a Python wheel, or an unpacked libtorch.
find_path(TESSERA_TORCH_INCLUDE torch/csrc/api/include/torch/torch.h
  HINTS ${TESSERA_TORCH_ROOT} ENV TORCH_INSTALL_PREFIX PATH_SUFFIXES include)
foreach(library c10 torch torch_cpu)
  find_library(TESSERA_TORCH_${library} ${library} HINTS ${TESSERA_TORCH_ROOT} ENV TORCH_INSTALL_PREFIX
    PATH_SUFFIXES lib)
  mark_as_advanced(TESSERA_TORCH_${library})
endforeach()
mark_as_advanced(TESSERA_TORCH_INCLUDE)
if(NOT TESSERA_TORCH_INCLUDE OR NOT TESSERA_TORCH_c10 OR NOT TESSERA_TORCH_torch_cpu OR NOT TESSERA_TORCH_torch)
  if(NOT TESSERA_TORCH STREQUAL "AUTO")
    message(FATAL_ERROR "TESSERA_TORCH is ${TESSERA_TORCH}, but libtorch was not found; install it "
      "(Debian: libtorch-dev), name its folder with -DTESSERA_TORCH_ROOT, or configure with "
      "-DTESSERA_TORCH=OFF")
  endif()
  return()
endif()
set(TESSERA_HAS_TORCH ON)

add_library(tessera_libtorch INTERFACE)
target_include_directories(tessera_libtorch SYSTEM INTERFACE
  ${TESSERA_TORCH_INCLUDE} ${TESSERA_TORCH_INCLUDE}/torch/csrc/api/include)
target_link_libraries(tessera_libtorch INTERFACE
  ${TESSERA_TORCH_torch} ${TESSERA_TORCH_torch_cpu} ${TESSERA_TORCH_c10})

file(GLOB tessera_torch_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/torch/*.cpp)
add_library(tessera_torch ${tessera_torch_sources})
add_library(tessera::torch ALIAS tessera_torch)
target_include_directories(tessera_torch PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(tessera_torch PUBLIC tessera tessera_libtorch
  PRIVATE $<BUILD_INTERFACE:tessera_options>)
# libtorch's headers have names that hide others, and conversions.
target_compile_options(tessera_torch PRIVATE -Wno-shadow -Wno-conversion)
# libtorch's headers are most of what a source takes to compile.
tessera_compile_together(tessera_torch MOST 6)
