// A checkpoint does not depend on the mesh that wrote it, and a run on any mesh continues from it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "checkpoint/forwarding_files.hpp"
#include "checkpoint/mesh_job.hpp"
#include "checkpoint/saver.hpp"
#include "support/rounding.hpp"
#include "support/temporary_folder.hpp"
#include "support/whole_state.hpp"
#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/checkpoint/folders.hpp"
#include "tessera/checkpoint/weights.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::mesh_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Dims = std::vector<MeshDim>;

std::string name_of(const Dims& mesh) {
  std::string name;
  for (const MeshDim& dim : mesh) { name += fmt::format("{}{}", dim.name, dim.size); }
  return name.empty() ? "alone" : name;
}

const Dims kSavedOn{{"pipe", 2}, {"shard", 2}, {"tensor", 2}};

/// The meshes that a run resumes on.
const std::vector<Dims>& others() {
  static const std::vector<Dims> meshes{{},
                                        {{"shard", 3}},
                                        {{"tensor", 3}},
                                        {{"pipe", 3}},
                                        {{"pipe", 2}, {"replicate", 2}, {"tensor", 2}},
                                        {{"tensor", 5}, {"replicate", 2}}};
  return meshes;
}

std::vector<std::pair<std::string, MeshJob>> formats() {
  MeshJob fp32;
  MeshJob bf16;
  bf16.options.compute = DType::bf16;
  MeshJob remainders = bf16;
  remainders.options.master_weights = MasterWeights::remainder;
  MeshJob moments;
  moments.update.moments = MomentFormat::bf16;
  MeshJob int8;
  int8.units = in_whole_blocks;
  int8.options.align_elems = kMomentBlock;
  int8.update.moments = MomentFormat::int8;
  return {{"fp32", fp32},
          {"bf16", bf16},
          {"remainders", remainders},
          {"bf16_moments", moments},
          {"int8_moments", int8}};
}

class MeshFormats : public testing::TestWithParam<std::pair<std::string, MeshJob>> {};
INSTANTIATE_TEST_SUITE_P(All, MeshFormats, testing::ValuesIn(formats()),
                         [](const auto& tested) { return tested.param.first; });

TEST_P(MeshFormats, OneStateHasTheSameBytesOnEveryMeshAndResumesOnAnyMesh) {
  const TemporaryFolder folder;
  const MeshJob job = GetParam().second.on(kSavedOn);
  const bool rounds = GetParam().first != "fp32";
  // In fp32: a step's sum over the samples, and about 16 roundings of its update. In 16 or 8 bits a
  // value of the state at a boundary may be rounded the other way, by 2 u; an eighth of them are
  // allowed to be.
  const double near = rounds ? 2 * unit_roundoff(DType::bf16) / 8
                             : chain_difference(8 * (sum_roundings(MeshJob::kGlobalBatch) + 16));
  std::filesystem::path saved;
  WholeState state;
  std::vector<double> expected;
  run_job(job, [&](World& world, MeshTrainer& trainer) {
    trainer.steps(3);
    const std::filesystem::path path = save(trainer.model(), folder / "saved");
    save_state(world, trainer.model(), state);
    for (int i = 0; i < 5; ++i) {
      trainer.step();
      const double loss = trainer.loss();
      if (world.rank() == 0) { expected.push_back(loss); }
    }
    if (world.rank() == 0) { saved = path; }
  });
  EXPECT_EQ(state.not_partitioned(), "");
  EXPECT_LT(expected.back(), 0.95 * expected.front()) << "the job does not train";
  for (const Dims& mesh : others()) {
    SCOPED_TRACE(name_of(mesh));
    WholeState again;
    run_job(job.on(mesh), [&](World& world, MeshTrainer& trainer) {
      EXPECT_EQ(load(trainer.model(), saved).step, 3);
      const auto path = save(trainer.model(), folder / name_of(mesh));
      save_state(world, trainer.model(), again);
      if (world.rank() == 0) { EXPECT_EQ(difference(saved, path), ""); }
      for (const double loss : expected) {
        trainer.step();
        EXPECT_NEAR(trainer.loss(), loss, near * loss);
      }
    });
    EXPECT_EQ(again.not_partitioned(), "");
    EXPECT_EQ(difference(state, again), "");
  }
}

TEST(Meshes, AResumedRunHasTheBitsOfTheUninterruptedOne) {
  const TemporaryFolder folder;
  for (const Strategy strategy :
       {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
    SCOPED_TRACE(to_string(strategy));
    const bool ddp = strategy == Strategy::ddp;
    MeshJob job = MeshJob{}.under(strategy).on(
        {{"pipe", 2}, {ddp ? "replicate" : "shard", 2}, {"tensor", 2}});
    job.options.compute = DType::bf16;
    job.update.rounding = Rounding::stochastic;
    const std::string name{to_string(strategy)};
    const auto whole = train_and_save(job, 4, folder / ("whole" + name));
    const auto first = train_and_save(job, 2, folder / ("first" + name));
    run_job(job, [&](World& world, MeshTrainer& trainer) {
      (void)load(trainer.model(), first);
      Checkpointer checkpointer{trainer.model(), {.folder = folder / ("async" + name)}};
      trainer.steps(2);
      checkpointer.save({});
      trainer.step();
      checkpointer.finish();
      if (world.rank() == 0) { EXPECT_EQ(difference(whole, checkpointer.newest()), ""); }
    });
  }
}

TEST(Meshes, WithStateInTheHostPoolReadAndWriteTheSame) {
  const TemporaryFolder folder;
  MeshJob job = MeshJob{}.on(kSavedOn);
  job.options.compute = DType::bf16;
  const auto saved = train_and_save(job, 2, folder / "saved");
  job.options.offload = Offload::state;
  for (const float keep : {0.0F, 0.6F}) {
    job.options.offload_keep = keep;
    run_job(job.on({{"pipe", 3}, {"replicate", 2}, {"tensor", 2}}),
            [&](World& world, MeshTrainer& trainer) {
              (void)load(trainer.model(), saved);
              const auto again = save(trainer.model(), folder / fmt::format("again{}", keep));
              if (world.rank() == 0) { EXPECT_EQ(difference(saved, again), ""); }
            });
  }
}

/// Initial values computed on the host.
Initializer counted() {
  return [](const ParameterInfo& info, std::int64_t first, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::int64_t element = first + static_cast<std::int64_t>(i);
      out[i] = static_cast<float>(info.id) + static_cast<float>(element) / 1024.0F;
    }
  };
}

TEST(Meshes, StartFromTheWeightsOfOneRank) {
  for (const bool host : {false, true}) {
    for (const DType compute : {DType::fp32, DType::bf16}) {
      const TemporaryFolder folder;
      MeshJob job;
      job.options.compute = compute;
      if (host) { job.initial = counted(); }
      const auto alone = train_and_save(job, 0, folder / "alone");
      for (const Dims& mesh : {kSavedOn, others()[2], others()[4], Dims{{"tensor", 9}}}) {
        const auto saved = train_and_save(job.on(mesh), 0, folder / name_of(mesh));
        EXPECT_EQ(difference(alone, saved), "") << name_of(mesh);
      }
    }
  }
}

using Values = std::map<std::string, std::vector<float>>;

/// What ranks export before their first update.
struct Exports {
  std::mutex mutex;
  Values masters;  ///< of all ranks

  /// Returns a rank's parameters and gradients, and adds its masters to `masters`.
  std::pair<Values, Values> of(MeshTrainer& trainer) {
    const Values parameters = exported(trainer.model(), tessera::StateTensor::parameters);
    trainer.model().export_masters(
        [&](const ParameterInfo& info, std::int64_t first, std::span<const float> values) {
          const std::lock_guard lock{mutex};
          std::vector<float>& whole = masters[info.full_name()];
          whole.resize(static_cast<std::size_t>(info.shape.elems()));
          std::ranges::copy(values, whole.begin() + first);
        });
    Values gradients;
    trainer.step([&] { gradients = exported(trainer.model(), tessera::StateTensor::gradients); });
    return {parameters, gradients};
  }
};

TEST(Meshes, ExportWholeTensorsOnEveryRank) {
  MeshJob job;
  job.options.compute = DType::bf16;
  Exports alone;
  std::pair<Values, Values> expected;
  run_job(job, [&](World&, MeshTrainer& trainer) { expected = alone.of(trainer); });
  EXPECT_EQ(expected.first.size(), 11U);
  EXPECT_EQ(expected.second.size(), 9U);
  for (const Dims& mesh : {kSavedOn, others()[2], others()[4], Dims{{"pipe", 3}, {"tensor", 2}}}) {
    SCOPED_TRACE(name_of(mesh));
    Exports all;
    run_job(job.on(mesh), [&](World&, MeshTrainer& trainer) {
      const auto [parameters, gradients] = all.of(trainer);
      EXPECT_TRUE(parameters == expected.first);
      ASSERT_EQ(gradients.size(), expected.second.size());
      for (const auto& [name, found] : gradients) {
        // A mean of slopes below 3, one of each sample.
        const auto most = static_cast<float>(3 * order_difference(MeshJob::kGlobalBatch));
        EXPECT_THAT(found, testing::Pointwise(testing::FloatNear(most), expected.second.at(name)))
            << name;
      }
    });
    EXPECT_TRUE(all.masters == alone.masters);
  }
}

TEST(Meshes, WriteAndTakeWeightsOfOtherPrograms) {
  const TemporaryFolder folder;
  const MeshJob job = MeshJob{};
  const WeightName name = &ParameterInfo::full_name;
  run_job(job.on(kSavedOn), [&](World&, MeshTrainer& trainer) {
    save_weights(trainer.model(), folder / "weights.safetensors", name);
  });
  const auto alone = train_and_save(job, 0, folder / "alone");
  MeshJob again = job.on({{"tensor", 3}});
  again.initial = weights_from(folder / "weights.safetensors", name);
  EXPECT_EQ(difference(alone, train_and_save(again, 0, folder / "taken")), "");
  again.initial = init::constant(1.0F);
  run_job(again, [&](World& world, MeshTrainer& trainer) {
    (void)load(trainer.model(), folder / "weights.safetensors", {},
               {.name = name, .what = LoadOptions::What::weights});
    const auto loaded = save(trainer.model(), folder / "loaded");
    if (world.rank() == 0) { EXPECT_EQ(difference(alone, loaded), ""); }
  });
}

/// Peak device and host bytes of a rank with a Checkpointer.
std::pair<std::size_t, std::size_t> held_by(World& world, const MeshJob& job,
                                            const std::filesystem::path& folder) {
  MeshTrainer trainer{world, job};
  Checkpointer checkpointer{trainer.model(), {.folder = folder}};
  checkpointer.save({});
  checkpointer.finish();
  return {world.memory().report().peak_bytes, world.host_memory().report().peak_bytes};
}

TEST(Meshes, TakeThePlannedMemoryForASave) {
  const TemporaryFolder folder;
  MeshJob job = MeshJob{}.on(kSavedOn);
  job.options.compute = DType::bf16;
  std::vector<std::pair<std::size_t, std::size_t>> measured(8);
  run_ranks(8, [&](World& world) {
    measured[static_cast<std::size_t>(world.rank())] = held_by(world, job, folder / "run");
  });
  for (int rank = 0; rank < 8; ++rank) {
    simulate_rank({.rank = rank, .ranks = 8}, [&](World& world) {
      EXPECT_EQ(held_by(world, job, folder / "never"), measured[static_cast<std::size_t>(rank)])
          << rank;
    });
  }
}

// Ranks that hold copies of state in the host pool get them through device memory.
TEST(Meshes, TakeThePlannedMemoryForALoad) {
  const TemporaryFolder folder;
  MeshJob any;
  any.units = in_whole_blocks;  // with an offloaded optimizer ranks cannot add parts of gradients
  const auto saved = train_and_save(any.on(kSavedOn), 1, folder / "saved");
  const auto held = [&](World& world, const MeshJob& job) {
    MeshTrainer trainer{world, job};
    (void)load(trainer.model(), saved);
    return world.memory().report().peak_bytes;
  };
  const std::vector<std::pair<Strategy, Dims>> ways{
      {Strategy::zero3, {{"replicate", 2}, {"shard", 2}}},
      {Strategy::ddp, {{"replicate", 3}}},
      {Strategy::zero3, {{"shard", 2}, {"tensor", 2}}},
      {Strategy::zero3, kSavedOn},
      {Strategy::zero2, {{"pipe", 3}, {"replicate", 2}, {"tensor", 2}}}};
  for (const Offload offload : {Offload::none, Offload::optimizer, Offload::state}) {
    for (const auto& [strategy, mesh] : ways) {
      SCOPED_TRACE(fmt::format("{} {} {}", to_string(offload), to_string(strategy), name_of(mesh)));
      MeshJob job = any.under(strategy).on(mesh);
      job.options.offload = offload;
      std::vector<std::size_t> measured(static_cast<std::size_t>(job.ranks()));
      run_ranks(job.ranks(), [&](World& world) {
        measured[static_cast<std::size_t>(world.rank())] = held(world, job);
      });
      for (int rank = 0; rank < job.ranks(); ++rank) {
        simulate_rank({.rank = rank, .ranks = job.ranks()}, [&](World& world) {
          EXPECT_EQ(held(world, job), measured[static_cast<std::size_t>(rank)]) << rank;
        });
      }
    }
  }
}

// One rank adds up the sums of a chunk that lies on several ranks.
TEST(Meshes, FindDamageInSharedChunks) {
  const TemporaryFolder folder;
  const MeshJob job = MeshJob{}.on(kSavedOn);
  const auto saved = train_and_save(job, 1, folder / "saved");
  const std::string whole = bytes_of_file(saved / "model.safetensors");
  const std::size_t data =
      8 + static_cast<unsigned char>(whole[0]) + 256U * static_cast<unsigned char>(whole[1]);
  for (std::size_t at = data; at < whole.size(); at += 1999) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    std::ofstream{saved / "model.safetensors", std::ios::binary} << damaged;
    EXPECT_THAT(message_of<FormatError>([&] {
                  run_job(job.on({{"tensor", 3}}), [&](World&, MeshTrainer& trainer) {
                    (void)load(trainer.model(), saved);
                  });
                }),
                HasSubstr("are damaged"))
        << at;
  }
}

TEST(Meshes, ConvertMomentsOfEightBits) {
  const TemporaryFolder folder;
  MeshJob int8 = formats().back().second;
  MeshJob fp32 = int8;
  fp32.update.moments = MomentFormat::fp32;
  const LoadOptions convert{.convert_moments = true};
  const auto saved = train_and_save(int8.on(kSavedOn), 2, folder / "saved");
  std::map<std::string, std::filesystem::path> wide;
  for (const Dims& mesh : {Dims{}, Dims{{"tensor", 3}}}) {
    run_job(fp32.on(mesh), [&](World& world, MeshTrainer& trainer) {
      (void)load(trainer.model(), saved, {}, convert);
      const auto path = save(trainer.model(), folder / name_of(mesh));
      if (world.rank() == 0) { wide[name_of(mesh)] = path; }
    });
  }
  EXPECT_EQ(difference(wide.at("alone"), wide.at("tensor3")), "");
  std::map<std::string, std::filesystem::path> back;
  for (const Dims& mesh : {Dims{}, kSavedOn}) {
    run_job(int8.on(mesh), [&](World& world, MeshTrainer& trainer) {
      (void)load(trainer.model(), wide.at("tensor3"), {}, convert);
      const auto path = save(trainer.model(), folder / ("back" + name_of(mesh)));
      if (world.rank() == 0) { back[name_of(mesh)] = path; }
    });
  }
  EXPECT_EQ(difference(back.at("alone"), back.at(name_of(kSavedOn))), "");
}

TEST(Meshes, ThatCutWithinBlocksRefuseMomentsOfEightBits) {
  MeshJob job;
  job.options.align_elems = kMomentBlock;
  job.update.moments = MomentFormat::int8;
  EXPECT_NO_THROW(run_job(job, [](World&, MeshTrainer&) {}));
  EXPECT_THAT(
      message_of<ConfigError>([&] { run_job(job.on(kSavedOn), [](World&, MeshTrainer&) {}); }),
      AllOf(HasSubstr("'table.w' of shape [37, 5] along dimension 0"),
            HasSubstr("choose `moments` bf16 or fp32")));
}

/// Saves on two machines without a shared file system, each with one half of the ranks. Rehearses
/// before: what that accepts can be saved, and what it refuses cannot.
void save_in_halves(const MeshJob& job, const TemporaryFolder& folder) {
  run_job(job, [&](World& world, MeshTrainer& trainer) {
    FilesOf files{2 * world.rank() / world.size()};
    checkpoint::Saver saver{trainer.model(), {.folder = folder / files.machine()}, files};
    const auto failure_in = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const Error& error) { return error.what(); }
      return {};
    };
    const std::string rehearsed = failure_in([&] { saver.rehearse(); });
    const std::filesystem::path run = folder / files.machine();
    EXPECT_TRUE(!std::filesystem::exists(run) || std::filesystem::is_empty(run));
    world.barrier();
    EXPECT_EQ(failure_in([&] { saver.begin({}); }).empty(), rehearsed.empty());
    if (!rehearsed.empty()) { throw Error{rehearsed}; }
    EXPECT_NO_THROW(verify_part(saver.newest().path));
  });
}

TEST(Meshes, WithoutASharedFileSystemRefuseToCutChecksumChunks) {
  const TemporaryFolder folder;
  const Dims mesh{{"shard", 2}, {"tensor", 2}};
  EXPECT_NO_THROW(save_in_halves(formats().back().second.on(mesh), folder));
  const TemporaryFolder other;
  EXPECT_THAT(
      message_of<Error>([&] { save_in_halves(MeshJob{}.on(mesh), other); }),
      AllOf(HasSubstr("rank 2 does not find"), HasSubstr("give all machines one shared folder")));
}

// The ranks that share a chunk are on one machine.
TEST(Meshes, SaveInPartsWhereEachStageOfAPipelineHasItsMachine) {
  for (const Dims& mesh :
       {Dims{{"pipe", 2}, {"tensor", 2}}, Dims{{"pipe", 2}, {"replicate", 2}, {"tensor", 3}},
        Dims{{"pipe", 2}, {"shard", 2}, {"tensor", 2}}}) {
    SCOPED_TRACE(name_of(mesh));
    const TemporaryFolder folder;
    const MeshJob job = MeshJob{}.on(mesh);
    const auto whole = train_and_save(job, 0, folder / "shared");
    ASSERT_NO_THROW(save_in_halves(job, folder));
    for (const int machine : {0, 1}) {
      const std::string part = fmt::format("step-00000000.part-{}", machine);
      std::filesystem::create_directories(folder / "all");
      std::filesystem::rename(folder / fmt::format("machine{}", machine) / part,
                              folder / "all" / part);
    }
    run_job(job.on({{"shard", 3}}), [&](World& world, MeshTrainer& trainer) {
      (void)load(trainer.model(), folder / "all/step-00000000");
      const auto again = save(trainer.model(), folder / "again").path;
      if (world.rank() == 0) { EXPECT_EQ(difference(whole, again), ""); }
    });
  }
}

}  // namespace
}  // namespace tessera::test::mesh_test
