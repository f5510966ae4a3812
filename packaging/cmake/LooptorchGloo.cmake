# Finds Gloo's headers, which LibTorch's header of its Gloo backend includes and LibTorch's package lacks: sets
# looptorch_gloo_found, and looptorch_gloo_folders to what compilers do not search anyway. The library itself is in LibTorch.
# Debian has the headers in libgloo-dev.
find_path(looptorch_gloo_headers gloo/algorithm.h NO_CACHE)
string(REGEX REPLACE "(.)/$" "\\1" looptorch_gloo_headers "${looptorch_gloo_headers}") # CMake says /usr/include/
set(looptorch_gloo_found FALSE)
set(looptorch_gloo_folders)
if(looptorch_gloo_headers)
  set(looptorch_gloo_found TRUE)
  set(looptorch_gloo_folders ${looptorch_gloo_headers})
  list(REMOVE_ITEM looptorch_gloo_folders /usr/include ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
endif()
unset(looptorch_gloo_headers)
