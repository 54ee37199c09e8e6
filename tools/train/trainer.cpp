#include "tools/train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/checkpoint/weights.hpp"
#include "tessera/data/loader.hpp"
#include "tessera/nn/decoder.hpp"
#include "tools/common/noted_signals.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/options/checkpoint.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/ranks.hpp"
#include "tools/train/init_file.hpp"
#include "tools/train/rank_gpt.hpp"
#include "tools/train/rank_places.hpp"
#include "tools/train/report.hpp"
#include "tools/train/run_values.hpp"

namespace tessera::tools {
namespace {

SamplerOptions sampler_options(const Settings& settings, const World& world) {
  SamplerOptions options;
  options.batch = settings.batch;
  options.ranks = data_ranks(settings);
  options.rank = data_index(settings, world.rank());
  options.accumulate = settings.sharded.accumulate;
  options.shuffle = settings.shuffle ? Shuffle::on : Shuffle::off;
  options.seed = settings.seed;
  return options;
}

std::vector<RankMemory> exchange_memory(World& world, const ModelStateBytes& state,
                                        std::size_t loaded_host_bytes) {
  const MemoryReport report = world.memory().report();
  nlohmann::json mine = {report.peak_bytes,    state.parameters,
                         state.gradients,      state.optimizer,
                         state.host,           world.host_memory().report().peak_bytes,
                         world.host_threads(), loaded_host_bytes};
  for (std::size_t c = 0; c < kCategories; ++c) {
    mine.push_back(report.at_peak[static_cast<Category>(c)]);
  }
  std::vector<RankMemory> all;
  for (const std::string& text : world.exchange(mine.dump())) {
    const auto values = nlohmann::json::parse(text).get<std::vector<std::size_t>>();
    expects(values.size() == mine.size(), "exchange_memory: another rank made another call");
    RankMemory memory{static_cast<int>(all.size()),
                      values[0],
                      {},
                      {values[1], values[2], values[3], values[4]},
                      values[5],
                      static_cast<int>(values[6]),
                      values[7]};
    for (std::size_t c = 0; c < kCategories; ++c) {
      memory.at_peak[static_cast<Category>(c)] = values[8 + c];
    }
    all.push_back(memory);
  }
  return all;
}

/// The checkpoint that --resume chose is damaged.
class DamagedCheckpoint : public FormatError {
 public:
  using FormatError::FormatError;
};

/// Each process chooses the checkpoint it continues from, so they must compare.
void require_same_step(World& world, const Job& job) {
  const auto steps = every_rank(world, static_cast<std::size_t>(job.steps_before()));
  if (std::ranges::adjacent_find(steps, std::not_equal_to{}) == steps.end()) { return; }
  throw ConfigError(
      "--resume: ranks find different checkpoints; give every machine the same folder");
}

nn::MicroBatch micro_batch_of(const TokenBatch& batch) {
  return {batch.inputs, batch.targets, batch.first_keys};
}

std::int64_t counted_targets(const TokenBatch& batch) {
  return std::ssize(batch.targets) - std::ranges::count(batch.targets, kIgnoredTarget);
}

/// One rank's part of a run.
class RankTrainer {
 public:
  RankTrainer(World& world, const Job& job, Strategy strategy)
      : world_{world},
        job_{job},
        gpt_{world, job.settings, job.model.config, strategy},
        clocks_{StepClock{world.device()}, StepClock{world.device()}},
        first_{job.steps_before()} {
    gpt_.materialize(initial_weights());
    gpt_.optimize();
    if (job.resume) { load_checkpoint(); }
    loaded_host_bytes_ = world.host_memory().report().peak_bytes;
    gpt_.reserve();
    checkpointer_ = gpt_.checkpointer();
    if (world.rank() == 0 && checkpointer_ && !checkpointer_->warning().empty()) {
      tell(fmt::format("warning: --checkpoint: {}\n", checkpointer_->warning()));
    }
  }

  void train(const OnStep& on_step) {
    const Settings& settings = job_.settings;
    TokenLoader loader{job_.source, job_.model.config.seq, sampler_options(settings, world_),
                       job_.resume ? job_.resume->data_steps : 0, job_.documents};
    std::optional<StepUnderWay> former;  // reported once the next step is enqueued
    for (std::int64_t step = first_; step < settings.steps && stopped_by_ == 0; ++step) {
      StepUnderWay now{step};
      try {
        enqueue(loader, now);
        tell_of(former, on_step);
      } catch (const NumericError&) {  // of this step
        tell_of(former, on_step);
        throw;
      }
      if (step + 1 == settings.steps) {
        stopped_by_ = 0;
      }  // the run is complete: nothing is left to stop
      const bool waits = waits_after(step);
      if (waits) { tell_of_last(now, on_step); }
      former = waits ? std::optional<StepUnderWay>{} : std::optional{std::move(now)};
      save_if_due(step + 1, former, on_step);
      if (waits && records_after(step)) {
        recording_ = collect_recording(world_, step + 1, recorded_ranks());
      }
    }
  }

  /// Saves the final state, unless it has been saved.
  void save_end() {
    if (!checkpointer_) { return; }
    const std::int64_t steps = gpt_.model().steps();
    keep_failure([&] { checkpointer_->finish(); });
    const SaveReport newest = checkpointer_->report();
    if (!newest.path.empty() && newest.step == steps) { return; }
    checkpointer_->save(extras_after(steps));
    checkpointer_->finish();
  }
  /// Waits for the save in progress.
  void finish_saves() {
    if (checkpointer_) {
      keep_failure([&] { checkpointer_->finish(); });
    }
  }

  [[nodiscard]] ShardedModel& model() noexcept { return gpt_.model(); }
  [[nodiscard]] Recording take_recording() noexcept { return std::move(recording_); }
  /// The signal that ended training before its last step; 0 if none did.
  [[nodiscard]] int stopped_by() const noexcept { return stopped_by_; }
  /// Why a checkpoint could not be written, if no step has reported it.
  [[nodiscard]] const std::string& not_saved() const noexcept { return not_saved_; }
  [[nodiscard]] int saves_failed() const noexcept { return saves_failed_; }
  /// The most that this rank's host pool held before the first step.
  [[nodiscard]] std::size_t loaded_host_bytes() const noexcept { return loaded_host_bytes_; }
  /// The newest checkpoint of this run; empty if there is none.
  [[nodiscard]] SaveReport checkpoint() const {
    return checkpointer_ ? checkpointer_->report() : SaveReport{};
  }

 private:
  /// When the device started a step, and when it ended it.
  struct StepClock {
    explicit StepClock(Device& device)
        : begin{device.make_timed_event()}, end{device.make_timed_event()} {}
    OwnedEvent begin;
    OwnedEvent end;
  };

  /// A step that has been enqueued.
  struct StepUnderWay {
    std::int64_t step;                     ///< from 0
    std::vector<TokenBatch> batches = {};  ///< kept until the step has read them
    std::size_t peak_bytes = 0;
  };

  /// All ranks learn of damage, and all of the same damage.
  void load_checkpoint() {
    try {
      gpt_.load_from(job_.resume->path);
    } catch (const FormatError& error) {
      if (!job_.settings.resume) { throw; }
      throw DamagedCheckpoint(error.what());
    }
  }

  [[nodiscard]] Initializer initial_weights() {
    const std::string& init = job_.settings.init;
    if (job_.resume) { return init::constant(0.0F); }  // the checkpoint has the values
    if (!init.empty()) { return weights_from(init, weight_name_in(job_.init_names)); }
    const std::optional<nn::HubConfig>& hub = job_.settings.hub;
    return hub ? nn::hub_weights(*job_.settings.model, *hub) : gpt_.initializer();
  }

  [[nodiscard]] CheckpointExtras extras_after(std::int64_t steps) const {
    const std::int64_t before = job_.resume ? job_.resume->data_steps : 0;
    return {.values = run_values(job_, before + steps - first_), .buffers = {}};
  }

  /// A step is reported before a checkpoint holds it: a run that is killed in between would
  /// otherwise leave a log without it for good. A checkpoint that is written beside the steps is
  /// complete some steps later.
  void save_if_due(std::int64_t steps, std::optional<StepUnderWay>& last, const OnStep& on_step) {
    if (!checkpointer_) { return; }
    keep_failure([&] {
      checkpointer_->after_step([&] {
        if (last && !saves_beside_steps(job_.settings)) {
          tell_of_last(*std::exchange(last, std::nullopt), on_step);
        }
        return extras_after(steps);
      });
    });
  }

  /// Keeps a failure to write for the next report, and lets the run continue. Errors of the job are
  /// rethrown.
  template <class Action>
  void keep_failure(const Action& action) {
    try {
      action();
    } catch (const CommError&) { throw; } catch (const DeviceError&) {
      throw;
    } catch (const ContractError&) { throw; } catch (const NumericError&) {
      throw;
    } catch (const Error& error) {
      not_saved_ = error.what();
      ++saves_failed_;
    }
  }

  void enqueue(TokenLoader& loader, StepUnderWay& now) {
    const auto passes = [&] {
      gpt_.run([&](int /*micro_batch*/) -> nn::MicroBatch {
        return micro_batch_of(now.batches.emplace_back(loader.next()));
      });
      gpt_.update(job_.schedule.at(now.step));
    };
    const StepClock& clock = clock_of(now.step);
    world_.compute_stream().record(clock.begin.get());
    if (job_.settings.graph && now.step - first_ >= kStepsBeforeGraphs) {
      world_.run_as_graph(passes);
    } else {
      passes();
    }
    world_.compute_stream().record(clock.end.get());
    now.peak_bytes = world_.memory().report().peak_bytes;
  }

  // A device that works beside the host has the next step queued while the host reports one, so
  // reporting costs it no time. On a CPU rank it would only delay the report.
  [[nodiscard]] bool waits_after(std::int64_t step) const {
    return world_.device().kind() == DeviceKind::cpu || step - first_ < kStepsBeforeGraphs ||
           step + 1 == job_.settings.steps || stopped_by_ != 0 || evaluates_after(step) ||
           records_after(step);
  }
  [[nodiscard]] bool evaluates_after(std::int64_t step) const {
    const Settings& settings = job_.settings;
    const bool due = (step + 1) % settings.eval_every == 0 || step + 1 == settings.steps;
    return job_.held_out && due && stopped_by_ == 0;
  }
  [[nodiscard]] bool records_after(std::int64_t step) const {
    const std::int64_t due = first_ + recorded_step(job_.settings.steps - first_);
    return job_.settings.records() && (step + 1 == due || (step + 1 < due && stopped_by_ != 0));
  }

  /// The ranks that a trace or a report shows.
  [[nodiscard]] std::vector<int> recorded_ranks() const {
    const int shown = job_.settings.trace.empty() ? kRanksShown : world_.size();
    std::vector<int> ranks = pipe_ranks(job_.settings);
    for (int rank = 0; rank < std::min(shown, world_.size()); ++rank) { ranks.push_back(rank); }
    std::ranges::sort(ranks);
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

  /// Waits for the last step and reports it, with the held-out loss if that is due.
  void tell_of_last(const StepUnderWay& step, const OnStep& on_step) {
    StepRecord record = record_of(step, gpt_.report());
    record.last = step.step + 1 == job_.settings.steps || stopped_by_ != 0;
    if (evaluates_after(step.step)) {
      record.eval_loss = held_out_loss();
      if (!record.eval_loss && world_.rank() == 0) {
        tell(
            "note: --eval-data: no token of the batches that are evaluated counts, so there is no "
            "eval_loss\n");
      }
    }
    if (world_.rank() == 0) { on_step(record); }
  }

  /// Reports the step before the last, unless that has been done.
  void tell_of(std::optional<StepUnderWay>& former, const OnStep& on_step) {
    if (!former) { return; }
    const StepReport report = gpt_.previous_report();
    const StepRecord record = record_of(*std::exchange(former, std::nullopt), report);
    if (world_.rank() == 0) { on_step(record); }
  }

  /// Waits for the step's end.
  [[nodiscard]] StepRecord record_of(const StepUnderWay& step, const StepReport& report) {
    const StepClock& clock = clock_of(step.step);
    clock.end.get().wait();
    StepRecord record;
    record.report = report;
    record.seconds = clock.end.get().seconds_since(clock.begin.get());
    record.tokens_per_second =
        static_cast<double>(job_.settings.tokens_per_step()) / record.seconds;
    record.peak_bytes = agree_on_end(step);
    record.stopped_by = stopped_by_;
    record.not_saved = std::exchange(not_saved_, {});
    record.moved = world_.rank() == 0 && job_.outputs && job_.outputs->checkpoint &&
                   job_.outputs->checkpoint->renew();
    return record;
  }

  /// Every rank's bytes, and whether its process was asked to stop: sent in the same exchange, so
  /// that all ranks learn it after the same step.
  [[nodiscard]] std::vector<std::size_t> agree_on_end(const StepUnderWay& step) {
    const bool last = step.step + 1 == job_.settings.steps;
    const int noted = last ? 0 : NotedSignals::noted();
    std::vector<std::size_t> peaks;
    for (const std::string& text : world_.exchange(fmt::format("{} {}", step.peak_bytes, noted))) {
      std::size_t end = 0;
      peaks.push_back(std::stoull(text, &end));
      const int signal = std::stoi(text.substr(end));
      if (stopped_by_ == 0) { stopped_by_ = signal; }
    }
    return peaks;
  }

  /// At most two steps are in progress.
  [[nodiscard]] const StepClock& clock_of(std::int64_t step) const {
    return clocks_[static_cast<std::size_t>(step % 2)];
  }

  // Evaluates the first windows of the held-out data, distributed like those of a step: the same
  // every time, and for any number of ranks with the same global batch. Nothing if no target
  // counts.
  std::optional<double> held_out_loss() {
    const Settings& settings = job_.settings;
    SamplerOptions options = sampler_options(settings, world_);
    options.accumulate = 1;
    options.shuffle = Shuffle::off;
    const std::int64_t windows = window_count(*job_.held_out, job_.model.config.seq);
    const std::int64_t batches =
        std::min(settings.eval_batches, windows / (settings.batch * data_ranks(settings)));
    TokenLoader loader{job_.held_out, job_.model.config.seq, options, 0, job_.held_documents};
    double loss = 0;
    double counted = 0;  // micro-batches, or targets
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      const TokenBatch tokens = loader.next();
      const auto weight = settings.masks() ? static_cast<double>(counted_targets(tokens)) : 1.0;
      loss += gpt_.evaluate(micro_batch_of(tokens)) * weight;
      counted += weight;
    }
    const double all = world_.sum(counted);
    return all > 0 ? std::optional{world_.sum(loss) / all} : std::nullopt;
  }

  World& world_;
  const Job& job_;
  RankGpt gpt_;
  std::array<StepClock, 2> clocks_;
  std::int64_t first_;                          // steps that were made before this run
  std::unique_ptr<Checkpointer> checkpointer_;  // declared after the model that it refers to
  int saves_failed_ = 0;
  std::size_t loaded_host_bytes_ = 0;
  std::string not_saved_;  // of a checkpoint, and not reported yet
  Recording recording_;
  int stopped_by_ = 0;  // agreed by all ranks
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

RunResult run_training(const Job& job, Strategy strategy, const OnStep& on_step,
                       const OnReady& on_ready) {
  RunResult result;
  result.strategy = strategy;
  const auto rank_body = [&](World& world) {
    if (job.resume) { require_same_step(world, job); }
    std::optional<RankTrainer> begun;
    try {
      begun.emplace(world, job, strategy);
    } catch (const DamagedCheckpoint& error) {
      const bool tells = world.rank() == 0 || job.settings.comm != CommChoice::local;
      if (tells) { result.damage = error.what(); }
      return;
    }
    RankTrainer& trainer = *begun;
    const std::vector<std::string> places = rank_places(world, job.settings);
    if (world.rank() == 0) { on_ready(places); }
    if (job.settings.steps > 0) {
      try {
        trainer.train([&](const StepRecord& record) {
          result.steps.push_back(record);
          on_step(record);
        });
      } catch (const NumericError&) {  // of all ranks
        trainer.finish_saves();
        throw;
      }
    }
    trainer.save_end();
    std::vector<RankMemory> memory =
        exchange_memory(world, trainer.model().state_bytes(), trainer.loaded_host_bytes());
    std::vector<DeviceLedger> devices = gather_device_ledgers(world);
    if (world.rank() == 0) {
      result.parameters = trainer.model().parameter_elems();
      result.ranks = std::move(memory);
      result.devices = std::move(devices);
      result.recording = trainer.take_recording();
      result.stopped_by = trainer.stopped_by();
      result.not_saved = trainer.not_saved();
      result.saves_failed = trainer.saves_failed();
      result.checkpoint = trainer.checkpoint();
    }
  };
  run_on_ranks(job.settings, rank_body);
  return result;
}

}  // namespace tessera::tools
