#include "checkpoint/saver.hpp"

#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/kept_path.hpp"
#include "checkpoint/longest_wait.hpp"
#include "checkpoint/manifest_contents.hpp"
#include "checkpoint/manifest_state.hpp"
#include "checkpoint/provenance.hpp"
#include "tessera/base/error.hpp"

namespace tessera::checkpoint {
namespace {

Saver::Options with_kept_folder(Saver::Options options) {
  if (options.folder.empty()) {
    throw ContractError{options.call +
                        ": the folder's name is empty; name the folder of the run's checkpoints"};
  }
  options.folder = kept_path(options.folder);
  return options;
}

}  // namespace

Saver::Saver(ShardedModel& model, Options options, FileSystem& files)
    : model_{model},
      world_{model.world()},
      options_{with_kept_folder(std::move(options))},
      files_{files},
      store_{options_.folder, files},
      state_{std::make_unique<engine::TrainingState>(model, options_.call)} {
  if (!state_->has_optimizer()) {
    throw ContractError{options_.call +
                        ": the model has no optimizer; call optimize_with before it is saved"};
  }
  plan_ = std::make_unique<SavePlan>(*state_, options_.save);
  if (options_.mode == SaveMode::asynchronous) {
    source_ = std::make_unique<SnapshotSource>(model.world(), *state_, *plan_);
  } else {
    source_ = std::make_unique<StagedSource>(model.world(), *state_, *plan_);
  }
}

// During unwinding the background must not wait for work that peers will not do. The state ends the
// copies in flight before their memory and events are freed.
Saver::~Saver() {
  if (under_way() && std::uncaught_exceptions() > uncaught_) { world_.quiesce(); }
  run_.reset();
  state_.reset();
}

SaveRun::Parts Saver::parts(SaveAim aim) {
  return {.world = world_,
          .plan = *plan_,
          .source = *source_,
          .store = store_,
          .files = files_,
          .keep = options_.keep,
          .folder = options_.folder,
          .call = options_.call,
          .aim = aim,
          .beside_later = aim == SaveAim::rehearse || !newest_.path.empty() || continues_run()};
}

/// Whether the model was loaded from a checkpoint in the folder, perhaps not the newest one.
bool Saver::continues_run() const {
  std::error_code failed;
  return std::filesystem::equivalent(state_->loaded_run(), options_.folder, failed);
}

void Saver::rehearse() {
  expects(!under_way(), "checkpoint: a save is in progress");
  if (world_.simulated()) { return; }
  SaveTexts all = texts();
  Manifest listed = all.manifest;
  list_in(listed, plan_->layout(), plan_->roles());
  check_contents((options_.folder / kManifestName).string(), listed);
  run_ = std::make_unique<SaveRun>(parts(SaveAim::rehearse), std::move(all), CheckpointExtras{});
  finish();
}

void Saver::begin(const CheckpointExtras& extras) {
  expects(!under_way(), "checkpoint: a save is already in progress; finish it first");
  SaveTexts all = texts();
  source_->begin();
  if (world_.simulated()) {
    const SavedExtras counted{world_, extras};
    return;
  }
  run_ = std::make_unique<SaveRun>(parts(SaveAim::save), std::move(all), extras);
  if (options_.mode == SaveMode::synchronous) { finish(); }
}

void Saver::poll() {
  try {
    if (!run_->poll()) { return; }
  } catch (...) {
    // It may be committed, with old ones that could not be removed.
    if (run_->is_committed()) { newest_ = run_->committed(); }
    run_.reset();
    throw;
  }
  if (run_->is_committed()) {
    newest_ = run_->committed();
  } else {
    newest_.warning = run_->little_room();
  }
  run_.reset();
}

void Saver::finish() {
  while (under_way()) {
    run_->wait(longest_wait(world_));
    poll();
  }
}

SaveTexts Saver::texts() const {
  Manifest manifest;
  const engine::StateCounters counters = state_->counters();
  manifest.step = counters.steps;
  manifest.state = manifest_state(*state_, model_.options(), counters);
  return {std::move(manifest), provenance_of(model_, options_.save.command)};
}

}  // namespace tessera::checkpoint

namespace tessera {

SaveReport save(ShardedModel& model, const std::filesystem::path& folder,
                const CheckpointExtras& extras, const SaveOptions& options) {
  checkpoint::Saver saver{model, {.folder = folder, .save = options}};
  saver.begin(extras);
  return saver.newest();
}

}  // namespace tessera
