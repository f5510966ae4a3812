# shellcheck shell=bash disable=SC2154
# Writes a package config for Debian's libsndfile.

write_sndfile_config() {
  local folder=$cache/sndfile/lib/cmake/SndFile
  ! any_file {/usr,/usr/local}/{lib,lib/*}/cmake/SndFile/SndFileConfig.cmake || return 0
  if ! sndfile_config | cmp -s - "$folder/SndFileConfig.cmake"; then
    mkdir -p "$folder"
    sndfile_config >"$folder/partial"
    mv "$folder/partial" "$folder/SndFileConfig.cmake"
  fi
  add_prefix "$cache/sndfile"
}

sndfile_config() {
  cat <<'CMAKE'
# Writes the package config that upstream's libsndfile installs and Debian's package lacks.
find_library(SndFile_LIBRARY sndfile)
find_path(SndFile_INCLUDE_DIR sndfile.h)
mark_as_advanced(SndFile_LIBRARY SndFile_INCLUDE_DIR)
if(NOT SndFile_LIBRARY OR NOT SndFile_INCLUDE_DIR)
  set(SndFile_FOUND FALSE)
  set(SndFile_NOT_FOUND_MESSAGE "libsndfile's library or header is missing: install libsndfile1-dev")
  return()
endif()
if(NOT TARGET SndFile::sndfile)
  add_library(SndFile::sndfile UNKNOWN IMPORTED)
  set_target_properties(SndFile::sndfile PROPERTIES IMPORTED_LOCATION "${SndFile_LIBRARY}"
                                                    INTERFACE_INCLUDE_DIRECTORIES "${SndFile_INCLUDE_DIR}")
endif()
CMAKE
}
