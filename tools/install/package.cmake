# The Debian package: one for everything, as what is in it changes together.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lipgrad)
set(CPACK_PACKAGE_CONTACT "The lipgrad authors <lipgrad@localhost>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
  GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Trains deep graph attention networks whose attention stays Lipschitz. Holds the
 program lipgrad, the C++ library and what is needed to build with it.")
# It depends on what program and library are linked with; a static library must find it all again.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(LIPGRAD_CUDA STREQUAL "ON")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)  # the CUDA Toolkit's libraries are in no Debian package
endif()
if(lipgrad_type STREQUAL "STATIC_LIBRARY")
  set(CPACK_DEBIAN_PACKAGE_DEPENDS
    "libopenblas-dev, libhwy-dev, libfmt-dev, zlib1g-dev, libprotobuf-dev, pkg-config")
  if(LIPGRAD_WITH_METIS)
    string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", libmetis-dev")
  endif()
  foreach(format JPEG PNG)
    if(LIPGRAD_WITH_${format})
      string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", ${lipgrad_package_${format}}")
    endif()
  endforeach()
endif()
include(CPack)
