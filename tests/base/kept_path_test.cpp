#include "base/kept_path.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/temporary_folder.hpp"
#include "support/working_folder.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kept_path_test {
namespace {

namespace fs = std::filesystem;

TEST(KeptPath, IsAbsoluteAndOfTheFolderThatWasCurrent) {
  const test::TemporaryFolder folder;
  const test::WorkingFolder here{folder.path()};
  const fs::path at = fs::current_path();  // without the links of the folder's name
  EXPECT_EQ(kept_path("run"), at / "run");
  EXPECT_EQ(kept_path("./a/./b"), at / "a/b");
  EXPECT_EQ(kept_path("../run"), at / "../run") << "what a link leads to is not known";
  EXPECT_EQ(kept_path("."), at);
  EXPECT_EQ(kept_path("/a/./b"), "/a/./b");
  for (const char* const path : {"/a/b/", "/a/b//", "/a/b/.", "/a/b/././"}) {
    EXPECT_EQ(kept_path(path).string(), "/a/b") << path;
  }
  EXPECT_EQ(kept_path("run/").string(), (at / "run").string());
  EXPECT_EQ(kept_path("/.").string(), "/");
  EXPECT_EQ(kept_path("/").string(), "/");
  EXPECT_EQ(kept_path(""), "");
}

TEST(KeptPath, IsRefusedWhereTheWorkingFolderIsGone) {
  const test::TemporaryFolder folder;
  const fs::path gone = folder / "gone";
  fs::create_directory(gone);
  const test::WorkingFolder here{gone};
  fs::remove(gone);
  EXPECT_THAT(test::message_of<Error>([] { (void)kept_path("run"); }),
              testing::AllOf(testing::HasSubstr("run"), testing::HasSubstr("absolute path")));
  EXPECT_EQ(kept_path("/run"), "/run");
}

}  // namespace
}  // namespace tessera::kept_path_test
