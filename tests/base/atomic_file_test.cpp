#include "tessera/base/atomic_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "support/small_files.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"

namespace tessera::atomic_file_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::SmallFiles;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

std::string bytes_of(const fs::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator{folder}) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

void write(AtomicFile& file, std::string_view text) {
  file.write(std::as_bytes(std::span{text.data(), text.size()}));
}

void write_whole(const fs::path& path, std::string_view text) {
  AtomicFile file{path};
  write(file, text);
  file.finish();
}

std::string refusal(const fs::path& path) {
  return message_of<Error>([&] { AtomicFile{path}; });
}

using Names = std::set<std::string>;

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
  const TemporaryFolder folder;
  folder.write("out", "before");
  {
    AtomicFile file{folder / "out"};
    write(file, "half of it");
    EXPECT_EQ(bytes_of(folder / "out"), "before");
    EXPECT_EQ(names_in(folder.path()).size(), 2U) << "it is written beside";
  }
  EXPECT_EQ(bytes_of(folder / "out"), "before");
  EXPECT_EQ(names_in(folder.path()), Names{"out"});
  AtomicFile file{folder / "out"};
  write(file, "after");
  file.finish();
  EXPECT_FALSE(file.is_open());
  EXPECT_EQ(bytes_of(folder / "out"), "after");
  EXPECT_EQ(names_in(folder.path()), Names{"out"});
  EXPECT_THROW(write(file, "more"), ContractError);
  EXPECT_THROW(file.finish(), ContractError);
}

TEST(AtomicFile, TwoWritersOfOneNameShareNothing) {
  const TemporaryFolder folder;
  AtomicFile first{folder / "out"};
  AtomicFile second{folder / "out"};
  write(first, "first ");
  write(second, "second ");
  write(first, "alone");
  write(second, "alone");
  second.finish();
  EXPECT_EQ(bytes_of(folder / "out"), "second alone");
  first.finish();
  EXPECT_EQ(bytes_of(folder / "out"), "first alone");
  EXPECT_EQ(names_in(folder.path()), Names{"out"});
}

TEST(AtomicFile, NeverWritesThroughAnExistingFile) {
  const TemporaryFolder folder;
  folder.write("text", "what somebody reads");
  fs::create_symlink("text", folder / "link");
  fs::create_symlink("nothing", folder / "dangling");
  fs::create_directory(folder / "folder");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const Names before = names_in(folder.path());
  EXPECT_THAT(refusal(folder / "link"),
              AllOf(HasSubstr("cannot write " + (folder / "link").string()), HasSubstr("a link")));
  EXPECT_THAT(refusal(folder / "dangling"), HasSubstr("it is a link"));
  EXPECT_THAT(refusal(folder / "folder"), HasSubstr("it is a folder"));
  EXPECT_THAT(refusal(folder / "folder/"), HasSubstr("Is a directory"));
  EXPECT_THAT(refusal(folder / "pipe"), HasSubstr("it is a pipe"));
  EXPECT_THAT(refusal("/dev/null"), HasSubstr("it is a device"));
  EXPECT_EQ(names_in(folder.path()), before);
  EXPECT_EQ(bytes_of(folder / "text"), "what somebody reads");
}

TEST(AtomicFile, ALinkCreatedDuringTheWriteIsReplacedAndNotFollowed) {
  const TemporaryFolder folder;
  folder.write("text", "what somebody reads");
  AtomicFile file{folder / "out"};
  write(file, "new");
  fs::create_symlink("text", folder / "out");
  file.finish();
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder / "out")));
  EXPECT_EQ(bytes_of(folder / "out"), "new");
  EXPECT_EQ(bytes_of(folder / "text"), "what somebody reads");
}

TEST(AtomicFile, AFolderCreatedDuringTheWriteIsAClearErrorAndLeavesNothing) {
  const TemporaryFolder folder;
  AtomicFile file{folder / "out"};
  fs::create_directory(folder / "out");
  EXPECT_THAT(message_of<Error>([&] { file.finish(); }),
              AllOf(HasSubstr("cannot rename"), HasSubstr((folder / "out").string())));
  EXPECT_EQ(names_in(folder.path()), Names{"out"});
  EXPECT_FALSE(file.is_open());
}

TEST(AtomicFile, AFolderMayBeALinkAndRemainsOne) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "one");
  fs::create_directory(folder / "other");
  fs::create_directory_symlink("one", folder / "link");
  AtomicFile file{folder / "link" / "out"};
  fs::remove(folder / "link");
  fs::create_directory_symlink("other", folder / "link");
  file.finish();
  EXPECT_EQ(names_in(folder / "one"), Names{"out"});
  EXPECT_EQ(names_in(folder / "other"), Names{});
}

TEST(AtomicFile, ARelativePathIsResolvedAtTheStart) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  AtomicFile file{"out"};
  fs::current_path(before);
  write(file, "here");
  file.finish();
  EXPECT_EQ(bytes_of(folder / "out"), "here");
}

TEST(AtomicFile, TakesOverThePermissionsOfWhatItReplaces) {
  const TemporaryFolder folder;
  folder.write("out", "private");
  fs::permissions(folder / "out", fs::perms::owner_read | fs::perms::owner_write);
  write_whole(folder / "out", "still private");
  EXPECT_EQ(fs::status(folder / "out").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST(AtomicFile, AFolderThatCannotBeWrittenIsAnErrorThatSaysSo) {
  const TemporaryFolder folder;
  folder.write("file", "x");
  EXPECT_THAT(refusal(folder / "missing/out"),
              AllOf(HasSubstr((folder / "missing/out").string()), HasSubstr("No such file")));
  EXPECT_THAT(refusal(folder / "file/out"), HasSubstr("Not a directory"));
  if (::geteuid() == 0) { return; }  // root may write everywhere
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(refusal(folder / "out"), HasSubstr("Permission denied"));
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST(AtomicFile, AFullDiskIsAClearErrorAndLeavesTheOldFile) {
  const TemporaryFolder folder;
  folder.write("out", "before");
  const SmallFiles limited{1'000};
  AtomicFile file{folder / "out"};
  EXPECT_THAT(
      message_of<Error>([&] { write(file, std::string(2'000, 'x')); }),
      AllOf(HasSubstr("cannot write " + (folder / "out").string()), HasSubstr("File too large")));
  EXPECT_FALSE(file.is_open());
  EXPECT_EQ(bytes_of(folder / "out"), "before");
  EXPECT_EQ(names_in(folder.path()), Names{"out"});
}

TEST(AtomicFile, WritesTheLongestNamesThatAFolderAccepts) {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  write_whole(folder / name, "long");
  EXPECT_EQ(bytes_of(folder / name), "long");
}

/// Starts a process that is killed in the middle of writing `path`.
void die_writing(const fs::path& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file{path};
    write(file, "half of it");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(AtomicFile, TheNextWriterOfANameRemovesWhatAKilledOneLeft) {
  const TemporaryFolder folder;
  die_writing(folder / "out");
  ASSERT_EQ(names_in(folder.path()).size(), 1U);
  write_whole(folder / "other", "of another name");
  EXPECT_EQ(names_in(folder.path()).size(), 2U) << "not its own to remove";
  write_whole(folder / "out", "whole");
  EXPECT_EQ(names_in(folder.path()), (Names{"other", "out"}));
}

TEST(AtomicFile, FilesOfALivingWriterAreNotRemoved) {
  const TemporaryFolder folder;
  AtomicFile living{folder / "out"};
  write(living, "in the middle");
  die_writing(folder / "out");
  EXPECT_EQ(names_in(folder.path()).size(), 2U);
  write_whole(folder / "out", "whole");
  EXPECT_EQ(names_in(folder.path()).size(), 2U);
  living.finish();
  EXPECT_EQ(bytes_of(folder / "out"), "in the middle");
  EXPECT_EQ(names_in(folder.path()), Names{"out"});
}

/// Sets the machine's name in its lifetime.
class Machine {
 public:
  explicit Machine(const char* name) { ::setenv("TESSERA_MACHINE", name, 1); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { ::unsetenv("TESSERA_MACHINE"); }
};

// On a shared file system, other machines may not see a lock.
TEST(AtomicFile, FilesOfAnotherMachineAndLookalikesStay) {
  const TemporaryFolder folder;
  {
    const Machine other{"other"};
    die_writing(folder / "out");
  }
  folder.write("out.partial", "of whom?");
  folder.write("out.of-mine.partial", "a user's");
  const Names before = names_in(folder.path());
  ASSERT_EQ(before.size(), 3U);
  write_whole(folder / "out", "whole");
  Names after = before;
  after.insert("out");
  EXPECT_EQ(names_in(folder.path()), after);
  const Machine other{"other"};
  write_whole(folder / "out", "whole");
  EXPECT_EQ(names_in(folder.path()), (Names{"out", "out.of-mine.partial", "out.partial"}));
}

}  // namespace
}  // namespace tessera::atomic_file_test
