// Messages about the libraries that the CUDA module has loaded.
#include "device/cuda_library.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"

namespace tessera::cuda_library_test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Two libraries with the same name in sibling folders.
class CudaLibraryTest : public ::testing::Test {
 protected:
  CudaLibraryTest() { ::unsetenv("LD_LIBRARY_PATH"); }
  ~CudaLibraryTest() override { ::unsetenv("LD_LIBRARY_PATH"); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] device::CudaLibrary library(int version, const std::string& file) const {
    return {"NCCL", version, file, 22809, configured_, 21400};
  }
  static std::string refusal_of(const device::CudaLibrary& library) {
    return test::message_of<ConfigError>([&] { device::require_version(library); });
  }

  test::TemporaryFolder folder_;
  std::string configured_ = folder_.write("configured/libnccl.so.2", "one");
  std::string other_ = folder_.write("other/libnccl.so.2", "another");
};

TEST_F(CudaLibraryTest, VersionsAreReadAsTheLibrariesCount) {
  EXPECT_EQ(device::version_text(22809), "2.28.9");
  EXPECT_EQ(device::version_text(91501), "9.15.1");
  EXPECT_EQ(device::version_text(130100), "13.1.0");
}

int here() {
  return 1;
}

TEST_F(CudaLibraryTest, FindsTheFileThatAFunctionWasLoadedFrom) {
  const std::string mine = device::file_of(reinterpret_cast<const void*>(&here));
  EXPECT_TRUE(std::filesystem::equivalent(mine, "/proc/self/exe")) << mine;
  void* const of_the_system = ::dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
  const std::string system = device::file_of(of_the_system);
  EXPECT_THAT(system, AllOf(StartsWith("/"), HasSubstr("libc.so")));
  EXPECT_EQ(device::file_of(nullptr), "");
}

TEST_F(CudaLibraryTest, TheLibraryOfTheBuildNeedsNoAdvice) {
  EXPECT_EQ(describe(library(22809, configured_)),
            "NCCL 2.28.9 (built with 2.28.9), " + configured_);
  EXPECT_EQ(describe(library(22809, configured_), "registers arenas"),
            "NCCL 2.28.9 (built with 2.28.9, registers arenas), " + configured_);
  const std::string link = path("libnccl.so");
  std::filesystem::create_symlink(configured_, link);
  EXPECT_EQ(describe(library(22809, link)), "NCCL 2.28.9 (built with 2.28.9), " + link);
}

TEST_F(CudaLibraryTest, DistinguishesAChangedFileFromAnotherFile) {
  EXPECT_THAT(describe(library(22803, configured_)),
              AllOf(StartsWith("NCCL 2.28.3 (built with 2.28.9), " + configured_ + "; "),
                    HasSubstr("the file has changed since the build: install NCCL 2.28.9 there")));
  device::CudaLibrary in_the_module = library(22803, other_);
  in_the_module.built_file.clear();
  EXPECT_THAT(describe(in_the_module), HasSubstr("the file has changed since the build"));
}

TEST_F(CudaLibraryTest, AnotherFileIsNamedAlsoWhereItsVersionIsTheSame) {
  for (const int version : {22803, 22809}) {
    EXPECT_THAT(describe(library(version, other_)),
                AllOf(HasSubstr(", " + other_ + "; built with " + configured_ + "; "),
                      HasSubstr("this process had already loaded the other one"),
                      EndsWith("begin with " + path("configured"))));
  }
}

TEST_F(CudaLibraryTest, NamesAFolderAsItStandsInLdLibraryPath) {
  const std::string odd = path("configured/../other");
  for (const std::string& list : {odd, "/nonexistent:" + odd + ":/tmp", "/nonexistent;" + odd}) {
    ::setenv("LD_LIBRARY_PATH", list.c_str(), 1);
    EXPECT_THAT(describe(library(22803, other_)),
                AllOf(HasSubstr("LD_LIBRARY_PATH has '" + odd +
                                "', which comes before the configured folder"),
                      EndsWith("remove it, or put " + path("configured") + " before it")));
  }
  ::setenv("LD_LIBRARY_PATH", path("configured").c_str(), 1);
  EXPECT_THAT(describe(library(22803, other_)),
              HasSubstr("this process had already loaded the other one"));
}

TEST_F(CudaLibraryTest, AnEmptyEntryOfLdLibraryPathIsTheCurrentFolder) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(path("other"));
  for (const char* list : {":/nonexistent", "/nonexistent:", "/nonexistent::/nonexistent"}) {
    ::setenv("LD_LIBRARY_PATH", list, 1);
    EXPECT_THAT(describe(library(22803, other_)), HasSubstr("LD_LIBRARY_PATH has '', which comes"));
  }
  std::filesystem::current_path(before);
}

TEST_F(CudaLibraryTest, SaysThatAFileOfTheBuildIsGone) {
  std::filesystem::remove(configured_);
  EXPECT_THAT(describe(library(22803, other_)),
              EndsWith("; built with " + configured_ +
                       "; that file is missing: install it again, or configure and build again"));
}

TEST_F(CudaLibraryTest, TooOldAVersionIsRefusedWithBothFiles) {
  EXPECT_NO_THROW(device::require_version(library(21400, other_)));
  EXPECT_THAT(
      refusal_of(library(21399, other_)),
      AllOf(
          StartsWith("NCCL 2.13.99 is too old: 2.14.0 or later is needed; loaded was " + other_ +
                     "; the CUDA module was built with 2.28.9, " + configured_),
          EndsWith(
              "; this process had already loaded the other one: make LD_LIBRARY_PATH begin with " +
              path("configured"))));
  EXPECT_THAT(describe(library(21304, other_)), HasSubstr("; too old: 2.14.0 or later is needed"));
}

TEST_F(CudaLibraryTest, ATooOldLibraryOfTheBuildIsToBeReplacedThere) {
  device::CudaLibrary old = library(21304, configured_);
  old.built_version = old.version;
  EXPECT_THAT(refusal_of(old), EndsWith("; configure with a newer one and build again"));
}

}  // namespace
}  // namespace tessera::cuda_library_test
