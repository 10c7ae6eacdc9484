# What `cmake --install` puts where: the program with its manual page and completion, the library with its header, and what other
# builds find it by (pkg-config, find_package), the licence, the examples and the guides.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

target_include_directories(hone-shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(hone-shared PROPERTIES EXPORT_NAME hone)
if(HONE_PORTABLE)       # DT_RPATH holds for what the libraries next to the program need, too; DT_RUNPATH does not
    target_link_options(hone PRIVATE -Wl,--disable-new-dtags)
    target_link_options(hone-shared PRIVATE -Wl,--disable-new-dtags)
    set_target_properties(hone PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    set_target_properties(hone-shared PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()
install(TARGETS hone)
install(TARGETS hone-shared EXPORT hone-targets)
if(HONE_PLUGINS)
    install(TARGETS ${HONE_PLUGINS} DESTINATION ${CMAKE_INSTALL_LIBDIR}/hone)
endif()
install(FILES include/hone.h TYPE INCLUDE)

# The program prints both from its table of options.
foreach(page man completion)
    set(made ${PROJECT_BINARY_DIR}/${page})
    add_custom_command(OUTPUT ${made} COMMAND hone ${page} > ${made} DEPENDS hone VERBATIM)
    list(APPEND HONE_PAGES ${made})
endforeach()
add_custom_target(hone-pages ALL DEPENDS ${HONE_PAGES})
install(FILES ${PROJECT_BINARY_DIR}/man DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME hone.1)
install(FILES ${PROJECT_BINARY_DIR}/completion DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME hone)

file(RELATIVE_PATH HONE_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/hone.pc.in hone.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hone.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(HONE_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/hone)
install(EXPORT hone-targets NAMESPACE hone:: DESTINATION ${HONE_PACKAGE})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hone-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/hone-config.cmake ${PROJECT_BINARY_DIR}/hone-config-version.cmake DESTINATION ${HONE_PACKAGE})

file(GLOB HONE_GUIDES CONFIGURE_DEPENDS docs/*)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${HONE_GUIDES} DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(FILES examples/embed.c examples/embed.py DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
