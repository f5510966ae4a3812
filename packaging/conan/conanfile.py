"""looptorch as a Conan 2 package, made from the checkout that this file lies in: conan create packaging/conan"""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load

required_conan_version = ">=2.0"


class Looptorch(ConanFile):
    name = "looptorch"
    description = "Header-only C++20 training loops on LibTorch"
    license = "MIT"
    topics = ("machine-learning", "libtorch", "training", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "audio": [True, False],  # brings libsndfile, for looptorch::audio
        "libtorch": ["external", "conan"],  # found by CMAKE_PREFIX_PATH, or Conan Center's recipe
    }
    default_options = {"audio": False, "libtorch": "external"}
    no_copy_source = True

    @property
    def _checkout(self):
        return os.path.normpath(os.path.join(self.recipe_folder, "..", ".."))

    def set_version(self):
        header = load(self, os.path.join(self._checkout, "include", "looptorch", "version.hpp"))
        self.version = ".".join(re.findall(r"^#define LOOPTORCH_VERSION_[A-Z]+ (\d+)$", header, re.MULTILINE))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "packaging/cmake/*"):
            copy(self, pattern, src=self._checkout, dst=self.export_sources_folder)

    def requirements(self):
        visible = {"transitive_headers": True, "transitive_libs": True}
        if self.options.audio:
            self.requires("libsndfile/[>=1.2 <2]", **visible)
        if self.options.libtorch == "conan":
            self.requires("libtorch/[>=2.7 <3]", **visible)

    def package_id(self):
        self.info.clear()

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["LOOPTORCH_BUILD_TESTS"] = False
        toolchain.cache_variables["LOOPTORCH_BUILD_EXAMPLES"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # The package's own config finds LibTorch, wherever it is from; one that Conan wrote could not.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "looptorch")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
