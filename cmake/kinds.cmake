# Static or shared: BUILD_SHARED_LIBS decides what `tessera` is. If the other kind is needed, it is
# linked from the same objects, as tessera_static or tessera_shared. The CUDA module copies the code
# that it needs from the static kind, which TESSERA_ARCHIVE names.
set(TESSERA_ARCHIVE tessera)
if(BUILD_SHARED_LIBS)
  set(TESSERA_ARCHIVE tessera_static)
endif()

# Before 1.0 a minor version may change the interface: libtessera.so.0.1.
set(TESSERA_SOVERSION ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(TESSERA_SOVERSION 0.${PROJECT_VERSION_MINOR})
endif()

# Sets the names of `target`; a shared library gets versioned names, and binds its calls to its own
# functions.
function(tessera_version_library target)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME tessera DEFINE_SYMBOL ""
    VERSION ${PROJECT_VERSION} SOVERSION ${TESSERA_SOVERSION})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)
  endif()
endfunction()
tessera_version_library(tessera)

# Lets `target`, installed in `folder`, find the shared libraries beside it, even if the copy is
# moved.
function(tessera_find_beside target folder)
  if(BUILD_SHARED_LIBS AND NOT IS_ABSOLUTE "${folder}" AND NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    file(RELATIVE_PATH libdir /${folder} /${CMAKE_INSTALL_LIBDIR})
    set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH "\$ORIGIN/${libdir}")
  endif()
endfunction()

# Adds the other kind once `tessera` is complete. Sets tessera_other_kind to its target if it is to
# be installed.
function(tessera_add_other_kind)
  set(tessera_other_kind "" PARENT_SCOPE)
  if(BUILD_SHARED_LIBS AND (TESSERA_BOTH_KINDS OR TESSERA_HAS_CUDA OR TESSERA_CUDA_INCLUDES))
    set(other tessera_static)
    add_library(${other} STATIC $<TARGET_OBJECTS:tessera>)
  elseif(NOT BUILD_SHARED_LIBS AND TESSERA_BOTH_KINDS)
    set(other tessera_shared)
    add_library(${other} SHARED $<TARGET_OBJECTS:tessera>)
  else()
    return()
  endif()
  add_library(tessera::${other} ALIAS ${other})
  foreach(property INTERFACE_INCLUDE_DIRECTORIES INTERFACE_COMPILE_FEATURES)
    get_target_property(value tessera ${property})
    set_property(TARGET ${other} PROPERTY ${property} ${value})
  endforeach()
  get_target_property(libraries tessera LINK_LIBRARIES)
  target_link_libraries(${other} PUBLIC Threads::Threads PRIVATE ${libraries})
  tessera_version_library(${other})
  if(TESSERA_BOTH_KINDS)
    set(tessera_other_kind ${other} PARENT_SCOPE)
  endif()
endfunction()
