# NOT TESTED: follows Spack's documentation; no test builds this recipe (docs/install.md).
# Builds from a checkout, with this folder as packages/tessera of a Spack repository:
#   spack dev-build --source-path CHECKOUT tessera@0.1.0
from spack.package import *


class Tessera(CMakePackage, CudaPackage):
    """Sharded training of neural networks (ZeRO, FSDP) for C++ programs."""

    license("Apache-2.0", checked_by="the Tessera authors")

    version("0.1.0")

    variant("shared", default=True, description="Build the shared library")
    variant("mpi", default=True, description="Jobs of processes that MPI starts")
    variant("onednn", default=False, description="Matrix products by oneDNN")
    variant("tools", default=True, description="The tessera command")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("eigen@3.4:")
    depends_on("fmt@8:")
    depends_on("nlohmann-json@3.10:")
    depends_on("xxhash")
    depends_on("cli11", when="+tools")
    depends_on("mpi", when="+mpi")
    depends_on("onednn@2:3", when="+onednn")
    depends_on("cuda@12.4:", when="+cuda")
    depends_on("nccl@2.19:", when="+cuda")

    def cmake_args(self):
        args = [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("TESSERA_BUILD_TOOLS", "tools"),
            self.define_from_variant("TESSERA_MPI", "mpi"),
            self.define_from_variant("TESSERA_ONEDNN", "onednn"),
            self.define_from_variant("TESSERA_CUDA", "cuda"),
            self.define("TESSERA_BUILD_TESTS", False),
            self.define("TESSERA_BUILD_EXAMPLES", False),
            # Spack's compiler wrapper selects the processor to compile for.
            self.define("TESSERA_ARCH", ""),
        ]
        if self.spec.satisfies("+cuda"):
            archs = [arch for arch in self.spec.variants["cuda_arch"].value if arch != "none"]
            if archs:
                args.append(self.define("TESSERA_CUDA_ARCHITECTURES", ";".join(archs)))
            args.append(self.define("CUDAToolkit_ROOT", self.spec["cuda"].prefix))
        return args
