# Installs the library and its components with their files for CMake and pkg-config. Each file belongs
# to one of CPack's groups of files (cmake/package.cmake): libraries, development, command, cuda, or a
# component's own group.

# Installs TARGETS as the component `name` of find_package(tessera COMPONENTS name), each as
# tessera::<its EXPORT_NAME>. DEPENDENCIES: lines of CMake that find its dependencies, for instance
# "find_dependency(Torch)". GROUP: the group of its libraries, if they belong to no package of
# Tessera's own. The library installs all headers below include/tessera.
function(tessera_install_component name)
  if(NOT TESSERA_INSTALL)
    return()
  endif()
  cmake_parse_arguments(arg "" "GROUP" "TARGETS;DEPENDENCIES" ${ARGN})
  set(group libraries)
  set(group_development development)
  if(arg_GROUP)
    set(group ${arg_GROUP})
    set(group_development ${arg_GROUP}-development)
  endif()
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
  foreach(target IN LISTS arg_TARGETS)
    tessera_find_beside(${target} ${CMAKE_INSTALL_LIBDIR})
  endforeach()
  install(TARGETS ${arg_TARGETS} EXPORT tessera-${name}-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${group_development}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
      COMPONENT ${group} NAMELINK_COMPONENT ${group_development})
  install(EXPORT tessera-${name}-targets NAMESPACE tessera:: DESTINATION ${folder}
    COMPONENT ${group_development})
  if(arg_DEPENDENCIES)
    list(JOIN arg_DEPENDENCIES "\n" text)
    set(file ${PROJECT_BINARY_DIR}/tessera-${name}-dependencies.cmake)
    file(CONFIGURE OUTPUT ${file} @ONLY CONTENT "include(CMakeFindDependencyMacro)\n${text}\n")
    install(FILES ${file} DESTINATION ${folder} COMPONENT ${group_development})
  endif()
endfunction()

# Installs `name`.pc. A program links LIBS and the packages REQUIRES; a static link adds LIBS_PRIVATE
# and REQUIRES_PRIVATE. Library files may be given as paths. GROUP: as in tessera_install_component.
function(tessera_install_pc name)
  if(NOT TESSERA_INSTALL)
    return()
  endif()
  cmake_parse_arguments(arg "" "DESCRIPTION;GROUP"
    "CFLAGS;LIBS;LIBS_PRIVATE;REQUIRES;REQUIRES_PRIVATE" ${ARGN})
  set(group development)
  if(arg_GROUP)
    set(group ${arg_GROUP}-development)
  endif()
  # A copy may be moved, so its paths are relative to this file.
  set(prefix ${CMAKE_INSTALL_PREFIX})
  set(libdir ${CMAKE_INSTALL_FULL_LIBDIR})
  set(includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
  if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    string(REGEX REPLACE "[^/]+" ".." up ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
    set(prefix "\${pcfiledir}/${up}")
    set(libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  endif()
  if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
    set(includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
  endif()
  foreach(libs LIBS LIBS_PRIVATE)
    set(flags "")
    foreach(lib IN LISTS arg_${libs})
      tessera_link_flag(${lib} flag)
      list(APPEND flags ${flag})
    endforeach()
    list(REMOVE_DUPLICATES flags)
    list(JOIN flags " " ${libs})
  endforeach()
  set(lines "prefix=${prefix}" "libdir=${libdir}" "includedir=${includedir}" ""
    "Name: ${name}" "Description: ${arg_DESCRIPTION}" "URL: ${PROJECT_HOMEPAGE_URL}"
    "Version: ${PROJECT_VERSION}")
  list(JOIN arg_REQUIRES ", " requires)
  list(JOIN arg_REQUIRES_PRIVATE ", " requires_private)
  list(JOIN arg_CFLAGS " " cflags)
  foreach(line "Requires: ${requires}" "Requires.private: ${requires_private}"
          "Cflags: -I\${includedir} ${cflags}" "Libs: -L\${libdir} ${LIBS}"
          "Libs.private: ${LIBS_PRIVATE}")
    string(STRIP "${line}" line)
    if(NOT line MATCHES ":$")
      list(APPEND lines "${line}")
    endif()
  endforeach()
  list(JOIN lines "\n" text)
  string(REPLACE "URL: \n" "" text "${text}")
  set(file ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc)
  file(GENERATE OUTPUT ${file} CONTENT "${text}\n")
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${group})
endfunction()

# Sets `result` to the linker's argument for `library`: a name if the linker finds it without a path.
function(tessera_link_flag library result)
  set(flag ${library})
  if(IS_ABSOLUTE ${library})
    get_filename_component(folder ${library} DIRECTORY)
    if(folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES AND library MATCHES "/lib([^/]+)\\.(so|a)$")
      set(flag -l${CMAKE_MATCH_1})
    endif()
  elseif(NOT library MATCHES "^-")
    set(flag -l${library})
  endif()
  set(${result} ${flag} PARENT_SCOPE)
endfunction()
