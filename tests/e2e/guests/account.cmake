# The guests of tests/e2e/account. They look at the fake cards' shared state themselves, so that what
# they compare with owes nothing to ullage.
find_package(Threads REQUIRED)

add_library(account_support OBJECT account.c)
target_include_directories(account_support PRIVATE
  ${PROJECT_SOURCE_DIR}/tests/fakecuda ${PROJECT_SOURCE_DIR}/tests/include
  ${PROJECT_SOURCE_DIR}/src/device)

foreach(name IN ITEMS account_kinds account_edge account_once account_scene account_share account_kill account_together)
  add_executable(${name} ${name}.c
    $<TARGET_OBJECTS:account_support> $<TARGET_OBJECTS:fakecuda_state>)
  ull_guest_setup(${name} LIBRARIES fakecuda Threads::Threads)
endforeach()
