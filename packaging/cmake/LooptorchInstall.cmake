# Installs headers, targets, package config and licence. Nothing depends on the architecture, hence share/looptorch.
# looptorch::audio and looptorch::distributed are exported separately, since a consumer may have no libsndfile and no Gloo.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_dir ${CMAKE_INSTALL_DATADIR}/looptorch)

install(TARGETS looptorch EXPORT looptorchTargets FILE_SET HEADERS)
install(EXPORT looptorchTargets NAMESPACE looptorch:: DESTINATION ${package_dir})
if(TARGET looptorch_audio)
  install(TARGETS looptorch_audio EXPORT looptorchAudioTargets FILE_SET HEADERS)
  install(EXPORT looptorchAudioTargets NAMESPACE looptorch:: DESTINATION ${package_dir})
endif()
if(TARGET looptorch_distributed)
  install(TARGETS looptorch_distributed EXPORT looptorchDistributedTargets FILE_SET HEADERS)
  install(EXPORT looptorchDistributedTargets NAMESPACE looptorch:: DESTINATION ${package_dir})
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/looptorchConfig.cmake.in looptorchConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(looptorchConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/looptorchConfig.cmake ${PROJECT_BINARY_DIR}/looptorchConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/LooptorchTorch.cmake ${CMAKE_CURRENT_LIST_DIR}/LooptorchGloo.cmake
        DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/looptorch)
