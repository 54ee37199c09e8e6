"""Tessera as a Conan package, built from the checkout that contains this file (docs/install.md).

    conan create packaging/conan -o "&:shared=True"

Tessera's dependencies come from the system's packages, not from Conan: scripts/install_deps.sh
installs them on Debian and Ubuntu.
"""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt

ROOT = os.path.join("..", "..")
SOURCES = ["CMakeLists.txt", "LICENSE", "bench/*", "cmake/*", "include/*", "kernels/*", "packaging/*", "src/*",
           "tools/*"]


class TesseraConan(ConanFile):
    name = "tessera"
    description = "Sharded training of neural networks (ZeRO, FSDP) for C++ programs"
    license = "Apache-2.0"
    topics = ("deep-learning", "distributed-training", "zero", "fsdp")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "fPIC": [True],  # the CUDA module, a shared library, contains a copy of the static one
        "tools": [True, False],
        "mpi": [True, False],
        "onednn": [True, False],
        "cuda": [True, False],
    }
    default_options = {
        "shared": False, "fPIC": True, "tools": False, "mpi": True, "onednn": True, "cuda": False,
    }

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, ROOT, "CMakeLists.txt"))
        self.version = re.search(r"project\(tessera VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, os.path.join(self.recipe_folder, ROOT), self.export_sources_folder)

    def system_requirements(self):
        packages = ["libeigen3-dev", "libfmt-dev", "nlohmann-json3-dev", "libxxhash-dev"]
        packages += ["libopenmpi-dev"] if self.options.mpi else []
        packages += ["libdnnl-dev"] if self.options.onednn else []
        packages += ["libcli11-dev"] if self.options.tools else []
        Apt(self).install(packages, check=True)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for option in ("mpi", "onednn", "cuda"):
            toolchain.cache_variables[f"TESSERA_{option.upper()}"] = "ON" if self.options.get_safe(option) else "OFF"
        toolchain.cache_variables["TESSERA_BUILD_TOOLS"] = bool(self.options.tools)
        toolchain.cache_variables["TESSERA_BUILD_TESTS"] = False
        toolchain.cache_variables["TESSERA_BUILD_EXAMPLES"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # CMake reads the files that Tessera itself installs.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "tessera")]
        self.cpp_info.libs = ["tessera"]
        self.cpp_info.system_libs = ["pthread", "dl"]
        if not self.options.shared:
            self.cpp_info.system_libs += ["mpi"] if self.options.mpi else []
            self.cpp_info.system_libs += ["dnnl", "gomp"] if self.options.onednn else []
