# Makes a module load the libraries that it was linked to (decision 16).

# Sets `result` to the file that a program linked to `library` will load, under the name that the
# program requests; to nothing if the library is static. If there is no such file, sets the variable
# named by `problem_name` to the reason, unless it already has one.
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
    set(${problem_name} "a program linked to ${library} asks for ${name}, which is not beside it, so it \
cannot be loaded" PARENT_SCOPE)
  endif()
endfunction()

# Sets `result` to the first folder of `files` that has no different file with the name of one of
# `files`; to nothing if there is none.
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

# Sets `result` to the folders of `files`, in an order in which each file is the first one found under
# its name. If there is no such order, sets the variable named by `problem_name` to the reason, unless
# it already has one.
function(tessera_run_path files result problem_name)
  set(${result} "" PARENT_SCOPE)
  set(folders "")
  while(files)
    tessera_first_folder("${files}" folder)
    if(NOT folder)
      list(JOIN files ", " text)
      if(NOT ${problem_name})
        set(${problem_name} "no run path leads to all of ${text}: each folder also has another file with \
the name of one of them, which would be loaded instead; configure with libraries of one installation \
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

# Makes `target`, built or installed, load the libraries in these folders (tessera_run_path), even if
# the machine has others of the same names. The target has its final run path from the start: a run
# path that is replaced on installation would be padded with empty entries, which name the current
# folder. LD_LIBRARY_PATH takes precedence.
function(tessera_load_from target)
  set_target_properties(${target} PROPERTIES
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${ARGN}" INSTALL_RPATH_USE_LINK_PATH ON)
  target_link_options(${target} PRIVATE -Wl,--enable-new-dtags)
endfunction()
