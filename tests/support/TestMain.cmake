# looptorch_test_main: Catch2's main, compiled once.
# looptorch_test_support: what all tests link.
add_library(looptorch_test_main STATIC support/main.cpp)
looptorch_with_project_compiler(looptorch_test_main) # for the sanitized tests, too
target_include_directories(looptorch_test_main PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(looptorch_test_main
                      PUBLIC $<IF:$<TARGET_EXISTS:Catch2::Catch2WithMain>,Catch2::Catch2WithMain,Catch2::Catch2>)

add_library(looptorch_test_support INTERFACE)
target_link_libraries(looptorch_test_support INTERFACE looptorch_precompiled looptorch_test_main)
target_compile_definitions(looptorch_test_support INTERFACE LOOPTORCH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_compile_options(looptorch_test_support INTERFACE ${looptorch_test_options})
