# The CUDA device, over the fake driver: what is of it alone, and what every device has to do.
find_package(Threads REQUIRED)
set(own_world ${PROJECT_SOURCE_DIR}/tests/unit/fakecuda/in_own_world.sh)

function(ull_conformance_cuda name)
  add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/conformance/${name}.c ${ARGN}
    $<TARGET_OBJECTS:policy> $<TARGET_OBJECTS:pool> $<TARGET_OBJECTS:device> $<TARGET_OBJECTS:base>)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/include
    $<TARGET_PROPERTY:policy,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(${name} PRIVATE cmocka Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(${name} fakecuda)
  add_test(NAME conformance.${name} COMMAND ${own_world} $<TARGET_FILE:${name}>)
  set_tests_properties(conformance.${name} PROPERTIES
    ENVIRONMENT "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/tests/fakecuda;TSAN_OPTIONS=atexit_sleep_ms=0"
    TIMEOUT 400) # its children are many, and each would wait a second at its end
endfunction()

ull_conformance_cuda(device_cuda)
add_test(NAME conformance.device_cuda.no_driver COMMAND $<TARGET_FILE:device_cuda> no-driver)
if(EXISTS ${PROJECT_SOURCE_DIR}/tests/conformance/device_suite.c)
  ull_conformance_cuda(suites_cuda $<TARGET_OBJECTS:conformance_suites>)
  # The same over a driver without virtual memory management.
  add_test(NAME conformance.suites_cuda.plain COMMAND ${own_world} $<TARGET_FILE:suites_cuda>)
  set_tests_properties(conformance.suites_cuda.plain PROPERTIES
    ENVIRONMENT "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/tests/fakecuda;ULLAGE_FAKE_VMM=0")
endif()
