# The list of refused pairs as docs/policies.md has it, and the names of the policies' headers, for policy_pairs_test.cpp.
set(page ${PROJECT_SOURCE_DIR}/docs/policies.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
file(READ ${page} text)
string(FIND "${text}" "<!-- pairs -->\n" begin)
string(FIND "${text}" "<!-- end of pairs -->" end)
if(begin EQUAL -1 OR end EQUAL -1)
  message(FATAL_ERROR "docs/policies.md has no list between <!-- pairs --> and <!-- end of pairs -->")
endif()
math(EXPR begin "${begin} + 15")
math(EXPR length "${end} - ${begin}")
string(SUBSTRING "${text}" ${begin} ${length} table)

file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/looptorch/policies
     ${PROJECT_SOURCE_DIR}/include/looptorch/policies/*.hpp)
list(REMOVE_ITEM headers declared.hpp) # has no policy of its own
string(REPLACE ".hpp" "" headers "${headers}")
string(REPLACE ";" "\", \"" headers "${headers}")
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/policy_pairs_documented.hpp @ONLY
     CONTENT "#pragma once
#include <string_view>
inline constexpr std::string_view kDocumentedPairs = R\"pairs(@table@)pairs\";
inline constexpr std::string_view kPolicyHeaders[] = {\"@headers@\"};
")

add_executable(print_policy_pairs EXCLUDE_FROM_ALL write_policy_pairs.cpp)
target_link_libraries(print_policy_pairs PRIVATE looptorch_test_support)
target_precompile_headers(print_policy_pairs REUSE_FROM looptorch_precompiled)
target_compile_options(print_policy_pairs PRIVATE -Wall -Wextra)
add_custom_target(write_policy_pairs COMMAND print_policy_pairs ${page} VERBATIM)
