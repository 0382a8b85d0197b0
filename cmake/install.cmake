# SPDX-License-Identifier: Apache-2.0
# make install: libraries, headers, program, pkg-config files and CMake package.
include(CMakePackageConfigHelpers)

install(TARGETS freetoken_static freetoken_shared EXPORT freetoken_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/freetoken/freetoken.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/freetoken)
if(TARGET freetoken)
  install(TARGETS freetoken RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# A set of its own: who uses the engine alone need not have the libraries of pictures and sounds.
if(TARGET freetoken_media)
  install(TARGETS freetoken_media EXPORT freetoken_media_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES include/freetoken/media.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/freetoken)
  install(EXPORT freetoken_media_targets NAMESPACE freetoken::
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/freetoken)
endif()
install(EXPORT freetoken_targets NAMESPACE freetoken:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/freetoken)
configure_package_config_file(cmake/freetoken-config.cmake.in freetoken-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/freetoken)
write_basic_package_version_file(freetoken-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/freetoken-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/freetoken-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/freetoken)
# The prefix is found from where the file lies, so that the installed tree may be moved.
file(RELATIVE_PATH pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/freetoken.pc.in freetoken.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/freetoken.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET freetoken_media)
  configure_file(cmake/freetoken-media.pc.in freetoken-media.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/freetoken-media.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
