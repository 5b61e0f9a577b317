# For the CMakeLists.txt of every folder of end-to-end tests: the guests, once, and how a test is
# registered. include(${PROJECT_SOURCE_DIR}/tests/e2e/guests.cmake)
if(NOT TARGET guest)
  add_subdirectory(${PROJECT_SOURCE_DIR}/tests/e2e/guests ${PROJECT_BINARY_DIR}/tests/e2e/guests)
endif()

# ull_e2e(NAME): NAME.sh of the folder that calls it becomes the ctest e2e/FOLDER/NAME.
function(ull_e2e name)
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  add_test(NAME e2e/${folder}/${name} COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/${name}.sh)
  set_tests_properties(e2e/${folder}/${name} PROPERTIES
    ENVIRONMENT BUILD_DIR=${PROJECT_BINARY_DIR} TIMEOUT 400 LABELS e2e)
  if(PYTHON3)
    get_filename_component(folder_of_python ${PYTHON3} DIRECTORY)
    set_tests_properties(e2e/${folder}/${name} PROPERTIES
      ENVIRONMENT_MODIFICATION PATH=path_list_prepend:${folder_of_python})
  endif()
endfunction()
