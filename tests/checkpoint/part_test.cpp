#include "checkpoint/part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checksum.hpp"
#include "checkpoint/part_ranges.hpp"
#include "checkpoint/saved_checkpoint.hpp"
#include "checkpoint/step_folders.hpp"
#include "checkpoint/store.hpp"
#include "support/grouping_locale.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/checkpoint/folders.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/checkpoint/weights.hpp"

namespace tessera::part_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::SavedCheckpoint;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t kChunk = SavedCheckpoint::kChunk;

/// Part 0 or 1 of two: part 0 has the headers and the first chunk of each tensor, part 1 all other
/// chunks. Its sums cover its own ranges.
checkpoint::CheckpointPart half_of(const SavedCheckpoint& checkpoint, int part) {
  checkpoint::CheckpointPart half{"a save", part, 2, {}, checkpoint.manifest()};
  for (const auto& file : checkpoint.layout().files()) {
    if (part == 0) { half.ranges.push_back({file.name, 0, file.header.size()}); }
    for (ManifestTensor& tensor : half.manifest.tensors) {
      if (tensor.file != file.name) { continue; }
      const std::uint64_t first = part == 0 ? 0 : kChunk;
      const std::uint64_t bytes = part == 0 ? kChunk : tensor.bytes - kChunk;
      half.ranges.push_back({tensor.file, tensor.first_byte + first, bytes});
      checkpoint::TensorSums sums{tensor.bytes, tensor.chunk_bytes};
      const std::vector<std::byte> data = checkpoint.data_of(tensor.name);
      sums.add(first, std::span{data}.subspan(first, bytes));
      tensor.sums = sums.sums();
    }
  }
  return half;
}

void save_part(checkpoint::CheckpointStore& store, std::int64_t step, int part) {
  const SavedCheckpoint checkpoint{step};
  const fs::path partial = store.begin_part(step, part);
  checkpoint.write_files(checkpoint::system_files(), partial);
  store.commit_part(partial, half_of(checkpoint, part), "{}\n");
}

class Parts : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
  fs::path run_ = folder_ / "run";
  checkpoint::CheckpointStore store_{run_, checkpoint::system_files()};
};

TEST_F(Parts, RoundTrip) {
  const checkpoint::CheckpointPart written = half_of(SavedCheckpoint{3}, 1);
  const std::string text = checkpoint::format_part(written);
  const checkpoint::CheckpointPart read = checkpoint::parse_part("p", text);
  EXPECT_EQ(read.save, "a save");
  EXPECT_EQ(read.part, 1);
  EXPECT_EQ(read.parts, 2);
  EXPECT_EQ(read.ranges.size(), 3U);
  EXPECT_EQ(checkpoint::format_part(read), text);
}

TEST_F(Parts, ImpossibleRangesAreRefused) {
  const std::string file = "model.safetensors";
  const std::uint64_t bytes = half_of(SavedCheckpoint{3}, 0).manifest.files.at(file);
  const struct {
    std::vector<checkpoint::PartRange> ranges;
    const char* named;
  } cases[] = {
      {{{"other", 0, 1}}, "other"},
      {{{file, 0, 0}}, file.c_str()},
      {{{file, bytes, 1}}, file.c_str()},
      {{{file, 1, UINT64_MAX}}, file.c_str()},
      {{{file, UINT64_MAX, 2}}, file.c_str()},
      {{{file, 0, 8}, {file, 7, 8}}, "byte 8"},
      {{{file, 8, 8}, {file, 0, 8}}, "byte 16"},
  };
  for (const auto& one : cases) {
    checkpoint::CheckpointPart part = half_of(SavedCheckpoint{3}, 0);
    part.ranges = one.ranges;
    EXPECT_THAT(message_of<FormatError>([&] {
                  (void)checkpoint::parse_part("the/path", checkpoint::format_part(part));
                }),
                AllOf(HasSubstr("the/path"), HasSubstr(one.named)));
  }
  checkpoint::CheckpointPart third = half_of(SavedCheckpoint{3}, 0);
  third.part = 2;
  EXPECT_THROW((void)checkpoint::parse_part("p", checkpoint::format_part(third)), FormatError);
  for (const char* const text : {"", "{}", "[]", R"({"save": "a", "part": -1})"}) {
    EXPECT_THROW((void)checkpoint::parse_part("p", text), FormatError);
  }
}

TEST_F(Parts, FormACheckpointOnceAllArePresent) {
  save_part(store_, 3, 0);
  save_part(store_, 3, 1);
  EXPECT_TRUE(store_.list().empty());
  ASSERT_EQ(store_.list_parts().size(), 2U);
  EXPECT_EQ(store_.list_parts()[1].folder, run_ / "step-00000003.part-1");
  EXPECT_EQ(newest_checkpoint(run_).path, run_ / "step-00000003");
  EXPECT_EQ(summary_of(run_ / "step-00000003").step, 3);
  fs::remove_all(run_ / "step-00000003.part-1");
  EXPECT_THAT(message_of<ConfigError>([&] { (void)newest_checkpoint(run_); }),
              AllOf(HasSubstr("part 1 is missing"), HasSubstr("merge")));
}

TEST_F(Parts, OfTheNewestSaveWithEachNumberAreJoined) {
  save_part(store_, 3, 0);
  save_part(store_, 3, 1);
  EXPECT_THAT(
      newest_parts({run_}).folders,
      testing::ElementsAre(run_ / checkpoint::part_name(3, 0), run_ / checkpoint::part_name(3, 1)));
  save_part(store_, 5, 0);
  checkpoint::CheckpointStore copy{folder_ / "copy", checkpoint::system_files()};
  save_part(copy, 5, 0);
  const PartsOfSave found = newest_parts({run_, folder_ / "copy"});
  EXPECT_EQ(found.step, 3) << "two copies of part 0 are not both parts";
  EXPECT_THAT(found.passed_over, testing::ElementsAre(HasSubstr("of its 2 parts only part 0")));
  EXPECT_THROW((void)newest_parts({}), ContractError);
  EXPECT_THAT(message_of<ConfigError>([&] { (void)newest_parts({folder_.path()}); }),
              HasSubstr("holds no parts"));
  EXPECT_THROW((void)merge_parts({}, run_), ContractError);
}

TEST_F(Parts, AreListedAfterWholeCheckpointsAndSummed) {
  EXPECT_TRUE(checkpoints_in(folder_ / "none").empty());
  save_part(store_, 3, 1);
  test::save_step(store_, checkpoint::system_files(), 4);
  const std::vector<CheckpointFolder> all = checkpoints_in(run_);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].path, run_ / "step-00000004");
  EXPECT_EQ(all[0].step, 4);
  EXPECT_FALSE(all[0].part);
  EXPECT_EQ(all[0].seal, all[0].path / "manifest.json");
  EXPECT_EQ(all[1].path, run_ / checkpoint::part_name(3, 1));
  EXPECT_EQ(all[1].part, 1);
  EXPECT_EQ(all[1].seal, all[1].path / "part.json");

  const PartSummary summary = summary_of_part(all[1].path);
  EXPECT_EQ(summary.step, 3);
  EXPECT_EQ(summary.part, 1);
  EXPECT_EQ(summary.parts, 2);
  std::uint64_t bytes = 0;
  for (const checkpoint::PartRange& range : half_of(SavedCheckpoint{3}, 1).ranges) {
    bytes += range.bytes;
  }
  EXPECT_EQ(summary.bytes, bytes);
  EXPECT_THROW((void)summary_of_part(all[0].path), FormatError);
}

/// What `machines` see that have these parts of step 3.
SeenParts seen(const std::vector<std::pair<int, int>>& ranks_and_parts, int machines,
               const std::string& save = "a save") {
  SeenParts seen{.all = {}, .machines = machines};
  for (const auto& [rank, part] : ranks_and_parts) {
    seen.all.push_back({.rank = rank, .step = 3, .save = save, .part = part, .parts = 2});
  }
  return seen;
}

TEST_F(Parts, ThatAreMissingHereAreNoDamageAndPassedOverOnlyIfTheyAreNowhere) {
  test::save_step(store_, checkpoint::system_files(), 2);
  save_part(store_, 3, 0);
  EXPECT_THAT(message_of<ConfigError>([&] { (void)newest_checkpoint(run_); }),
              AllOf(HasSubstr("step 3"), HasSubstr("part 1 is missing"), HasSubstr("merge"),
                    HasSubstr("name an earlier checkpoint")));
  const auto newest = [&](const SeenParts& seen) {
    return newest_checkpoint(run_, NewestOptions{.seen = &seen});
  };
  EXPECT_THAT(message_of<ConfigError>([&] { (void)newest(seen({{0, 0}, {1, 1}}, 2)); }),
              AllOf(HasSubstr("part 1 is on rank 1"), HasSubstr("copy the parts")));
  EXPECT_THAT(message_of<ConfigError>([&] { (void)newest(seen({{0, 0}, {1, 0}}, 1)); }),
              HasSubstr("name an earlier checkpoint"))
      << "the other machine has not looked";
  const NewestCheckpoint older = newest(seen({{0, 0}}, 2));
  EXPECT_EQ(older.path, run_ / "step-00000002");
  EXPECT_TRUE(older.damaged.empty() && older.damaged_paths.empty());
  EXPECT_THAT(older.incomplete, testing::ElementsAre(HasSubstr("part 1 is missing")));
  EXPECT_EQ(newest_checkpoint(run_, NewestOptions{.before = 3}).step, 2);

  fs::remove_all(run_ / checkpoint::part_name(3, 0));
  EXPECT_THAT(message_of<ConfigError>([&] { (void)newest(seen({{1, 0}, {1, 1}}, 2)); }),
              HasSubstr("part 0 is on rank 1"))
      << "this machine has none of them";
  EXPECT_EQ(newest(seen({{1, 1}}, 2)).step, 2);
}

// An earlier save of a step, by more machines, leaves a part that the later save does not replace.
TEST_F(Parts, OfAnEarlierSaveDoNotHideACompleteOne) {
  save_part(store_, 3, 0);
  save_part(store_, 3, 1);
  const SavedCheckpoint checkpoint{3};
  checkpoint::CheckpointPart third = half_of(checkpoint, 1);
  third.save = "an earlier save";
  third.part = 2;
  third.parts = 3;
  const fs::path partial = store_.begin_part(3, 2);
  checkpoint.write_files(checkpoint::system_files(), partial);
  store_.commit_part(partial, third, "{}\n");
  EXPECT_EQ(newest_checkpoint(run_).step, 3);
}

TEST_F(Parts, TakeTheNameOfTheNewestWeights) {
  test::save_step(store_, checkpoint::system_files(), 2);
  EXPECT_TRUE(fs::exists(run_ / "model.safetensors"));
  save_part(store_, 3, 0);
  EXPECT_FALSE(fs::exists(run_ / "model.safetensors")) << "it would be of step 2";
  test::save_step(store_, checkpoint::system_files(), 1);
  EXPECT_FALSE(fs::exists(run_ / "model.safetensors"));
}

// Where other machines' bytes belong, its files have zeros.
TEST_F(Parts, AreNoWeights) {
  save_part(store_, 3, 0);
  const fs::path part = run_ / checkpoint::part_name(3, 0);
  fs::create_symlink(part / "model.safetensors", folder_ / "link.safetensors");
  fs::rename(part, folder_ / "renamed");
  fs::copy(folder_ / "renamed", part);
  for (const fs::path& path :
       {part, part / "model.safetensors", folder_ / "renamed", folder_ / "link.safetensors"}) {
    EXPECT_THAT(message_of<FormatError>([&] {
                  (void)weights_from(path, [](const auto& info) { return info.full_name(); });
                }),
                AllOf(HasSubstr(path.string()), HasSubstr("tessera checkpoint merge")));
  }
  test::save_step(store_, checkpoint::system_files(), 4);
  fs::copy(part / "part.json", run_ / "part.json");
  EXPECT_NO_THROW((void)SafetensorsReader{run_ / "model.safetensors"}) << "a stray part.json";
}

TEST(PartRanges, AreReadWhateverTheLocale) {
  const std::vector<checkpoint::PartRange> ranges{{"a file", 0, 5},
                                                  {"b", 1'234'567, 89'012'345'678}};
  const test::GroupingLocale french;
  const std::vector<checkpoint::PartRange> read =
      checkpoint::ranges_of(checkpoint::text_of(ranges));
  ASSERT_EQ(read.size(), ranges.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].file, ranges[i].file);
    EXPECT_EQ(read[i].first_byte, ranges[i].first_byte);
    EXPECT_EQ(read[i].bytes, ranges[i].bytes);
  }
  for (const char* const text : {"1 x b\n", "12", "1 2", "1 2 b", "99999999999999999999 1 b\n"}) {
    EXPECT_THROW((void)checkpoint::ranges_of(text), ContractError) << text;
  }
}

TEST_F(Parts, AreVerifiedOnTheirOwn) {
  for (const int part : {0, 1}) {
    save_part(store_, 3, part);
    const fs::path folder = run_ / checkpoint::part_name(3, part);
    EXPECT_NO_THROW(verify_part(folder));
    const checkpoint::CheckpointPart listed = half_of(SavedCheckpoint{3}, part);
    const ManifestTensor& tensor = listed.manifest.tensors[1];
    const auto change = [&](std::uint64_t at) {
      std::fstream file{folder / tensor.file, std::ios::in | std::ios::out | std::ios::binary};
      file.seekp(static_cast<std::streamoff>(tensor.first_byte + at));
      file.put('?');
    };
    change(part == 0 ? kChunk : 0);  // the other machine's
    EXPECT_NO_THROW(verify_part(folder));
    change(part == 0 ? 0 : kChunk);
    EXPECT_THAT(message_of<FormatError>([&] { verify_part(folder); }),
                AllOf(HasSubstr((folder / tensor.file).string()), HasSubstr("'b'")));
  }
}

TEST_F(Parts, OldOnesAreRemovedOnceTheNewestIsVerified) {
  for (const std::int64_t step : {1, 2, 3}) { save_part(store_, step, 1); }
  store_.retain_parts({.last = 2});
  EXPECT_EQ(checkpoint::names_in(run_),
            (std::set<std::string>{"step-00000002.part-1", "step-00000003.part-1"}));
  fs::resize_file(run_ / "step-00000003.part-1/model.safetensors", 9);
  EXPECT_THAT(message_of<FormatError>([&] { store_.retain_parts({.last = 1}); }),
              HasSubstr("step-00000003.part-1/model.safetensors"));
  EXPECT_EQ(store_.list_parts().size(), 2U);
}

// The other machine may lack its part of a later step, or be about to be asked for it.
TEST_F(Parts, OfLaterStepsThanTheCommitNeitherCountNorGo) {
  save_part(store_, 8, 0);
  checkpoint::CheckpointStore resumed{run_, checkpoint::system_files()};
  for (const std::int64_t step : {4, 5, 6}) {
    save_part(resumed, step, 0);
    resumed.retain_parts({.last = 2});
  }
  EXPECT_EQ(checkpoint::names_in(run_),
            (std::set<std::string>{"step-00000005.part-0", "step-00000006.part-0",
                                   "step-00000008.part-0"}));
}

}  // namespace
}  // namespace tessera::part_test
