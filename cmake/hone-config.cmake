# find_package(hone): the library as the target hone::hone.
include(${CMAKE_CURRENT_LIST_DIR}/hone-targets.cmake)
