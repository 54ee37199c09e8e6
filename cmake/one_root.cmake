# Finds a library together with its header: two installations may have two versions.

# Sets `result` to the installation of `folder`, a folder of headers or libraries: /usr for
# /usr/include and /usr/lib/x86_64-linux-gnu.
function(tessera_root_of folder result)
  get_filename_component(root "${folder}" REALPATH)
  string(REGEX REPLACE "/(include|lib|lib32|lib64)(/[^/]+-linux-gnu[^/]*)?$" "" root "${root}")
  string(REGEX REPLACE "/targets/[^/]+$" "" root "${root}")  # of a CUDA toolkit
  set(${result} "${root}" PARENT_SCOPE)
endfunction()

# Finds HEADER and a library called one of NAMES, as the cache variables TESSERA_<what>_INCLUDE and
# TESSERA_<what>_LIBRARY, in the first installation that has both. It searches the installations
# that the user prefers (CMAKE_PREFIX_PATH), then ROOTS, then the system. A variable that is already
# set stays, and the other is first searched beside it. If no installation has both, each is taken
# from wherever it is found.
function(tessera_find_in_one_root what)
  cmake_parse_arguments(arg "" "HEADER" "NAMES;ROOTS" ${ARGN})
  set(include TESSERA_${what}_INCLUDE)
  set(library TESSERA_${what}_LIBRARY)
  set(include_folders include)
  set(library_folders lib lib64)
  if(CMAKE_LIBRARY_ARCHITECTURE)
    list(APPEND include_folders include/${CMAKE_LIBRARY_ARCHITECTURE})
    list(APPEND library_folders lib/${CMAKE_LIBRARY_ARCHITECTURE})
  endif()
  if(NOT ${include} AND NOT ${library})
    string(REPLACE ":" ";" preferred "$ENV{CMAKE_PREFIX_PATH}")
    foreach(root IN LISTS CMAKE_PREFIX_PATH preferred arg_ROOTS CMAKE_SYSTEM_PREFIX_PATH)
      unset(folder)
      unset(file)
      find_path(folder ${arg_HEADER} PATHS ${root} PATH_SUFFIXES ${include_folders}
        NO_DEFAULT_PATH NO_CACHE)
      find_library(file NAMES ${arg_NAMES} NAMES_PER_DIR PATHS ${root}
        PATH_SUFFIXES ${library_folders} NO_DEFAULT_PATH NO_CACHE)
      if(folder AND file)
        set(${include} ${folder} CACHE PATH "Folder of ${arg_HEADER}" FORCE)
        set(${library} ${file} CACHE FILEPATH "The library of ${arg_HEADER}" FORCE)
        break()
      endif()
    endforeach()
  endif()
  set(beside "")
  if(${library})
    get_filename_component(folder ${${library}} DIRECTORY)
    tessera_root_of(${folder} beside)
  endif()
  find_path(${include} ${arg_HEADER} HINTS ${beside} ${arg_ROOTS} PATH_SUFFIXES ${include_folders})
  if(${include})
    tessera_root_of(${${include}} beside)
  endif()
  # Tries all names in each folder: otherwise a system library with the first name would precede a
  # wheel, where only the second name exists.
  find_library(${library} NAMES ${arg_NAMES} NAMES_PER_DIR HINTS ${beside} ${arg_ROOTS}
    PATH_SUFFIXES ${library_folders})
  mark_as_advanced(${include} ${library})
endfunction()

# Warns if the headers in `folder` and `library` come from two installations; `how` says how to fix
# it.
function(tessera_warn_of_two_roots name folder library how)
  get_filename_component(library_folder ${library} DIRECTORY)
  tessera_root_of(${folder} root_of_headers)
  tessera_root_of(${library_folder} root_of_library)
  if(NOT root_of_headers STREQUAL root_of_library)
    message(WARNING "${name}: the headers in ${folder} and the library ${library} come from two "
      "installations and may differ in version; ${how}")
  endif()
endfunction()
