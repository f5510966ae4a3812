"""Stands in for Conan Center's libtorch: the files of LOOPTORCH_TORCH_PREFIX, behind the names of that recipe."""

import os

from conan import ConanFile


class LibtorchStandIn(ConanFile):
    name = "libtorch"
    version = "2.9.1"
    package_type = "shared-library"
    settings = "os", "compiler", "build_type", "arch"

    def package_id(self):
        self.info.clear()

    def package(self):
        with open(os.path.join(self.package_folder, "prefix"), "w") as file:
            file.write(os.environ["LOOPTORCH_TORCH_PREFIX"])

    def package_info(self):
        with open(os.path.join(self.package_folder, "prefix")) as file:
            prefix = file.read()
        self.cpp_info.set_property("cmake_file_name", "Torch")
        self.cpp_info.set_property("cmake_additional_variables_prefixes", ["TORCH"])
        below = None
        for name in ("c10", "torch_cpu", "torch"):
            component = self.cpp_info.components[name]
            component.libs = [name]
            component.libdirs = [os.path.join(prefix, "lib")]
            component.includedirs = []
            component.requires = [below] if below else []
            below = name
        include = os.path.join(prefix, "include")
        self.cpp_info.components["torch"].includedirs = [os.path.join(include, "torch", "csrc", "api", "include"), include]
        self.cpp_info.components["torch"].exelinkflags = ["-Wl,-rpath," + os.path.join(prefix, "lib")]
