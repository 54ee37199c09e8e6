#include "trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rank_gpt.hpp"
#include "ranks.hpp"
#include "report.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/weights.hpp"
#include "tessera/data/loader.hpp"
#include "tessera/nn/gpt.hpp"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The first steps learn the order of units and make what later ones use again.
constexpr std::int64_t kStepsBeforeGraphs = 2;

SamplerOptions sampler_options(const Settings& settings, const World& world) {
  SamplerOptions options;
  options.batch = settings.batch;
  options.ranks = world.size();
  options.rank = world.rank();
  options.accumulate = settings.accumulate;
  options.shuffle = settings.shuffle ? Shuffle::on : Shuffle::off;
  options.seed = settings.seed;
  return options;
}

std::vector<RankMemory> exchange_memory(World& world, const ModelStateBytes& state) {
  const MemoryReport report = world.memory().report();
  nlohmann::json mine = {report.peak_bytes, state.parameters, state.gradients, state.optimizer,
                         world.host_memory().report().peak_bytes};
  for (std::size_t c = 0; c < kCategories; ++c) {
    mine.push_back(report.at_peak[static_cast<Category>(c)]);
  }
  std::vector<RankMemory> all;
  for (const std::string& text : world.exchange(mine.dump())) {
    const auto values = nlohmann::json::parse(text).get<std::vector<std::size_t>>();
    RankMemory memory{
        static_cast<int>(all.size()), values[0], {}, {values[1], values[2], values[3]}, values[4]};
    for (std::size_t c = 0; c < kCategories; ++c) {
      memory.at_peak[static_cast<Category>(c)] = values[5 + c];
    }
    all.push_back(memory);
  }
  return all;
}

/// One rank's part of a run.
class RankTrainer {
 public:
  RankTrainer(World& world, const Job& job, Strategy strategy)
      : world_{world}, job_{job}, gpt_{world, job.settings, job.model.config, strategy} {
    const std::string& init = job.settings.init;
    gpt_.materialize(init.empty() ? gpt_.initializer() : weights_from(init, nn::gpt2_weight_name));
  }

  void train(const std::function<void(const StepRecord&)>& on_step) {
    const Settings& settings = job_.settings;
    gpt_.prepare();
    TokenLoader loader{job_.source, job_.model.config.seq, sampler_options(settings, world_)};
    for (std::int64_t step = 0; step < settings.steps; ++step) {
      StepRecord record = run_step(loader, step);
      record.eval_loss = held_out_loss(step + 1);
      if (world_.rank() == 0) { on_step(record); }
      if (settings.records() && step + 1 == recorded_step(settings.steps)) {
        const int ranks = settings.trace.empty() ? kRanksShown : world_.size();
        recording_ = collect_recording(world_, step + 1, ranks);
      }
    }
  }

  void save() {
    const std::filesystem::path folder = job_.settings.checkpoint;
    if (!folder.empty()) {
      save_weights(gpt_.model(), folder / "model.safetensors", nn::gpt2_weight_name);
    }
  }

  [[nodiscard]] ShardedModel& model() noexcept { return gpt_.model(); }
  [[nodiscard]] Recording take_recording() noexcept { return std::move(recording_); }

 private:
  StepRecord run_step(TokenLoader& loader, std::int64_t step) {
    const auto begin = Clock::now();
    std::vector<TokenBatch> batches;  // kept until the step has read them
    const auto passes = [&] {
      for (int micro = 0; micro < job_.settings.accumulate; ++micro) {
        const TokenBatch& batch = batches.emplace_back(loader.next());
        gpt_.micro_batch(batch.inputs, batch.targets);
      }
      gpt_.update(job_.schedule.at(step));
    };
    if (job_.settings.graph && step >= kStepsBeforeGraphs) {
      world_.run_as_graph(passes);
    } else {
      passes();
    }
    StepRecord record;
    record.report = gpt_.report();
    record.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    record.tokens_per_second =
        static_cast<double>(job_.settings.tokens_per_step()) / record.seconds;
    record.peak_bytes = every_rank(world_, world_.memory().report().peak_bytes);
    return record;
  }

  // The first windows of the held-out data, dealt out as those of a step are: the same every time,
  // and for any number of ranks with the same global batch.
  std::optional<double> held_out_loss(std::int64_t steps) {
    const Settings& settings = job_.settings;
    const bool due = steps % settings.eval_every == 0 || steps == settings.steps;
    if (!job_.held_out || !due) { return {}; }
    SamplerOptions options = sampler_options(settings, world_);
    options.accumulate = 1;
    options.shuffle = Shuffle::off;
    const std::int64_t windows = window_count(*job_.held_out, job_.model.config.seq);
    const std::int64_t batches =
        std::min(settings.eval_batches, windows / (settings.batch * world_.size()));
    TokenLoader loader{job_.held_out, job_.model.config.seq, options};
    double loss = 0;
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      const TokenBatch tokens = loader.next();
      loss += gpt_.evaluate(tokens.inputs, tokens.targets);
    }
    return world_.sum(loss) / static_cast<double>(batches * world_.size());
  }

  World& world_;
  const Job& job_;
  RankGpt gpt_;
  Recording recording_;
};

}  // namespace

std::vector<std::size_t> every_rank(World& world, std::size_t number) {
  std::vector<std::size_t> all;
  for (const std::string& text : world.exchange(std::to_string(number))) {
    all.push_back(std::stoull(text));
  }
  return all;
}

const RankPlan& Job::planned(Strategy strategy, int rank) const {
  const auto plan = std::find_if(plans.begin(), plans.end(),
                                 [&](const StrategyPlan& p) { return p.strategy == strategy; });
  expects(plan != plans.end(), "Job::planned: a strategy that was not prepared");
  return plan->of(rank);
}

double RunResult::seconds_per_step() const {
  std::vector<double> seconds;
  for (std::size_t i = steps.size() > 2 ? 2 : 0; i < steps.size(); ++i) {
    seconds.push_back(steps[i].seconds);
  }
  if (seconds.empty()) { return 0; }
  std::sort(seconds.begin(), seconds.end());
  const std::size_t half = seconds.size() / 2;
  return seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
}

RunResult run_training(const Job& job, Strategy strategy, const OnStep& on_step) {
  RunResult result;
  result.strategy = strategy;
  const auto rank_body = [&](World& world) {
    RankTrainer trainer{world, job, strategy};
    if (job.settings.steps > 0) {
      trainer.train([&](const StepRecord& record) {
        result.steps.push_back(record);
        on_step(record);
      });
    }
    trainer.save();
    std::vector<RankMemory> memory = exchange_memory(world, trainer.model().state_bytes());
    std::vector<DeviceLedger> devices = gather_device_ledgers(world);
    if (world.rank() == 0) {
      result.parameters = trainer.model().parameter_elems();
      result.ranks = std::move(memory);
      result.devices = std::move(devices);
      result.recording = trainer.take_recording();
    }
  };
  run_on_ranks(job.settings, rank_body);
  return result;
}

}  // namespace tessera::tools
