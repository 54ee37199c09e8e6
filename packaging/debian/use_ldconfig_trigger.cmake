# CPack's packages of libraries call ldconfig in scripts; Debian's activate a trigger instead.
foreach(deb IN LISTS CPACK_PACKAGE_FILES)
  set(folder ${deb}.folder)
  execute_process(COMMAND dpkg-deb --control ${deb} ${folder} COMMAND_ERROR_IS_FATAL ANY)
  if(EXISTS ${folder}/postinst)
    file(REMOVE_RECURSE ${folder})
    execute_process(COMMAND dpkg-deb --raw-extract ${deb} ${folder} COMMAND_ERROR_IS_FATAL ANY)
    file(REMOVE ${folder}/DEBIAN/postinst ${folder}/DEBIAN/postrm)
    file(WRITE ${folder}/DEBIAN/triggers "activate-noawait ldconfig\n")
    execute_process(COMMAND dpkg-deb --root-owner-group --build ${folder} ${deb}
      OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  endif()
  file(REMOVE_RECURSE ${folder})
endforeach()
