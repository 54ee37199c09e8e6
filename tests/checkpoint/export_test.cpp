// Weights of a checkpoint as files for other programs.
#include "tessera/checkpoint/export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

#include "support/small_checkpoint.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::export_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::StateTensor;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kIndex = "model.safetensors.index.json";

class Export : public testing::Test {
 protected:
  void write_state(const std::vector<StateTensor>& tensors = test::small_state()) {
    manifest_ = test::write_checkpoint(run_, tensors);
  }
  /// Changes a byte of a tensor's data.
  void damage(const std::string& name) {
    for (const ManifestTensor& tensor : manifest_.tensors) {
      if (tensor.name != name) { continue; }
      std::string bytes = test::read_bytes(run_ / tensor.file);
      bytes[tensor.first_byte] = static_cast<char>(bytes[tensor.first_byte] ^ 1);
      test::write_bytes(run_ / tensor.file, bytes);
    }
  }

  test::TemporaryFolder folder_;
  fs::path run_ = folder_ / "run";
  Manifest manifest_;
};

// The new index over old files, or both kinds side by side, would be another model or none.
TEST_F(Export, AFolderThatHoldsWeightsIsRefusedAndKept) {
  write_state();
  const CheckpointReader reader{run_};
  for (const std::uint64_t shard_bytes : {60, 1'000}) {
    const WeightExport weights{reader, {.shard_bytes = shard_bytes}};
    for (const char* const name : {"model.safetensors", kIndex}) {
      const test::TemporaryFolder to;
      to.write(name, "other weights");
      EXPECT_THAT(message_of<ConfigError>([&] { (void)weights.to_folder(to.path()); }),
                  AllOf(HasSubstr(to.path().string()), HasSubstr(std::string{name} + " already")));
      EXPECT_EQ(test::read_bytes(to / name), "other weights");
      EXPECT_EQ(std::distance(fs::directory_iterator{to.path()}, {}), 1);
    }
    const test::TemporaryFolder to;
    EXPECT_EQ(weights.to_folder(to.path()).files, shard_bytes == 60 ? 2U : 1U);
    EXPECT_EQ(SafetensorsReader{to.path()}.entries().size(), weights.weights());
  }
}

TEST_F(Export, WhatIsReadIsCheckedWhateverTheReaderWasOpenedWith) {
  write_state();
  const fs::path file = run_ / "optimizer.safetensors";
  std::string bytes = test::read_bytes(file);
  bytes.replace(bytes.find("remainder"), 9, "RemaindeR");
  test::write_bytes(file, bytes);
  const CheckpointReader reader{run_, {Content::weights}};
  EXPECT_EQ((WeightExport{reader, {}}.weights()), 4U);
  EXPECT_THAT(message_of<FormatError>([&] { (WeightExport{reader, {.masters = true}}); }),
              HasSubstr(file.string()));
}

TEST_F(Export, RefusesOptionsThatNoFileCanHave) {
  write_state();
  const CheckpointReader reader{run_};
  EXPECT_THROW((WeightExport{reader, {.dtype = "U8"}}), ContractError);
  EXPECT_THROW((WeightExport{reader, {.shard_bytes = 0}}), ContractError);
  const bool takes_temporaries =
      std::is_constructible_v<WeightExport, CheckpointReader, ExportOptions>;
  EXPECT_FALSE(takes_temporaries) << "the export would read from a reader that is gone";
}

TEST_F(Export, OnlyWeightsThatCanBecomeInfiniteAreRead) {
  write_state({{"model", "half", "weight", "F16", {4}, 128, std::string(8, 'h')},
               {"model", "single", "weight", "F32", {2}, 256, std::string(8, 's')}});
  const auto find_in = [&](const std::string& dtype) {
    const CheckpointReader reader{run_};
    WeightExport{reader, {.dtype = dtype}}.find_infinities([](const std::string& /*which*/) {});
  };
  damage("half");
  EXPECT_NO_THROW(find_in("BF16")) << "bf16 has the wider range";
  damage("single");
  EXPECT_THROW(find_in("BF16"), FormatError);
}

}  // namespace
}  // namespace tessera::export_test
