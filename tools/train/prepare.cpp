#include <fmt/format.h>

#include <exception>
#include <optional>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/options/checkpoint.hpp"
#include "tools/options/job_options.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/ranks.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/plan/budget.hpp"
#include "tools/plan/room.hpp"
#include "tools/train/documents.hpp"
#include "tools/train/init_file.hpp"
#include "tools/train/resume.hpp"
#include "tools/train/run_outputs.hpp"
#include "tools/train/trainer.hpp"

namespace tessera::tools {
namespace {

/// What a user may not expect of `path` as text.
void tell_of_bytes(const char* option, const std::string& path) {
  const std::string container = container_of_data(path);
  if (!container.empty()) {
    tell(
        fmt::format("warning: {}: {} is {}; its bytes are the tokens as they are, not what it "
                    "holds\n",
                    option, path, container));
  }
  const std::vector<std::string> skipped = skipped_by_open_bytes(path);
  if (skipped.empty()) { return; }
  tell(fmt::format("note: {}: {} of the entries of {} {} left out: {}\n", option, skipped.size(),
                   path, skipped.size() == 1 ? "is" : "are", shown_names(skipped)));
}

std::shared_ptr<const TokenSource> open_as_bytes(const Settings& settings, const char* option,
                                                 const std::string& path) {
  if (has_rank0(settings)) { tell_of_bytes(option, path); }
  return open_bytes(path);
}

std::shared_ptr<const TokenSource> open_held_out(const Settings& settings) {
  if (settings.eval_data.empty()) {
    for (const char* option : {"--eval-every", "--eval-batches"}) {
      if (settings.has(option)) {
        throw ConfigError(fmt::format("{} has no effect without --eval-data PATH", option));
      }
    }
    return nullptr;
  }
  if (settings.steps == 0) {
    throw ConfigError(
        "--eval-data has no effect with --steps 0: evaluations follow steps; leave one of them "
        "out");
  }
  return settings.tokens.empty() ? open_as_bytes(settings, "--eval-data", settings.eval_data)
                                 : open_tokens(settings.eval_data, settings.token_format);
}

std::shared_ptr<const TokenSource> open_source(const Settings& settings) {
  if (!settings.data.empty() && !settings.tokens.empty()) {
    throw ConfigError("--data and --tokens cannot be combined; give one of them");
  }
  if (settings.tokens.empty() && settings.has("--token-format")) {
    throw ConfigError("--token-format has no effect without --tokens FILE");
  }
  if (!settings.data.empty()) { return open_as_bytes(settings, "--data", settings.data); }
  if (!settings.tokens.empty()) { return open_tokens(settings.tokens, settings.token_format); }
  if (settings.steps > 0) {
    throw ConfigError("no data to train on; give --data PATH (text) or --tokens FILE");
  }
  return nullptr;
}

void check_held_out(const Job& job) {
  check_tokens(*job.held_out, job.model.config.vocab);
  check_documents(*job.held_out, job.held_documents);
  const Settings& settings = job.settings;
  const int ranks = data_ranks(settings);
  const double windows = static_cast<double>(ranks) * static_cast<double>(settings.batch);
  const double needed = windows * static_cast<double>(job.model.config.seq) + 1;
  if (static_cast<double>(job.held_out->size()) < needed) {
    throw ConfigError(fmt::format(
        "--eval-data: {}: {} tokens are too few; a batch takes {} {}s x {} samples x {} tokens, "
        "and one more: {:.0f}",
        settings.eval_data, job.held_out->size(), ranks, data_rank_word(settings), settings.batch,
        job.model.config.seq, needed));
  }
  const auto batches =
      static_cast<std::int64_t>(static_cast<double>(job.held_out->size() - 1) /
                                (windows * static_cast<double>(job.model.config.seq)));
  if (settings.has("--eval-batches") && batches < settings.eval_batches && has_rank0(settings)) {
    tell(fmt::format("note: --eval-batches: {} has {} batch{}; an evaluation takes all of them\n",
                     settings.eval_data, batches, batches == 1 ? "" : "es"));
  }
}

void check_data(const Job& job) {
  check_tokens(*job.source, job.model.config.vocab);
  check_documents(*job.source, job.documents);
  const Settings& settings = job.settings;
  // Doubles, since the product may exceed 64 bits.
  const int ranks = data_ranks(settings);
  const double windows = static_cast<double>(ranks) * static_cast<double>(settings.batch) *
                         static_cast<double>(settings.sharded.accumulate);
  const double needed = windows * static_cast<double>(job.model.config.seq) + 1;
  if (static_cast<double>(job.source->size()) < needed) {
    throw ConfigError(fmt::format(
        "{}: {} tokens are too few; a step takes {} {}s x {} samples x {} micro-batches x {} "
        "tokens, and one more: {:.0f}",
        settings.data.empty() ? settings.tokens : settings.data, job.source->size(), ranks,
        data_rank_word(settings), settings.batch, settings.sharded.accumulate, job.model.config.seq,
        needed));
  }
}

void require_room(const Job& job, const StrategyPlan& plan, const Room& room) {
  const double need = bytes_in(room, plan);
  if (need <= room.free_bytes) { return; }
  const bool device = room.holds == Room::Holds::device;
  throw OutOfMemory(fmt::format(
      "{} ranks of {} under {} need {:.3g} GiB{} and {} has {}{}; use fewer ranks on it, a smaller "
      "--batch, a smaller model, or a strategy that shards more",
      room.ranks.size(), job.model.name, to_string(plan.strategy), need / (1 << 30),
      room.holds == Room::Holds::host_pools ? " of host memory" : "", room.name,
      format_bytes(static_cast<std::size_t>(room.free_bytes)), device ? " free" : ""));
}

// Linux overcommits memory, and kills the process that touches what is not there. Other machines
// check their own ranks.
void check_memory(const Job& job, const std::vector<Room>& rooms) {
  for (const StrategyPlan& plan : job.plans) {
    require_budget(plan, job.settings);
    for (const Room& room : rooms) { require_room(job, plan, room); }
  }
}

StrategyPlan plan_of_sampling(const Job& job, Strategy strategy) {
  return {strategy, plan_sampling(job.settings, job.model, strategy, job.settings.ranks)};
}

/// Chooses the checkpoint again while the process with rank 0 holds the lock on the folder of
/// --checkpoint: until then another run may have saved there.
void choose_again(Job& job, const std::optional<SeenParts>& seen) {
  if (!resumes(job.settings)) { return; }
  job.resume = find_resume(job, seen);
  if (has_rank0(job.settings)) { refuse_other_run(job); }
}

/// This process's part of prepare(), for settled `settings`.
Job checked(const Settings& settings, const std::vector<Strategy>& strategies,
            const std::vector<Room>& rooms, Use use, const std::optional<SeenParts>& seen = {}) {
  if (use == Use::training) {
    check_gathering(settings, strategies);
    check_optimizer(settings);
    check_reduce_dtype(settings);
  }
  Job job{settings, settings.named_model(), settings.schedule(), {}, nullptr};
  job.model.config.validate();
  for (const Strategy strategy : strategies) {
    job.plans.push_back(use == Use::training ? plan_asked(settings, strategy)
                                             : plan_of_sampling(job, strategy));
  }
  check_memory(job, rooms);
  if (use == Use::training) {
    job.source = open_source(settings);
    job.documents = documents_of(settings, DataOf::training);
    if (job.source) { check_data(job); }
    if (!settings.checkpoint.empty() || resumes(settings)) {
      job.data_content = content_of(job.source.get());
      job.pack = pack_of(job.documents);
      job.loss_mask = mask_of(job.documents);
    }
    if (resumes(settings)) { job.resume = find_resume(job, seen); }
    job.held_out = open_held_out(settings);
    if (job.held_out) {
      job.held_documents = documents_of(settings, DataOf::held_out);
      check_held_out(job);
    }
  }
  InitFile init;
  InitPath init_path;
  if (!settings.init.empty()) {
    init_path = find_init(settings.init);
    job.settings.init = init_path.path;
    init = examine_init(init_path.path, job.model.config);
  }
  job.init_names = init.names;
  if (!has_rank0(settings)) { return job; }
  job.outputs = open_outputs(settings);
  refuse_other_run(job);
  for (const std::string& message : init_path.messages) { tell(message); }
  if (!settings.init.empty()) {
    verify_init(init_path.path);
    tell_of_init(init_path.path, init);
  }
  return job;
}

/// *Collective.* Runs `body`, which is not collective; a failure on one rank is a failure on all.
template <class Body>
void together(World& world, const Body& body) {
  std::exception_ptr error;
  try {
    body();
  } catch (...) { error = std::current_exception(); }
  fail_together(world, error);
}

}  // namespace

Job prepare(const Settings& asked, const std::vector<Strategy>& strategies, Use use) {
  const Settings settings = settle(asked);
  if (settings.comm == CommChoice::local) {
    Job job = checked(settings, strategies, rooms_of_threads(settings), use);
    choose_again(job, {});
    return job;
  }
  std::optional<Job> job;
  Settings unlimited = settings;  // the plan checks the budget, with a better message
  unlimited.world.budget_bytes.reset();
  run_on_ranks(unlimited, [&](World& world) {
    const std::vector<Room> rooms = rooms_of_process(world);
    const Placement placement = placement_of(world, settings);
    std::optional<SeenParts> seen = seen_parts(world, resumed_run(settings));
    std::string options;
    std::string init;
    together(world, [&] {
      check_placement(settings, placement);
      job = checked(settings, strategies, rooms, use, seen);
    });
    seen = seen_parts(world, resumed_run(settings));
    together(world, [&] {
      choose_again(*job, seen);
      options = job_options(*job);
      init = fingerprint_of_weights(job->settings.init);
    });
    const std::vector<std::string> all_options = world.exchange(options);
    const std::vector<std::string> inits = world.exchange(init);
    together(world, [&] {
      check_same_options(all_options);
      check_same_init(settings, inits);
    });
  });
  return *job;
}

}  // namespace tessera::tools
