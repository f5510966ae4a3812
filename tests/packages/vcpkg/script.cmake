# Runs vcpkg's port of looptorch in script mode, with stand-ins for vcpkg's helpers, and looks at what it packages.
#   cmake -DPORT=looptorch -DPORT_FOLDER=... -DWORK=... -DGENERATOR=... -DCOMPILER=... -DEXPECTED_VERSION=... -P script.cmake
cmake_minimum_required(VERSION 3.25)
set(CURRENT_PACKAGES_DIR "${WORK}/packages/looptorch")
set(CURRENT_BUILDTREES_DIR "${WORK}/buildtrees/looptorch")
file(REMOVE_RECURSE "${WORK}")

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  if(arg_UNPARSED_ARGUMENTS OR NOT EXISTS "${arg_SOURCE_PATH}/CMakeLists.txt")
    message(FATAL_ERROR "vcpkg_cmake_configure(${ARGV})")
  endif()
  # Without a LibTorch and a libsndfile: vcpkg builds a port before what it does not depend on.
  run("${CMAKE_COMMAND}" -E env --unset=CMAKE_PREFIX_PATH --unset=Torch_DIR
      "${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${CURRENT_BUILDTREES_DIR}" -G "${GENERATOR}"
      -DCMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" ${arg_OPTIONS})
endfunction()

function(vcpkg_cmake_install)
  run("${CMAKE_COMMAND}" --install "${CURRENT_BUILDTREES_DIR}")
endfunction()

function(vcpkg_cmake_config_fixup) # what it takes for granted
  if(ARGV OR NOT EXISTS "${CURRENT_PACKAGES_DIR}/share/${PORT}/${PORT}Config.cmake")
    message(FATAL_ERROR "vcpkg_cmake_config_fixup(${ARGV}): no config in share/${PORT}")
  endif()
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  file(INSTALL "${arg_FILE_LIST}" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
  file(RENAME "${CURRENT_PACKAGES_DIR}/share/${PORT}/LICENSE" "${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright")
endfunction()

set(CMAKE_CURRENT_LIST_DIR "${PORT_FOLDER}")
include("${PORT_FOLDER}/portfile.cmake")

# vcpkg's own checks after a build, as far as they concern headers.
foreach(file include/looptorch/trainer.hpp share/looptorch/copyright share/looptorch/usage
        share/looptorch/looptorchConfig.cmake share/looptorch/looptorchAudioTargets.cmake)
  if(NOT EXISTS "${CURRENT_PACKAGES_DIR}/${file}")
    message(FATAL_ERROR "the port packages no ${file}")
  endif()
endforeach()
file(GLOB folders RELATIVE "${CURRENT_PACKAGES_DIR}" "${CURRENT_PACKAGES_DIR}/*" "${CURRENT_PACKAGES_DIR}/share/*")
set(expected include share share/looptorch)
if(NOT folders STREQUAL expected)
  message(FATAL_ERROR "the port packages ${folders}, not ${expected}")
endif()
file(GLOB_RECURSE files LIST_DIRECTORIES true "${CURRENT_PACKAGES_DIR}/include/*")
foreach(file IN LISTS files)
  if(IS_DIRECTORY "${file}")
    file(GLOB inside "${file}/*")
    if(NOT inside)
      message(FATAL_ERROR "the port packages an empty folder: ${file}")
    endif()
  endif()
endforeach()

file(READ "${PORT_FOLDER}/vcpkg.json" manifest)
string(JSON version GET "${manifest}" version-semver)
if(NOT version STREQUAL EXPECTED_VERSION)
  message(FATAL_ERROR "vcpkg.json has version ${version}, CMake has ${EXPECTED_VERSION}")
endif()
string(JSON features LENGTH "${manifest}" features)
foreach(feature audio libtorch)
  string(JSON first GET "${manifest}" features ${feature} dependencies 0)
  if(NOT first MATCHES "^(libsndfile|libtorch)$")
    message(FATAL_ERROR "feature ${feature} depends on ${first}")
  endif()
endforeach()
