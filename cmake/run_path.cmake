# Makes a module load the libraries that it was linked to (decision 16).

# The file that a program linked to `library` is to load, called as the program asks for it; empty if
# the program does not load it, but has a copy. Where there is no such file, the variable that
# `problem_name` names says why, unless it has something to say already.
function(tessera_loaded_file library result problem_name)
  if(library MATCHES "\\.a$")
    set(${result} "" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_READELF} -d ${library} OUTPUT_VARIABLE dynamic ERROR_QUIET)
  get_filename_component(name ${library} NAME)
  if(dynamic MATCHES "SONAME[^\n]*\\[([^]\n]+)\\]")
    set(name ${CMAKE_MATCH_1})
  endif()
  get_filename_component(real ${library} REALPATH)
  foreach(file ${library} ${real})
    get_filename_component(folder ${file} DIRECTORY)
    if(EXISTS ${folder}/${name})
      set(${result} ${folder}/${name} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} "" PARENT_SCOPE)
  if(NOT ${problem_name})
    set(${problem_name} "a program linked to ${library} asks for ${name}, which is not beside it: it could \
not be loaded from there" PARENT_SCOPE)
  endif()
endfunction()

# The first folder of one of `files` in which none of them finds another file of its name; empty if
# there is none.
function(tessera_first_folder files result)
  set(${result} "" PARENT_SCOPE)
  foreach(file IN LISTS files)
    get_filename_component(folder ${file} DIRECTORY)
    set(hides "")
    foreach(other IN LISTS files)
      get_filename_component(name ${other} NAME)
      get_filename_component(wanted ${other} REALPATH)
      get_filename_component(found ${folder}/${name} REALPATH)
      if(EXISTS ${found} AND NOT found STREQUAL wanted)
        set(hides ${other})
      endif()
    endforeach()
    if(NOT hides)
      set(${result} ${folder} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# The folders of `files`, in an order in which each is the first of its name that is found. Where there
# is no such order, the variable that `problem_name` names says why, unless it has something to say
# already.
function(tessera_run_path files result problem_name)
  set(${result} "" PARENT_SCOPE)
  set(folders "")
  while(files)
    tessera_first_folder("${files}" folder)
    if(NOT folder)
      list(JOIN files ", " text)
      if(NOT ${problem_name})
        set(${problem_name} "no run path leads to all of ${text}: their folders have other files of each \
other's names, so that one of those would be loaded; configure with libraries of one installation \
(TESSERA_NCCL_LIBRARY, TESSERA_CUDNN_LIBRARY)" PARENT_SCOPE)
      endif()
      return()
    endif()
    list(APPEND folders ${folder})
    set(rest "")
    foreach(file IN LISTS files)
      get_filename_component(own ${file} DIRECTORY)
      if(NOT own STREQUAL folder)
        list(APPEND rest ${file})
      endif()
    endforeach()
    set(files ${rest})
  endwhile()
  set(${result} "${folders}" PARENT_SCOPE)
endfunction()

# Lets `target`, built or installed, load what lies in these folders (tessera_run_path), whatever else
# of the same names is on the machine. It has its final run path from the start: one that is to be replaced when
# it is installed is padded with empty entries, which name the current folder. LD_LIBRARY_PATH goes
# before it.
function(tessera_load_from target)
  set_target_properties(${target} PROPERTIES
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${ARGN}" INSTALL_RPATH_USE_LINK_PATH ON)
  target_link_options(${target} PRIVATE -Wl,--enable-new-dtags)
endfunction()
