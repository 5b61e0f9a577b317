# install.cmake: what `cmake --install` puts where. The programs and libraries add themselves.
#
# Included right after GNUInstallDirs. The preload libraries belong to the program, which looks for
# them in ../lib/ullage beside its folder: so it is plain `lib` also where libraries for linking go to
# lib64 or lib/x86_64-linux-gnu.
set(CMAKE_INSTALL_LIBDIR lib)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ullage
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

configure_file(${CMAKE_CURRENT_LIST_DIR}/ullage.pc.in ullage.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ullage.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES ${PROJECT_SOURCE_DIR}/docs/man/ullage.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_SOURCE_DIR}/completions/ullage.bash
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions RENAME ullage)

set(docs ${CMAKE_INSTALL_DATAROOTDIR}/doc/ullage)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/ARCHITECTURE.md
              ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/SECURITY.md
              ${PROJECT_SOURCE_DIR}/LICENSE
        DESTINATION ${docs})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${docs}/docs
        FILES_MATCHING PATTERN "*.md" PATTERN man EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${docs})
