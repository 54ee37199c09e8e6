// A training run that is stopped and continues with another number of ranks.
//
//   resume [strategy] [ranks] [ranks afterwards]
//
// The first job saves every 10 steps while it trains, and again when it is stopped after step 25.
// The second job finds the newest checkpoint and continues from it with its own number of ranks.
// The program compares its losses with those of an uninterrupted training, and exits with 1 if one
// differs by more than 1e-5.
//
// Both jobs take the same 24 samples in each step, whatever the number of ranks: the trainer keeps
// its own position in the data, and saves it with the model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/tessera.hpp"

namespace {

constexpr std::int64_t kInputs = 40;
constexpr std::int64_t kOutputs = 12;
constexpr int kBatch = 24;
constexpr int kSteps = 40;
constexpr int kStopped = 25;  // step after which the first job is stopped

/// Adds the gradient of 0.5 |W x + b - y|^2 over samples [first, first + count), drawn from a
/// hidden map. Returns their mean loss.
double fit(tessera::ShardedModel& model, tessera::Unit unit, int first, int count) {
  std::vector<float> x(kInputs), truth(kOutputs * kInputs);
  tessera::init::fill_normal(/*seed=*/9, 0, 0, 0.5F, truth);
  double loss = 0.0;
  { const auto p = model.forward(unit); }  // backward does all the work
  const auto g = model.backward(unit);
  const float* const weight = g["weight"];
  const float* const bias = g["bias"];
  float* const dweight = g.grad("weight");
  float* const dbias = g.grad("bias");
  for (int sample = first; sample < first + count; ++sample) {
    tessera::init::fill_normal(/*seed=*/8, static_cast<std::uint32_t>(sample), 0, 1.0F, x);
    for (std::int64_t o = 0; o < kOutputs; ++o) {
      float error = bias[o];
      for (std::int64_t i = 0; i < kInputs; ++i) {
        const auto at = static_cast<std::size_t>(o * kInputs + i);
        error += (weight[at] - truth[at]) * x[static_cast<std::size_t>(i)];
      }
      loss += 0.5 * static_cast<double>(error) * static_cast<double>(error) / count;
      dbias[o] += error / static_cast<float>(count);
      for (std::int64_t i = 0; i < kInputs; ++i) {
        dweight[o * kInputs + i] +=
            error * x[static_cast<std::size_t>(i)] / static_cast<float>(count);
      }
    }
  }
  return loss;
}

/// One job.
struct Job {
  tessera::Strategy strategy;
  int ranks;
  int last_step;
  std::filesystem::path folder;
  int every = 0;  // steps between saves; 0: no saves
  bool resumes = false;
};

/// Returns the losses of the job's steps, by step.
std::vector<double> train(const Job& job) {
  std::vector<double> losses(kSteps);
  tessera::run_ranks(job.ranks, [&](tessera::World& world) {
    tessera::ShardedModel model{world, {.strategy = job.strategy}};
    const tessera::Unit unit =
        model.add_unit("map", {{"weight", {kOutputs, kInputs}}, {"bias", {kOutputs}}});
    model.materialize(tessera::init::normal(/*seed=*/1, 0.1F));
    model.optimize_with(tessera::AdamW{.lr = 0.02F});

    int next_sample = 0;
    if (job.resumes) {
      const tessera::NewestCheckpoint newest = tessera::newest_checkpoint(job.folder);
      const tessera::LoadReport loaded = tessera::load(model, newest.path);
      next_sample = std::stoi(loaded.values.at("next_sample"));
      if (world.rank() == 0) {
        std::printf("resumed from %s on %d ranks, at sample %d\n",
                    newest.path.filename().string().c_str(), world.size(), next_sample);
      }
    }
    tessera::Checkpointer checkpointer{model, {.folder = job.folder, .every = job.every}};
    const auto extras = [&] {
      return tessera::CheckpointExtras{.values = {{"next_sample", std::to_string(next_sample)}}};
    };
    while (model.steps() < job.last_step) {
      const int rows = kBatch / world.size();
      const double loss = fit(model, unit, next_sample + world.rank() * rows, rows);
      model.step(&loss);
      next_sample += kBatch;
      const double mean = model.report().loss;
      if (world.rank() == 0) { losses[static_cast<std::size_t>(model.steps() - 1)] = mean; }
      // Starts to copy the state and returns; files are written during the next steps.
      checkpointer.after_step(extras);
    }
    if (job.every > 0) { checkpointer.save(extras()); }
    checkpointer.finish();
  });
  return losses;
}

}  // namespace

int main(int argc, char** argv) try {
  const tessera::Strategy strategy = tessera::parse_strategy(argc > 1 ? argv[1] : "zero3");
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 4;
  const int afterwards = argc > 3 ? std::atoi(argv[3]) : 3;
  if (ranks < 1 || afterwards < 1 || kBatch % ranks != 0 || kBatch % afterwards != 0) {
    throw tessera::ConfigError{"give numbers of ranks that divide the batch of 24"};
  }
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("tessera-resume-" + std::string{tessera::to_string(strategy)} + "-" + std::to_string(ranks) +
       "-" + std::to_string(afterwards));
  std::filesystem::remove_all(folder);

  const std::vector<double> whole = train({strategy, ranks, kSteps, folder});
  (void)train({strategy, ranks, kStopped, folder, 10});
  const std::vector<double> resumed = train({strategy, afterwards, kSteps, folder, 10, true});
  std::filesystem::remove_all(folder);

  double worst = 0.0;
  for (std::size_t step = kStopped; step < kSteps; ++step) {
    worst = std::max(worst, std::abs(whole[step] - resumed[step]));
  }
  std::printf("loss of step %d: %.6f, and %.6f without a stop; they differ by at most %.1e\n",
              kSteps, resumed.back(), whole.back(), worst);
  return worst <= 1e-5 && resumed.back() < whole.front() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "resume: %s\n", error.what());
  return 1;
}
