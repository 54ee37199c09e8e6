# Compile options of Tessera's targets, never of a user's.
add_library(tessera_options INTERFACE)
target_compile_options(tessera_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  # Bits are part of the interface: the compiler must not contract multiplications and additions.
  -ffp-contract=off
  # Nothing reads errno or floating-point traps, so square roots and selections can be vectorised.
  # Neither option changes a value.
  -fno-math-errno -fno-trapping-math
  # clang warns if it does not vectorise a loop as requested (kernels/support/ivdep.hpp), and about
  # calls inside libstdc++ 12's std::stable_sort; GCC warns about other deprecated calls.
  $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-pass-failed>
  $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-deprecated-declarations>)
if(TESSERA_WERROR)
  target_compile_options(tessera_options INTERFACE -Werror)
endif()
if(TESSERA_ARCH)
  target_compile_options(tessera_options INTERFACE -march=${TESSERA_ARCH})
endif()
if(TESSERA_SANITIZE)
  # All targets except those with the property TESSERA_OUTSIDE, which observe a process from
  # outside.
  set(instrumented $<NOT:$<BOOL:$<TARGET_PROPERTY:TESSERA_OUTSIDE>>>)
  target_compile_options(tessera_options INTERFACE
    $<${instrumented}:-fsanitize=${TESSERA_SANITIZE}> -fno-omit-frame-pointer
    $<${instrumented}:-fno-sanitize-recover=all>)
  # The address sanitizer already detects accesses through null and beyond an object's end. The
  # library's own code gets all other checks; code that uses it (tests, tools, examples) gets checks
  # of arithmetic only: checks of every pointer would double its compile time.
  if(TESSERA_SANITIZE MATCHES "undefined")
    set(library $<BOOL:$<TARGET_PROPERTY:TESSERA_LIBRARY>>)
    target_compile_options(tessera_options INTERFACE
      $<${instrumented}:-fno-sanitize=null$<COMMA>object-size>
      $<$<AND:${instrumented},$<NOT:${library}>>:-fno-sanitize=alignment$<COMMA>vptr$<COMMA>pointer-overflow$<COMMA>nonnull-attribute$<COMMA>returns-nonnull-attribute>)
  endif()
  # In instrumented code GCC 12 warns about the standard library's own variables.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(tessera_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(tessera_options INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()
string(APPEND CMAKE_CXX_FLAGS_RELEASE " -O3")
