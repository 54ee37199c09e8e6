#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/data/documents.hpp"
#include "tessera/data/token_source.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/memory/tracker.hpp"
#include "tessera/profile/ledger.hpp"
#include "tools/options/settings.hpp"
#include "tools/plan/planner.hpp"
#include "tools/train/init_file.hpp"
#include "tools/train/recording.hpp"
#include "tools/train/resume.hpp"
#include "tools/train/run_outputs.hpp"

namespace tessera::tools {

/// A training run after all checks: what can be known before the first step is in order.
struct Job {
  Settings settings;  ///< settled: see ranks.hpp
  NamedModel model;
  Schedule schedule;
  std::vector<StrategyPlan> plans;                        ///< of the strategies that will run
  std::shared_ptr<const TokenSource> source;              ///< null if no step needs data
  std::shared_ptr<const TokenSource> held_out = nullptr;  ///< null if none is to be evaluated
  Documents documents = {};                               ///< of `source`
  Documents held_documents = {};                          ///< of `held_out`
  std::shared_ptr<RunOutputs> outputs = nullptr;  ///< null except in the process with rank 0
  InitNames init_names = {};                      ///< in settings.init
  std::string data_content = {};      ///< of `source`, if checkpoints are written or read
  std::string pack = {};              ///< pack_of(documents), likewise
  std::string loss_mask = {};         ///< mask_of(documents), likewise
  std::optional<Resume> resume = {};  ///< the checkpoint that the run continues from, if any

  /// The steps that were made before this run.
  [[nodiscard]] std::int64_t steps_before() const noexcept { return resume ? resume->step : 0; }
  /// Whether no steps are left.
  [[nodiscard]] bool is_done() const noexcept { return resume && resume->step >= settings.steps; }

  /// The plan of `rank` under `strategy`, one of those that will run.
  [[nodiscard]] const RankPlan& planned(Strategy strategy, int rank) const;
};

/// What a job is for.
enum class Use : std::uint8_t { training, sampling };

/// Opens the data and checks everything that can be checked without training: the ranks, sizes that
/// must match, that every token is in the vocabulary, that the data suffices for a step, the
/// weights file, and that outputs can be written. `strategies` are those that will run: each is
/// planned.
///
/// Order:  *collective* in a job of processes: a failure of one is the failure of all.
/// Errors: ConfigError or FormatError that says what to change; OutOfMemory if a plan exceeds the
///         budget or the machine.
[[nodiscard]] Job prepare(const Settings& settings, const std::vector<Strategy>& strategies,
                          Use use = Use::training);

/// One optimizer step as rank 0 sees it.
struct StepRecord {
  StepReport report;
  double seconds = 0;                   ///< on the device's clock, from its start to its end
  double tokens_per_second = 0;         ///< of the job, in that time
  std::vector<std::size_t> peak_bytes;  ///< of each rank, so far
  std::optional<double> eval_loss;      ///< of the held-out data after the step, if measured
  int stopped_by = 0;          ///< the signal that ends the run after this step or the next; or 0
  bool last = false;           ///< of the run
  std::string not_saved = {};  ///< why a checkpoint could not be written, first known in this step
  bool moved = false;          ///< whether the folder of --checkpoint was found renamed or removed
};

/// *Collective.* The numbers of all ranks.
[[nodiscard]] std::vector<std::size_t> every_rank(World& world, std::size_t number);

struct RankMemory {
  int rank = 0;
  std::size_t peak_bytes = 0;
  CategoryBytes at_peak;
  ModelStateBytes state;
  std::size_t host_peak_bytes = 0;    ///< of its host pool
  int host_threads = 0;               ///< threads that it computes with on the host
  std::size_t loaded_host_bytes = 0;  ///< peak of the host pool before the first step
};

/// The cost and the results of a run under one strategy, in the process with rank 0; empty
/// elsewhere.
struct RunResult {
  Strategy strategy{};
  std::int64_t parameters = 0;
  std::vector<StepRecord> steps;
  std::vector<RankMemory> ranks;
  std::vector<DeviceLedger> devices;  ///< memory of each device at the end; none for CPU ranks
  Recording recording;                ///< if settings.records()
  int stopped_by = 0;                 ///< the signal that ended it before its last step; or 0
  std::string not_saved = {};         ///< why a save at the end failed, if no step reported it
  int saves_failed = 0;               ///< checkpoints that could not be written during the run
  std::string damage =
      {};  ///< damage in the checkpoint of --resume, in all processes; no step was made
  SaveReport checkpoint;  ///< the newest that the run wrote; empty if none

  /// The median without the first two steps (of all steps, if there are at most two).
  [[nodiscard]] double seconds_per_step() const;
};

/// Called on rank 0's thread when all ranks have their initial state, with the lines of
/// `rank_places`.
using OnReady = std::function<void(const std::vector<std::string>& places)>;
/// Called on rank 0's thread after each step.
using OnStep = std::function<void(const StepRecord&)>;

/// Trains `job` under `strategy` on its ranks, threads or this process's, from the start or from
/// `job.resume`. Saves checkpoints if requested, the last one at the end. NumericError if the
/// gradient stays non-finite (--max-skips): the last step is then not saved. If a checkpoint cannot
/// be written during the run, a step reports it (StepRecord::not_saved); for the last checkpoint
/// that is an Error.
///
/// A signal that any rank's process has noted (NotedSignals) ends the run after the same step on
/// all ranks, as if it were the last; held-out data is then not evaluated.
///
/// If the load of --resume's checkpoint finds damage, that is not an error: see RunResult::damage.
[[nodiscard]] RunResult run_training(
    const Job& job, Strategy strategy, const OnStep& on_step,
    const OnReady& on_ready = [](const auto&) {});

}  // namespace tessera::tools
