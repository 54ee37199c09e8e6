"""Builds and runs the outside project of Tessera's tests against the package."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout

TREE = os.path.join("..", "..", "..")


class TesseraTestPackage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "VirtualRunEnv"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["EXAMPLES"] = os.path.join(self.recipe_folder, TREE, "examples")
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder=os.path.join(TREE, "tests", "install", "stranger"))
        cmake.build()

    def test(self):
        if can_run(self):
            for program in ("stranger", "own_layers"):
                self.run(os.path.join(self.cpp.build.bindir, program), env="conanrun")
