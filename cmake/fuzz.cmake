# libFuzzer, if clang's sanitizers include it: sets TESSERA_HAS_LIBFUZZER. Without it the targets of
# tests/fuzz only replay their seeds.
set(TESSERA_HAS_LIBFUZZER OFF)
if(TESSERA_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND TESSERA_BUILD_TESTS)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS "-fsanitize=fuzzer")
  check_cxx_source_compiles(
    "extern \"C\" int LLVMFuzzerTestOneInput(const unsigned char*, decltype(sizeof 0)) { return 0; }"
    TESSERA_LINKS_LIBFUZZER)
  unset(CMAKE_REQUIRED_FLAGS)
  set(TESSERA_HAS_LIBFUZZER ${TESSERA_LINKS_LIBFUZZER})
endif()

# Instruments the layers that parse, so that a fuzzer sees which inputs reach new code. Call it when
# the target's sources are complete: it instruments whole unity sources, which adds no compilation.
function(tessera_show_fuzzers target)
  if(NOT TESSERA_HAS_LIBFUZZER)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(source MATCHES "/src[/_](base|checkpoint|comm|data|profile|world)[/_]")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -fsanitize=fuzzer-no-link)
    endif()
  endforeach()
endfunction()
