# The CUDA device, over the fake driver.
find_package(Threads REQUIRED)
add_executable(device_cuda ${CMAKE_CURRENT_LIST_DIR}/device_cuda.c
  $<TARGET_OBJECTS:pool> $<TARGET_OBJECTS:device> $<TARGET_OBJECTS:base>)
target_include_directories(device_cuda PRIVATE ${PROJECT_SOURCE_DIR}/tests/include
  $<TARGET_PROPERTY:pool,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(device_cuda PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
add_dependencies(device_cuda fakecuda)
set(own_world ${PROJECT_SOURCE_DIR}/tests/unit/fakecuda/in_own_world.sh)
add_test(NAME conformance.device_cuda COMMAND ${own_world} $<TARGET_FILE:device_cuda>)
set_tests_properties(conformance.device_cuda PROPERTIES
  ENVIRONMENT LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/tests/fakecuda TIMEOUT 120)
add_test(NAME conformance.device_cuda.no_driver COMMAND $<TARGET_FILE:device_cuda> no-driver)
