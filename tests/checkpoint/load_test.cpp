// Loads: refusals and their messages, weights without state, and a trainer's own values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/checksum.hpp"
#include "checkpoint/load_plan.hpp"
#include "checkpoint/load_source.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/share_loader.hpp"
#include "checkpoint/toy_job.hpp"
#include "engine/model/training_state.hpp"
#include "support/temporary_folder.hpp"
#include "support/working_folder.hpp"
#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/checkpoint/reader.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::test::load_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// The message of a refused load, which must be the same on every rank.
template <class Exception>
std::string refusal(const ToyJob& job, const std::filesystem::path& path,
                    const LoadOptions& options = {}) {
  std::mutex mutex;
  std::set<std::string> told;
  int ranks = 0;
  run_job(job, [&](World&, ToyTrainer& trainer) {
    const std::string text =
        message_of<Exception>([&] { (void)load(trainer.model(), path, {}, options); });
    const std::scoped_lock lock{mutex};
    told.insert(text);
    ++ranks;
  });
  EXPECT_EQ(told.size(), 1U);
  EXPECT_EQ(ranks, job.ranks);
  return *told.begin();
}

class Refused : public testing::Test {
 protected:
  [[nodiscard]] std::string by(const ToyJob& job) const {
    return refusal<ConfigError>(job, saved_, {});
  }
  const TemporaryFolder folder_;
  const ToyJob job_ = ToyJob{}.under(Strategy::zero3);
  const std::filesystem::path saved_ = train_and_save(job_, 2, folder_ / "run");
};

TEST_F(Refused, AModelWithAnotherParameter) {
  ToyJob more = job_;
  more.toy.blocks = 3;
  EXPECT_THAT(by(more), AllOf(HasSubstr(saved_.string()), HasSubstr("'block.2.weight'"),
                              HasSubstr("is not in the checkpoint")));
}

TEST_F(Refused, AModelWithoutAParameter) {
  ToyJob fewer = job_;
  fewer.toy.blocks = 1;
  EXPECT_THAT(by(fewer), AllOf(HasSubstr("no parameter for the checkpoint's 'block.1.weight'")));
}

TEST_F(Refused, AParameterOfAnotherShape) {
  ToyJob wider = job_;
  wider.toy.vocab = 38;
  EXPECT_THAT(by(wider),
              AllOf(HasSubstr("'root.table' has shape [37, 29]"), HasSubstr("has shape [38, 29]")));
}

TEST_F(Refused, AnotherOptimizer) {
  ToyJob lion = job_;
  lion.optimizer = Lion{};
  EXPECT_THAT(by(lion), AllOf(HasSubstr("of optimizer 'AdamW'"), HasSubstr("by 'Lion'")));
}

TEST_F(Refused, FewerMoments) {
  ToyJob sgd = job_;
  sgd.optimizer = SGD{};
  ToyJob plain = job_;
  plain.optimizer = SGD{.momentum = 0.0F};
  const auto saved = train_and_save(sgd, 1, folder_ / "sgd");
  EXPECT_THAT(refusal<ConfigError>(plain, saved), HasSubstr("'root.table.moment_0'"));
  const auto without = train_and_save(plain, 1, folder_ / "plain");
  EXPECT_THAT(refusal<ConfigError>(sgd, without), HasSubstr("'root.table.moment_0'"));
}

TEST_F(Refused, AFlippedByteOfEachFileWithItsPlace) {
  std::map<std::string, std::string> expected = {{"model.safetensors", "tensor '"},
                                                 {"optimizer.safetensors", "tensor '"}};
  for (const auto& [name, words] : expected) {
    const std::string bytes = bytes_of_file(saved_ / name);
    for (const std::size_t back : {std::size_t{1}, bytes.size() / 2}) {
      std::string flipped = bytes;
      flipped[flipped.size() - back] ^= 0x10;
      (void)folder_.write("run/step-00000002/" + name, flipped);
      EXPECT_THAT(
          refusal<FormatError>(job_, saved_),
          AllOf(HasSubstr((saved_ / name).string()), HasSubstr(words), HasSubstr("are damaged")));
    }
    (void)folder_.write("run/step-00000002/" + name, bytes);
  }
  EXPECT_NO_THROW(load_and_save(job_, saved_, folder_ / "again"));
}

TEST_F(Refused, AFileThatIsMissingOrShort) {
  const std::filesystem::path file = saved_ / "optimizer.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_THAT(refusal<FormatError>(job_, saved_), HasSubstr(file.string()));
  std::filesystem::remove(file);
  EXPECT_THAT(refusal<FormatError>(job_, saved_), HasSubstr(file.string()));
  EXPECT_THAT(refusal<FormatError>(job_, folder_ / "nowhere"),
              HasSubstr((folder_ / "nowhere").string()));
}

/// A checkpoint whose reads block until `open` is called.
class WaitingSource final : public checkpoint::LoadSource {
 public:
  explicit WaitingSource(const std::filesystem::path& path)
      : source_{checkpoint::open_load_source(path, LoadOptions::What::everything)} {}

  [[nodiscard]] const Manifest& manifest() const noexcept override { return source_->manifest(); }
  void check_files(const Contents& contents) override { source_->check_files(contents); }
  void read(const std::string& file, std::uint64_t first, std::span<std::byte> out) override {
    open_.wait();
    source_->read(file, first, out);
  }
  void open() { open_.count_down(); }

 private:
  std::unique_ptr<checkpoint::LoadSource> source_;
  std::latch open_{1};
};

// A rank that waits for its disk must still meet the other ranks in time.
TEST(ShareLoader, ReturnsInTimeAndResumesAtItsPosition) {
  const TemporaryFolder folder;
  const ToyJob job = ToyJob{}.on(1).under(Strategy::ddp);
  const auto saved = train_and_save(job, 2, folder / "run");
  run_job(job, [&](World& world, ToyTrainer& trainer) {
    engine::TrainingState state{trainer.model()};
    WaitingSource source{saved};
    const checkpoint::LoadPlan plan{state, source.manifest(), {}, saved.string()};
    checkpoint::ShareLoader loader{world, state, plan, source};
    checkpoint::SumTable sums;
    state.begin_write();
    EXPECT_FALSE(loader.load(sums, std::chrono::milliseconds{1}));
    EXPECT_FALSE(loader.load(sums, std::chrono::milliseconds{1}));
    source.open();
    while (!loader.load(sums, std::chrono::milliseconds{1})) {}
    EXPECT_TRUE(loader.load(sums, std::chrono::milliseconds{1}));
    state.end_write({.steps = 2});
    save(trainer.model(), folder / "again");
  });
  for (const char* const name : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(bytes_of_file(saved / name), bytes_of_file(folder / "again/step-00000002" / name));
  }
}

TEST(Load, OfWeightsAloneIntoAnyModelTellsWhatIsMissingAndUnexpected) {
  const TemporaryFolder folder;
  const ToyJob job = ToyJob{}.under(Strategy::zero3);
  const auto saved = train_and_save(job, 2, folder / "run");
  ToyJob other = job.on(3);
  other.toy.blocks = 3;
  other.toy.tied_head = false;  // no head.bias
  other.optimizer = Lion{};
  run_job(other, [&](World& world, ToyTrainer& trainer) {
    trainer.step();
    const auto before = exported(trainer.model(), tessera::StateTensor::parameters);
    const LoadReport report =
        load(trainer.model(), saved, {}, {.what = LoadOptions::What::weights});
    EXPECT_EQ(report.step, 2);
    EXPECT_THAT(report.missing, ElementsAre("block.2.weight", "block.2.scale", "block.2.bias"));
    EXPECT_THAT(report.unexpected, ElementsAre("head.bias"));
    const auto after = exported(trainer.model(), tessera::StateTensor::parameters);
    EXPECT_EQ(after.at("block.2.weight"), before.at("block.2.weight"));
    EXPECT_NE(after.at("block.1.weight"), before.at("block.1.weight"));
    if (world.rank() != 0) { return; }
    SafetensorsReader file{saved / "model.safetensors"};
    std::vector<float> expected(after.at("root.table").size());
    file.read("root.table", 0, expected);
    EXPECT_EQ(after.at("root.table"), expected);
  });
}

/// A model with parameters of no elements, alone in a unit and among others.
class EmptyParameters {
 public:
  EmptyParameters(World& world, const ToyJob& job) : model{world, job.options} {
    model.add_unit("mixed", {{"none", {0}}, {"weight", {33, 7}}, {"no rows", {0, 4}}});
    model.add_unit("empty", {{"none", {3, 0}}});
    model.add_unit("scalar", {{"scale", {}}, {.name = "none", .shape = {0}, .trainable = false}});
    model.materialize(init::normal(3, 0.1F));
    model.optimize_with(job.optimizer, job.optimizer_options);
  }
  ShardedModel model;
};

TEST(Save, OfAModelWithEmptyParametersLoads) {
  for (const auto& [name, format] : state_formats()) {
    for (const Strategy strategy : all_strategies()) {
      SCOPED_TRACE(name + " " + std::string{to_string(strategy)});
      const TemporaryFolder folder;
      const ToyJob job = format.under(strategy);
      std::filesystem::path saved;
      run_ranks(job.ranks, [&](World& world) {
        EmptyParameters trained{world, job};
        const auto path = save(trained.model, folder / "run").path;
        if (world.rank() == 0) { saved = path; }
      });
      EXPECT_NO_THROW(CheckpointReader{saved}.verify());
      const ToyJob other = format.on(3).under(Strategy::zero3);
      run_ranks(other.ranks, [&](World& world) {
        EmptyParameters loaded{world, other};
        (void)load(loaded.model, saved);
        const auto again = save(loaded.model, folder / "again").path;
        if (world.rank() == 0) { EXPECT_EQ(difference(saved, again), ""); }
      });
    }
  }
}

// The weights of a model with masters are complete with these only.
TEST(Load, OfWeightsNeedsOnlyTheFilesOfTheWeightsThatTheModelHas) {
  for (const auto& [name, format] : state_formats()) {
    const TemporaryFolder folder;
    const ToyJob job = format.under(Strategy::zero3);
    const auto saved = train_and_save(job, 1, folder / "run");
    const auto file = saved / "optimizer.safetensors";
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
    const auto loads = [&](const ToyJob& into) {
      run_job(into, [&](World&, ToyTrainer& trainer) {
        (void)load(trainer.model(), saved, {}, {.what = LoadOptions::What::weights});
      });
    };
    if (job.options.compute == DType::fp32) {
      EXPECT_NO_THROW(loads(job)) << name;
    } else {
      EXPECT_THAT(message_of<FormatError>([&] { loads(job); }), HasSubstr(file.string())) << name;
    }
    EXPECT_THROW((void)load_and_save(job, saved, folder / "again"), FormatError);
    EXPECT_NO_THROW(verify_weights(saved));
    EXPECT_EQ(newest_checkpoint(folder / "run", LoadOptions::What::weights).path, saved);
    EXPECT_THROW((void)newest_checkpoint(folder / "run"), FormatError);
  }
}

// Loads fp32 weights, as in Hugging Face's files, into a bf16 model with remainders.
TEST(Load, OfForeignWeightsRoundsThemAndStartsMastersFromThem) {
  const TemporaryFolder folder;
  const auto saved = train_and_save(ToyJob{}.under(Strategy::ddp), 2, folder / "run");
  std::filesystem::create_directories(folder / "theirs");
  std::filesystem::copy_file(saved / "model.safetensors", folder / "theirs/model.safetensors");
  ToyJob job = state_formats()[2].second.under(Strategy::zero3);
  for (const auto& path : {folder / "theirs", folder / "theirs/model.safetensors"}) {
    run_job(job, [&](World&, ToyTrainer& trainer) {
      const auto before = exported(trainer.model(), tessera::StateTensor::parameters);
      const LoadReport report =
          load(trainer.model(), path, {},
               {.what = LoadOptions::What::weights,
                .only = [](const std::string& name) { return name != "root.table"; }});
      EXPECT_THAT(report.missing, IsEmpty());
      EXPECT_THAT(report.unexpected, IsEmpty());
      SafetensorsReader file{folder / "theirs/model.safetensors"};
      trainer.model().export_masters(
          [&](const ParameterInfo& info, std::int64_t first, std::span<const float> values) {
            std::vector<float> expected(values.size());
            file.read(info.full_name(), first, expected);
            const bool equal = std::ranges::equal(values, expected);
            EXPECT_EQ(equal, info.name != "table") << info.full_name();
          });
      const auto after = exported(trainer.model(), tessera::StateTensor::parameters);
      EXPECT_EQ(after.at("root.table"), before.at("root.table"));
      EXPECT_NO_THROW(trainer.step());
    });
  }
}

// A slash behind the folder's name changes no verdict on it.
TEST(Load, RefusesARenamedFolderAndOneWithoutItsManifestHoweverTheyAreWritten) {
  const TemporaryFolder folder;
  const ToyJob job = ToyJob{}.under(Strategy::ddp);
  const auto saved = train_and_save(job, 2, folder / "run");
  const auto renamed = folder / "run/step-00000007";
  const auto headless = folder / "other/step-00000002";
  std::filesystem::create_directories(folder / "other");
  std::filesystem::copy(saved, renamed, std::filesystem::copy_options::recursive);
  std::filesystem::copy(saved, headless, std::filesystem::copy_options::recursive);
  std::filesystem::remove(headless / "manifest.json");
  for (const LoadOptions::What what : {LoadOptions::What::weights, LoadOptions::What::everything}) {
    for (const char* const end : {"", "/", "//", "/."}) {
      const auto refused = [&](const std::filesystem::path& path) {
        return message_of<FormatError>([&] {
          run_job(job, [&](World&, ToyTrainer& trainer) {
            load(trainer.model(), path.string() + end, {}, {.what = what});
          });
        });
      };
      EXPECT_THAT(refused(renamed), HasSubstr("its manifest is of step 2")) << end;
      EXPECT_THAT(refused(headless), HasSubstr("manifest.json")) << end;
    }
  }
}

TEST(Load, RefusesWeightsBeyondTheModelsDtypeByNameAndCount) {
  const TemporaryFolder folder;
  const auto saved = train_and_save(ToyJob{}.under(Strategy::ddp), 2, folder / "run");
  std::filesystem::create_directories(folder / "theirs");
  SafetensorsReader from{saved / "model.safetensors"};
  std::vector<SafetensorsWriter::Declared> declared;
  for (const auto& [name, entry] : from.entries()) {
    declared.push_back({name, entry.shape, "F32"});
  }
  SafetensorsWriter writer{folder / "theirs/model.safetensors", declared};
  for (const auto& tensor : declared) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elems()), 1.0F);
    if (tensor.name == "block.0.weight") { values[5] = values[2] = 1e6F; }
    writer.write(tensor.name, values);
  }
  writer.finish();
  ToyJob job = ToyJob{}.under(Strategy::zero3);
  job.options.compute = DType::fp16;
  EXPECT_THAT(
      refusal<ConfigError>(job, folder / "theirs", {.what = LoadOptions::What::weights}),
      AllOf(HasSubstr("tensor 'block.0.weight' cannot be loaded: 2 of its values, the first "
                      "1000000 at element 2"),
            HasSubstr("range of fp16")));
}

CustomOptimizer one_state() {
  return {.name = "sign of two means",
          .states = 3,
          .lr = 0.01F,
          .update = [](const ShardUpdate& piece) {
            for (std::size_t i = 0; i < piece.weights.size() && *piece.apply != 0; ++i) {
              const float g = piece.gradient_at(i);
              piece.states[0][i] = 0.9F * piece.states[0][i] + 0.1F * g;
              piece.states[1][i] = 0.5F * piece.states[1][i] + 0.5F * g;
              piece.states[2][i] += g * g;
              const float up = piece.states[0][i] + piece.states[1][i];
              piece.weights[i] -= up > 0.0F ? piece.lr : -piece.lr;
            }
          }};
}

TEST(Load, RestoresTheStatesOfACustomOptimizer) {
  const TemporaryFolder folder;
  ToyJob job;
  job.optimizer = one_state();
  const auto whole = train_and_save(job.under(Strategy::zero2), 5, folder / "whole");
  const auto saved = train_and_save(job.under(Strategy::zero2), 2, folder / "saved");
  run_job(job.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
    (void)load(trainer.model(), saved);
    trainer.steps(3);
    const auto resumed = save(trainer.model(), folder / "resumed");
    if (world.rank() == 0) { EXPECT_EQ(difference(whole, resumed), ""); }
  });
  ToyJob another = job;
  std::get<CustomOptimizer>(another.optimizer).name = "another";
  EXPECT_THAT(refusal<ConfigError>(another.under(Strategy::zero3), saved),
              AllOf(HasSubstr("'sign of two means'"), HasSubstr("'another'")));
}

TEST(Load, RestoresTheTrainersValuesAndBuffers) {
  const TemporaryFolder folder;
  const ToyJob job = ToyJob{}.under(Strategy::zero3);
  std::filesystem::path saved;
  run_job(job, [&](World& world, ToyTrainer& trainer) {
    std::vector<float> mean(100'001, 0.5F);
    std::vector<double> count(1, 1e300);
    mean.back() = -1.0F;
    const auto path = save(trainer.model(), folder / "run",
                           {.values = {{"data", "row 17"}, {"seed", "a\"\n\xc3\xa9"}},
                            .buffers = {{"mean", {100'001}, {mean.data(), std::ssize(mean)}},
                                        {"count", {}, {count.data(), 1, DType::fp64}},
                                        {"none", {0, 4}, {nullptr, 0, DType::bf16}}}});
    if (world.rank() == 0) { saved = path; }
  });
  run_job(job.on(3), [&](World&, ToyTrainer& trainer) {
    std::vector<float> mean(100'001);
    std::vector<double> count(1);
    CheckpointExtras extras{.buffers = {{"mean", {100'001}, {mean.data(), std::ssize(mean)}},
                                        {"count", {}, {count.data(), 1, DType::fp64}},
                                        {"none", {0, 4}, {nullptr, 0, DType::bf16}}}};
    const LoadReport report = load(trainer.model(), saved, extras);
    EXPECT_EQ(report.values.at("data"), "row 17");
    EXPECT_EQ(report.values.at("seed"), "a\"\n\xc3\xa9");
    EXPECT_EQ(mean.front(), 0.5F);
    EXPECT_EQ(mean.back(), -1.0F);
    EXPECT_EQ(count.front(), 1e300);
    extras.buffers[0].shape = {7};
    extras.buffers[0].values.elems = 7;
    EXPECT_THAT(message_of<ConfigError>([&] { (void)load(trainer.model(), saved, extras); }),
                HasSubstr("buffer 'mean' is F32 [100001] in the checkpoint"));
    EXPECT_THAT(message_of<ConfigError>([&] { (void)load(trainer.model(), saved); }),
                HasSubstr("has a buffer 'mean'"));
  });
}

// Integers beyond 2^53 and single bytes must not pass through a floating-point number.
TEST(Load, RestoresIntegersAndBooleans) {
  const TemporaryFolder folder;
  const std::vector<std::int64_t> counts{std::numeric_limits<std::int64_t>::max(), -1, 0};
  const std::vector<std::uint8_t> mask{1, 0, 1, 1, 0};
  const std::vector<std::int16_t> small{-32'768, 7};
  const auto extras_of = [](auto& of_counts, auto& of_mask, auto& of_small) {
    return CheckpointExtras{.buffers = {{"counts", {3}, {of_counts.data(), 3, "I64"}},
                                        {"mask", {5, 1}, {of_mask.data(), 5, "BOOL"}},
                                        {"small", {2}, {of_small.data(), 2, "I16"}},
                                        {"none", {0}, {nullptr, 0, "U8"}}}};
  };
  std::filesystem::path saved;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
    auto own_counts = counts;
    auto own_mask = mask;
    auto own_small = small;
    CheckpointExtras extras = extras_of(own_counts, own_mask, own_small);
    const auto path = save(trainer.model(), folder / "run", extras);
    if (world.rank() == 0) { saved = path; }
    extras.buffers[0].values.dtype = "I65";
    EXPECT_THAT(
        message_of<ContractError>([&] { (void)save(trainer.model(), folder / "a", extras); }),
        AllOf(HasSubstr("'counts'"), HasSubstr("I65")));
  });
  const SafetensorsReader file{saved / "extras.safetensors"};
  EXPECT_EQ(file.entries().at("counts").dtype, "I64");
  EXPECT_EQ(file.entries().at("mask").dtype, "BOOL");
  EXPECT_EQ(file.entries().at("mask").bytes, 5U);
  run_job(ToyJob{}.under(Strategy::zero3).on(3), [&](World&, ToyTrainer& trainer) {
    std::vector<std::int64_t> own_counts(3);
    std::vector<std::uint8_t> own_mask(5);
    std::vector<std::int16_t> own_small(2);
    CheckpointExtras extras = extras_of(own_counts, own_mask, own_small);
    (void)load(trainer.model(), saved, extras);
    EXPECT_EQ(own_counts, counts);
    EXPECT_EQ(own_mask, mask);
    EXPECT_EQ(own_small, small);
    extras.buffers[1].values.dtype = "U8";
    EXPECT_THAT(
        message_of<ConfigError>([&] { (void)load(trainer.model(), saved, extras); }),
        HasSubstr("buffer 'mask' is BOOL [5, 1] in the checkpoint, but U8 [5, 1] in the program"));
  });
}

TEST(Load, ComesAfterOptimizeWithUnlessWeightsAloneAreLoaded) {
  const TemporaryFolder folder;
  const auto saved = train_and_save(ToyJob{}.under(Strategy::zero3), 1, folder / "run");
  run_ranks(2, [&](World& world) {
    ToyModel toy{world, {.strategy = Strategy::zero3, .purpose = Purpose::inference}, ToyJob{}.toy};
    EXPECT_THAT(message_of<ContractError>([&] { (void)load(toy.model(), saved); }),
                HasSubstr("optimize_with"));
    EXPECT_THAT(message_of<ContractError>([&] { (void)save(toy.model(), folder / "none"); }),
                HasSubstr("save: the model has no optimizer; call optimize_with"));
    EXPECT_THAT(message_of<ContractError>([&] { (void)save(toy.model(), ""); }),
                HasSubstr("save: the folder's name is empty"));
    ShardedModel declared{world};
    EXPECT_THAT(message_of<ContractError>([&] { (void)save(declared, folder / "none"); }),
                StartsWith("save: call materialize first"));
    EXPECT_THAT(message_of<ContractError>([&] { (void)load(declared, saved); }),
                StartsWith("load: call materialize first"));
    (void)load(toy.model(), saved, {}, {.what = LoadOptions::What::weights});
    const auto loaded = exported(toy.model(), tessera::StateTensor::parameters);
    SafetensorsReader file{saved / "model.safetensors"};
    std::vector<float> expected(loaded.at("block.0.weight").size());
    file.read("block.0.weight", 0, expected);
    EXPECT_EQ(loaded.at("block.0.weight"), expected);
  });
}

// The working folder belongs to the process, so that a program may change it at any time.
TEST(Save, KeepsARelativeFolderAsItWas) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "elsewhere");
  const WorkingFolder here{folder.path()};
  run_job(ToyJob{}.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
    Checkpointer checkpointer{trainer.model(), {.folder = "run"}};
    Checkpointer in_turn{trainer.model(), {.folder = "run", .asynchronous = false}};
    trainer.step();
    checkpointer.save({});
    world.barrier();
    if (world.rank() == 0) { std::filesystem::current_path(folder / "elsewhere"); }
    world.barrier();
    checkpointer.finish();
    EXPECT_TRUE(checkpointer.newest().is_absolute());
    trainer.step();
    in_turn.save({});
    EXPECT_NO_THROW((void)load(trainer.model(), checkpointer.newest()));
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder / "elsewhere"));
  EXPECT_EQ(newest_checkpoint(folder / "run").step, 2);
}

// Rank 0 writes them: what another rank gives would be lost.
TEST(Save, RefusesValuesThatDifferBetweenRanks) {
  const TemporaryFolder folder;
  std::atomic<int> told = 0;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
    trainer.step();
    const auto refused = [&](const CheckpointExtras& extras, const SaveOptions& options = {}) {
      ++told;
      return message_of<ContractError>(
          [&] { (void)save(trainer.model(), folder / "run", extras, options); });
    };
    const bool other = world.rank() == 2;
    EXPECT_THAT(refused({.values = {{"seed", other ? "8" : "7"}, {"step", "1"}}}),
                HasSubstr("'seed' is '7' on rank 0, but '8' on rank 2"));
    CheckpointExtras more{.values = {{"seed", "7"}}};
    if (other) { more.values["mine"] = "x"; }
    EXPECT_THAT(refused(more), HasSubstr("'mine' is missing on rank 0, but 'x' on rank 2"));
    std::vector<float> buffer(3);
    CheckpointExtras buffers;
    if (other) { buffers.buffers = {{"mine", {3}, {buffer.data(), 3}}}; }
    EXPECT_THAT(refused(buffers), HasSubstr("rank 2 would write other tensors or files"));
    EXPECT_THAT(refused({}, {.shard_bytes = other ? 2'000U : 1'000'000U}), HasSubstr("rank 2"));
    EXPECT_NO_THROW((void)save(trainer.model(), folder / "run"));
  });
  EXPECT_EQ(told, 16);
  EXPECT_EQ(newest_checkpoint(folder / "run").step, 1);
}

TEST(Save, RefusesABufferWithoutAnAddress) {
  const TemporaryFolder folder;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
    trainer.step();
    const CheckpointExtras extras{
        .buffers = {{.name = "mask", .shape = {3}, .values = {nullptr, 3, DType::fp32}}}};
    EXPECT_THAT(
        message_of<ContractError>([&] { (void)save(trainer.model(), folder / "a", extras); }),
        HasSubstr("buffer 'mask' has 3 elements, but no address"));
    (void)save(trainer.model(), folder / "a");  // as if the call had not been made
  });
}

TEST(Save, RefusesNamesThatAreNotUnique) {
  const TemporaryFolder folder;
  std::atomic<int> told = 0;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
    const SaveOptions same{.name = [](const ParameterInfo&) { return std::string{"x"}; }};
    EXPECT_THAT(
        message_of<ContractError>([&] { (void)save(trainer.model(), folder / "a", {}, same); }),
        HasSubstr("'x'"));
    ++told;
  });
  EXPECT_EQ(told, 4);
}

// Covers files with several tensors, files without data of some ranks, and a tensor larger than the
// limit of a file.
TEST(Save, DividesWeightsAndStateIntoFiles) {
  const TemporaryFolder folder;
  const ToyJob job = ToyJob{}.under(Strategy::zero3);
  run_job(job, [&](World& world, ToyTrainer& trainer) {
    trainer.steps(2);
    const std::filesystem::path many =
        save(trainer.model(), folder / "many", {}, {.shard_bytes = 2000});
    const auto one = save(trainer.model(), folder / "one");
    ToyTrainer resumed{world, job};
    (void)load(resumed.model(), many);
    const auto again = save(resumed.model(), folder / "again");
    if (world.rank() != 0) { return; }
    EXPECT_TRUE(std::filesystem::exists(many / "model.safetensors.index.json"));
    EXPECT_TRUE(std::filesystem::exists(many / "optimizer.safetensors.index.json"));
    EXPECT_EQ(difference(one, again), "");
  });
}

TEST(Save, ProvenanceSaysWhoWroteIt) {
  const TemporaryFolder folder;
  ToyJob job = ToyJob{}.under(Strategy::zero1);
  job.options.mesh = {{"replicate", 2}, {"shard", 2}};
  run_job(job, [&](World& world, ToyTrainer& trainer) {
    const std::filesystem::path path =
        save(trainer.model(), folder / "run", {}, {.command = "a \xff b"});
    if (world.rank() != 0) { return; }
    const auto said = nlohmann::json::parse(bytes_of_file(path / "provenance.json"));
    EXPECT_EQ(said.at("ranks"), 4);
    EXPECT_EQ(said.at("strategy"), "zero1");
    EXPECT_EQ(said.at("accumulate"), 1) << "a number";
    EXPECT_EQ(said.at("tuning.prefetch_backward"), 1) << "a number";
    EXPECT_EQ(said.at("mesh").at(1), (nlohmann::json{{"name", "shard"}, {"size", 2}}));
    EXPECT_EQ(said.at("accumulate_mode"), "deferred") << "what automatic stands for";
    EXPECT_EQ(said.at("command"), "a \xef\xbf\xbd b");
    EXPECT_EQ(said.at("date").get<std::string>().size(), 20U);
  });
}

// A dynamic scale continues; a model with a fixed scale, or none, keeps its own.
TEST(LossScaleAfterALoad, IsTheModelsUnlessBothAreDynamic) {
  const auto with = [](LossScaleMode mode, float initial) {
    ToyJob job;
    job.ranks = 2;
    job.options.compute = DType::fp16;
    job.options.loss_scaling = {.mode = mode, .initial = initial, .growth_interval = 2};
    return job.under(Strategy::zero3);
  };
  const auto scale_after = [&](const ToyJob& job, const std::filesystem::path& from,
                               const std::filesystem::path& to) {
    const std::filesystem::path saved = load_and_save(job, from, to);
    return checkpoint::parse_manifest("m", bytes_of_file(saved / "manifest.json"))
        .state.at("loss_scale");
  };
  const ToyJob moving = with(LossScaleMode::dynamic, 64.0F);
  const TemporaryFolder folder;
  const auto grown = train_and_save(moving, 4, folder / "dynamic");  // 64, doubled twice
  const auto fixed = train_and_save(with(LossScaleMode::fixed, 32.0F), 2, folder / "fixed");
  const auto off = train_and_save(with(LossScaleMode::off, 1.0F), 2, folder / "off");
  EXPECT_EQ(scale_after(moving, grown, folder / "a"), "256");
  EXPECT_EQ(scale_after(with(LossScaleMode::off, 1.0F), grown, folder / "b"), "1");
  EXPECT_EQ(scale_after(with(LossScaleMode::fixed, 8.0F), fixed, folder / "c"), "8");
  EXPECT_EQ(scale_after(moving, fixed, folder / "d"), "64");
  EXPECT_EQ(scale_after(moving, off, folder / "e"), "64");
}

}  // namespace
}  // namespace tessera::test::load_test
