# The C interface (include/tessera/c.h): libtessera_c.so, which exports only its functions, as the
# component `c` of the package. Its sources form an object library, so that tests can call them
# without the shared library.
option(TESSERA_C "Build the C interface" ON)
if(NOT TESSERA_C)
  return()
endif()
enable_language(C)

file(GLOB c_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/c/*.cpp)
add_library(tessera_c_objects OBJECT ${c_sources})
set_target_properties(tessera_c_objects PROPERTIES
  TESSERA_LIBRARY ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_compile_definitions(tessera_c_objects PRIVATE TESSERA_VERSION="${PROJECT_VERSION}")
target_include_directories(tessera_c_objects PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(tessera_c_objects PRIVATE tessera tessera_options tessera_fmt)
tessera_compile_together(tessera_c_objects)

# Sanitizer builds link the same objects into programs: a shared library would have a second copy of
# everything.
if(TESSERA_SANITIZE)
  return()
endif()
set(exports ${PROJECT_SOURCE_DIR}/src/c/exports.map)
add_library(tessera_c SHARED $<TARGET_OBJECTS:tessera_c_objects>)
add_library(tessera::tessera_c ALIAS tessera_c)
set_target_properties(tessera_c PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib LINK_DEPENDS ${exports})
target_include_directories(tessera_c INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(tessera_c PRIVATE tessera)
target_link_options(tessera_c PRIVATE -Wl,--version-script=${exports} -Wl,--no-undefined)

tessera_install_component(c TARGETS tessera_c)
tessera_install_pc(tessera-c DESCRIPTION "C interface of Tessera, sharded training of neural networks"
  LIBS tessera_c)
if(TESSERA_INSTALL)
  install(FILES ${PROJECT_SOURCE_DIR}/include/tessera/c.h
    ${PROJECT_SOURCE_DIR}/include/tessera/dlpack.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera COMPONENT development)
endif()
