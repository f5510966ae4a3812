# looptorch_test_accelerator: the simulated accelerator, as objects: an archive would drop the initialisers that register it.
# One translation unit, for most of the work is LibTorch's headers. Position-independent, so without the precompiled header.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/accelerator/*.cpp)
list(FILTER sources EXCLUDE REGEX "listener\\.cpp$")
add_library(looptorch_test_accelerator OBJECT ${sources})
target_link_libraries(looptorch_test_accelerator PRIVATE looptorch::looptorch INTERFACE looptorch_test_support)
target_include_directories(looptorch_test_accelerator PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_compile_options(looptorch_test_accelerator PRIVATE -Wall -Wextra $<$<CONFIG:Release>:-O2>) # a third of -O0's time
set_target_properties(looptorch_test_accelerator PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0
                                                            POSITION_INDEPENDENT_CODE ON)

# accelerator_preloaded: the same for a program as it is, preloaded.
add_library(accelerator_preloaded MODULE support/preloaded.cpp)
target_include_directories(accelerator_preloaded PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_compile_options(accelerator_preloaded PRIVATE -Wall -Wextra)
target_sources(accelerator_preloaded PRIVATE $<TARGET_OBJECTS:looptorch_test_accelerator>)
target_link_libraries(accelerator_preloaded PRIVATE looptorch::looptorch) # not the tests' code, which has fixed addresses
