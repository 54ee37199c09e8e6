#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/toy_model.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test {

/// A job that trains the toy. A step has the same 24 tokens on any number of ranks.
struct ToyJob {
  static constexpr int kGlobalBatch = 24;

  int ranks = 4;
  ModelOptions options = {};
  Optimizer optimizer = AdamW{.lr = 0.02F};
  OptimizerOptions optimizer_options = {.clip_norm = 0.5F};
  ToyConfig toy = {.vocab = 37, .hidden = 29, .blocks = 2};
  WorldOptions world = {};

  /// Uses this strategy; hybrid in two groups where the number of ranks allows it.
  [[nodiscard]] ToyJob under(Strategy strategy) const {
    ToyJob job = *this;
    job.options.strategy = strategy;
    job.options.shard_group = 0;
    if (strategy == Strategy::hybrid) {
      job.options.shard_group = ranks % 2 == 0 ? ranks / 2 : ranks;
    }
    return job;
  }
  [[nodiscard]] ToyJob on(int count) const {
    ToyJob job = *this;
    job.ranks = count;
    return job.under(options.strategy);
  }
};

/// A rank of the job.
class ToyTrainer {
 public:
  ToyTrainer(World& world, const ToyJob& job) : world_{world}, toy_{world, job.options, job.toy} {
    toy_.model().optimize_with(job.optimizer, job.optimizer_options);
  }
  [[nodiscard]] ShardedModel& model() { return toy_.model(); }
  /// The next step; returns its loss. Calls `before_update` once the gradients are complete.
  double step(const std::function<void()>& before_update = {}) {
    const std::int64_t first = model().steps() * ToyJob::kGlobalBatch;
    const int rows = ToyJob::kGlobalBatch / world_.size();
    const std::int64_t mine = std::int64_t{world_.rank()} * rows;
    const double loss = toy_.forward_backward(first + mine, rows);
    if (before_update) { before_update(); }
    model().step(&loss);
    return model().report().loss;
  }
  std::vector<double> steps(int count) {
    std::vector<double> losses;
    for (int i = 0; i < count; ++i) { losses.push_back(step()); }
    return losses;
  }

 private:
  World& world_;
  ToyModel toy_;
};

/// Runs `body` on each rank of the job.
inline void run_job(const ToyJob& job, const std::function<void(World&, ToyTrainer&)>& body) {
  run_ranks(
      job.ranks,
      [&](World& world) {
        ToyTrainer trainer{world, job};
        body(world, trainer);
      },
      job.world);
}

/// Trains `steps` steps and saves into `folder`; returns the checkpoint.
inline std::filesystem::path train_and_save(const ToyJob& job, int steps,
                                            const std::filesystem::path& folder) {
  std::filesystem::path saved;
  run_job(job, [&](World& world, ToyTrainer& trainer) {
    trainer.steps(steps);
    const std::filesystem::path path = save(trainer.model(), folder);
    if (world.rank() == 0) { saved = path; }
  });
  return saved;
}

/// Loads `from` into a new job and saves that.
inline std::filesystem::path load_and_save(const ToyJob& job, const std::filesystem::path& from,
                                           const std::filesystem::path& folder,
                                           const LoadOptions& options = {}) {
  std::filesystem::path saved;
  run_job(job, [&](World& world, ToyTrainer& trainer) {
    (void)load(trainer.model(), from, {}, options);
    const std::filesystem::path path = save(trainer.model(), folder);
    if (world.rank() == 0) { saved = path; }
  });
  return saved;
}

inline std::string bytes_of_file(const std::filesystem::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// The files of a checkpoint except provenance.json, by name.
inline std::map<std::string, std::string> files_of(const std::filesystem::path& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator{checkpoint}) {
    const std::string name = entry.path().filename().string();
    if (name != "provenance.json") { files[name] = bytes_of_file(entry.path()); }
  }
  return files;
}

/// The names of files that differ between two checkpoints; "no files" if there are none.
inline std::string difference(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto left = files_of(a);
  const auto right = files_of(b);
  if (left.empty() || right.empty()) { return "no files"; }
  std::set<std::string> names;
  for (const auto& [name, bytes] : left) {
    if (!right.contains(name) || right.at(name) != bytes) { names.insert(name); }
  }
  for (const auto& [name, bytes] : right) {
    if (!left.contains(name)) { names.insert(name); }
  }
  std::string text;
  for (const std::string& name : names) { text += name + " "; }
  return text;
}

/// How training state is kept, by name.
inline std::vector<std::pair<std::string, ToyJob>> state_formats() {
  ToyJob fp32;
  ToyJob bf16;
  bf16.options.compute = DType::bf16;
  bf16.toy.small_dtype = DType::fp32;
  ToyJob remainders = bf16;
  remainders.options.master_weights = MasterWeights::remainder;
  ToyJob quantised;
  quantised.options.align_elems = kMomentBlock;
  quantised.optimizer_options.moments = MomentFormat::int8;
  ToyJob fp16;
  fp16.options.compute = DType::fp16;
  fp16.optimizer = Lion{.lr = 0.001F};
  fp16.optimizer_options.moments = MomentFormat::bf16;
  return {{"fp32", fp32},
          {"bf16", bf16},
          {"remainders", remainders},
          {"int8_moments", quantised},
          {"fp16_lion_bf16_moments", fp16}};
}

}  // namespace tessera::test
