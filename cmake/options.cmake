# Compile options of our own targets; never of a user's.
add_library(tessera_options INTERFACE)
target_compile_options(tessera_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  # Bits are part of the interface: the compiler fuses no multiply with an add on its own.
  -ffp-contract=off
  # Nothing reads errno or floating-point traps: square roots and selections become vector code.
  # Neither option changes a value.
  -fno-math-errno -fno-trapping-math
  # clang warns where it does not vectorise a loop that it was asked to (kernels/support/ivdep.hpp),
  # and of what std::stable_sort of libstdc++ 12 calls within; GCC sees other deprecated calls.
  $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-pass-failed>
  $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-deprecated-declarations>)
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
  # The address sanitizer sees accesses through null and beyond an object's end by itself. Of the
  # library's own code all else is checked; of what uses it (tests, tools, examples) arithmetic is:
  # checks of every pointer are half of what compiling those takes.
  if(TESSERA_SANITIZE MATCHES "undefined")
    set(library $<BOOL:$<TARGET_PROPERTY:TESSERA_LIBRARY>>)
    target_compile_options(tessera_options INTERFACE
      $<${instrumented}:-fno-sanitize=null$<COMMA>object-size>
      $<$<AND:${instrumented},$<NOT:${library}>>:-fno-sanitize=alignment$<COMMA>vptr$<COMMA>pointer-overflow$<COMMA>nonnull-attribute$<COMMA>returns-nonnull-attribute>)
  endif()
  # Instrumented code makes GCC 12 warn about the standard library's own variables.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(tessera_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(tessera_options INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()
string(APPEND CMAKE_CXX_FLAGS_RELEASE " -O3")
