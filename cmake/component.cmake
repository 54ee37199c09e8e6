# What is installed, for CMake and for pkg-config: the library, and components that are built beside
# it. Each file belongs to one of CPack's groups of files (cmake/package.cmake): libraries, development,
# command, cuda, or a group of a component's own.

# Installs TARGETS as the component `name` of find_package(tessera COMPONENTS name), each as
# tessera::<its EXPORT_NAME>. DEPENDENCIES: what is to be found first, as lines of CMake, for instance
# "find_dependency(Torch)". GROUP: of its libraries, where it is none of Tessera's own packages.
# Headers below include/tessera are installed with the library's.
function(tessera_install_component name)
  cmake_parse_arguments(arg "" "GROUP" "TARGETS;DEPENDENCIES" ${ARGN})
  set(group libraries)
  set(group_development development)
  if(arg_GROUP)
    set(group ${arg_GROUP})
    set(group_development ${arg_GROUP}-development)
  endif()
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
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

# Installs `name`.pc. LIBS is what a program is linked with, LIBS_PRIVATE what it needs besides if it
# is linked statically; REQUIRES and REQUIRES_PRIVATE are other packages, likewise. Files of libraries
# may be named by their paths. GROUP as above.
function(tessera_install_pc name)
  cmake_parse_arguments(arg "" "DESCRIPTION;GROUP"
    "CFLAGS;LIBS;LIBS_PRIVATE;REQUIRES;REQUIRES_PRIVATE" ${ARGN})
  set(group development)
  if(arg_GROUP)
    set(group ${arg_GROUP}-development)
  endif()
  # A copy may be moved: its paths start from where the file is.
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

# How a linker is told of `library`: by name where it looks for it by itself.
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
