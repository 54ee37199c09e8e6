# Compile options of our own targets; never of a user's.
add_library(tessera_options INTERFACE)
target_compile_options(tessera_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  # Bits are part of the interface: the compiler fuses no multiply with an add on its own.
  -ffp-contract=off
  # Nothing reads errno or floating-point traps: square roots and selections become vector code.
  # Neither option changes a value.
  -fno-math-errno -fno-trapping-math)
if(TESSERA_WERROR)
  target_compile_options(tessera_options INTERFACE -Werror)
endif()
if(TESSERA_ARCH)
  target_compile_options(tessera_options INTERFACE -march=${TESSERA_ARCH})
endif()
if(TESSERA_SANITIZE)
  # All but targets with the property TESSERA_OUTSIDE, which look at a process from outside.
  set(instrumented $<NOT:$<BOOL:$<TARGET_PROPERTY:TESSERA_OUTSIDE>>>)
  target_compile_options(tessera_options INTERFACE
    $<${instrumented}:-fsanitize=${TESSERA_SANITIZE}> -fno-omit-frame-pointer
    $<${instrumented}:-fno-sanitize-recover=all>)
  # Instrumented code makes GCC 12 warn about the standard library's own variables.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(tessera_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(tessera_options INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()
string(APPEND CMAKE_CXX_FLAGS_RELEASE " -O3")
