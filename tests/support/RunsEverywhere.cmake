# everywhere: the unit tests whose first line says "Runs on every device" (place.hpp). unit/ compiles them once, for
# unit_everywhere and for device_tests; device/mutants/ compiles them again.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS unit/*_test.cpp)
set(everywhere)
foreach(source IN LISTS sources)
  file(STRINGS ${source} runs_everywhere LIMIT_COUNT 1 REGEX "^// Runs on every device\\.$")
  if(runs_everywhere)
    list(APPEND everywhere ${source})
  endif()
endforeach()
