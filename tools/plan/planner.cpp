#include "tools/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <span>

#include "tessera/base/error.hpp"
#include "tessera/world/simulate.hpp"
#include "tools/options/checkpoint.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/ranks.hpp"
#include "tools/plan/tensor_key.hpp"
#include "tools/train/rank_gpt.hpp"

namespace tessera::tools {
namespace {

// The first micro-batch finds no earlier state, the last reduces deferred gradients; the others are
// alike.
constexpr int kPlannedMicroBatches = 3;

/// The number of micro-batches that holds as much as `settings.sharded.accumulate` of them.
int planned_micro_batches(const Settings& settings) {
  const int stages = ranks_along(settings, "pipe");
  if (stages == 1) { return std::min(settings.sharded.accumulate, kPlannedMicroBatches); }
  // GPipe holds all of them; under other schedules a rank is ahead by at most twice the number of
  // ranks.
  const bool all = settings.pipe_schedule == PipeSchedule::gpipe;
  return all ? settings.sharded.accumulate : std::min(settings.sharded.accumulate, 2 * stages);
}

/// The number of units of a stack.
std::int64_t stack_units(std::int64_t parameters) {
  constexpr std::int64_t most = 64;
  return std::min(parameters, most);
}

/// Tokens that nobody reads: zeros, to which the operating system assigns no physical memory.
class NoTokens {
 public:
  explicit NoTokens(std::size_t count)
      : count_{count},
        data_{static_cast<std::int32_t*>(
                  std::calloc(std::max<std::size_t>(count, 1), sizeof(std::int32_t))),
              &std::free} {
    if (!data_) { throw std::bad_alloc{}; }
  }
  [[nodiscard]] std::span<const std::int32_t> span() const noexcept {
    return {data_.get(), count_};
  }

 private:
  std::size_t count_;
  std::unique_ptr<std::int32_t, decltype(&std::free)> data_;
};

Settings planned_settings(const Settings& settings) {
  Settings planned = settings;
  planned.sharded.accumulate = planned_micro_batches(planned);
  return planned;
}

void run_gpt(RankGpt& gpt, const Settings& settings, const nn::DecoderConfig& config) {
  gpt.materialize(gpt.initializer());
  gpt.optimize();
  if (resumes(settings) && settings.steps > 0) { gpt.load_from({}); }  // reads nothing here
  gpt.reserve();
  const std::unique_ptr<Checkpointer> checkpointer = gpt.checkpointer();
  if (settings.steps == 0) { return; }
  const NoTokens tokens{static_cast<std::size_t>(settings.batch * config.seq)};
  gpt.run([&](int /*micro_batch*/) { return nn::MicroBatch{tokens.span(), tokens.span()}; });
  gpt.update(settings.lr);
  if (!settings.eval_data.empty()) {
    static_cast<void>(gpt.evaluate({tokens.span(), tokens.span()}));
  }
}

/// A stack's parameters have their own names.
CheckpointerOptions stack_checkpoints(const Settings& settings) {
  CheckpointerOptions options = checkpointer_options(settings);
  options.save.name = {};
  return options;
}

void run_stack(ShardedModel& model, const Settings& settings, std::int64_t parameters, int rank) {
  const std::vector<Unit> units = make_stack(model, settings, parameters, rank);
  std::optional<Checkpointer> checkpointer;
  if (!settings.checkpoint.empty()) { checkpointer.emplace(model, stack_checkpoints(settings)); }
  for (int micro = 0; micro < settings.sharded.accumulate; ++micro) {
    for (const Unit unit : units) { const auto scope = model.forward(unit); }
    std::for_each(units.rbegin(), units.rend(),
                  [&](Unit unit) { const auto scope = model.backward(unit); });
  }
  model.step();
}

/// The most that a rank may hold; beyond it a plan ends with OutOfMemory.
using Limit = std::optional<std::size_t>;

/// What `plan` distinguishes ranks by.
std::string kind_of_rank(const PlanOptions& options, int rank) {
  if (rank == 0 || options.mesh.empty()) { return rank == 0 ? "rank 0" : "others"; }
  const MeshShape mesh{options.mesh};
  const std::string key = options.tensor_key ? options.tensor_key(mesh.index("tensor", rank)) : "";
  return fmt::format("pipe {}, {}", mesh.index("pipe", rank), key);
}

/// Runs `body`, which returns the part of its memory that is model state, on the distinct ranks.
std::vector<RankPlan> plan_ranks(const Settings& settings, int ranks, Limit limit,
                                 const TensorKey& tensor_key,
                                 const std::function<ModelStateBytes(World&)>& body) {
  PlanOptions options;
  options.ranks = ranks;
  options.backend = {.device = settings.world.device, .comm = planned_comm(settings, ranks)};
  options.world = world_options(settings);
  options.world.trace = false;
  options.world.budget_bytes =
      limit;  // empty: the plan says what is needed, whatever the machine has
  options.mesh = settings.sharded.mesh;
  options.tensor_key = tensor_key;
  const auto kind_of = [&](int rank) { return kind_of_rank(options, rank); };
  std::map<std::string, ModelStateBytes> states;
  const std::vector<PlannedRank> planned =
      plan(options, [&](World& world) { states[kind_of(world.rank())] = body(world); });
  std::vector<RankPlan> all;
  for (const PlannedRank& rank : planned) {
    all.push_back({rank.rank, rank.count, rank.ranks, rank.memory, states.at(kind_of(rank.rank)),
                   rank.host_peak_bytes});
  }
  return all;
}

// Activations are planned last, and take most of the memory of models with many layers: this finds
// out whether they fit before the first of 10,000 layers is declared.
void require_room_for_activations(World& world, const Settings& settings,
                                  const nn::DecoderConfig& config, Strategy strategy) {
  if (!world.memory().budget_bytes() || settings.steps == 0) { return; }
  const nn::DecoderBytes bytes = nn::Decoder::bytes_needed(
      config, gpt_options(settings), settings.batch, world, model_options(settings, strategy));
  world.memory().require_room(Category::activations, bytes.activations + bytes.workspace,
                              "activations");
}

std::vector<RankPlan> plan_gpt(const Settings& settings, const NamedModel& model, Strategy strategy,
                               int ranks, Limit limit) {
  const Settings planned = planned_settings(settings);
  const TensorKey key = gpt_tensor_key(planned, model.config);
  return plan_ranks(planned, ranks, limit, key, [&](World& world) {
    require_room_for_activations(world, planned, model.config, strategy);
    RankGpt gpt{world, planned, model.config, strategy};
    run_gpt(gpt, planned, model.config);
    return gpt.model().state_bytes();
  });
}

std::vector<RankPlan> plan_units(const Settings& settings, std::int64_t parameters,
                                 Strategy strategy, int ranks, Limit limit) {
  const Settings planned = planned_settings(settings);
  const TensorKey key = stack_tensor_key(planned, parameters, stack_units(parameters));
  return plan_ranks(planned, ranks, limit, key, [&](World& world) {
    ShardedModel model{world, model_options(planned, strategy)};
    run_stack(model, planned, parameters, world.rank());
    return model.state_bytes();
  });
}

/// The result of `plan`; empty if it fits neither the limit nor any machine.
template <class Plan>
auto if_it_fits(const Plan& plan) -> std::optional<decltype(plan())> {
  try {
    return plan();
  } catch (const OutOfMemory&) { return {}; }
}

}  // namespace

std::vector<Unit> make_stack(ShardedModel& model, const Settings& settings, std::int64_t parameters,
                             int rank) {
  const std::int64_t count = stack_units(parameters);
  const std::int64_t places = ranks_along(settings, "pipe");
  const int here = places == 1 ? 0 : MeshShape{settings.sharded.mesh}.index("pipe", rank);
  std::vector<Unit> units;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t elems = parameters / count + (i < parameters % count ? 1 : 0);
    const auto place = static_cast<int>(i * places / count);
    const Unit unit =
        model.add_unit(fmt::format("unit.{}", i),
                       {{.name = "weight", .shape = {elems}, .cut = TensorCut{}}}, {.pipe = place});
    if (place == here) { units.push_back(unit); }
  }
  model.declare_order(units);
  model.materialize(init::constant(0.0F));
  model.optimize_with(optimizer_of(settings), optimizer_options(settings));
  return units;
}

std::vector<RankPlan> plan_training(const Settings& settings, const NamedModel& model,
                                    Strategy strategy, int ranks) {
  return plan_gpt(settings, model, strategy, ranks, {});
}

std::optional<std::vector<RankPlan>> plan_training_within(std::size_t limit_bytes,
                                                          const Settings& settings,
                                                          const NamedModel& model,
                                                          Strategy strategy, int ranks) {
  return if_it_fits([&] { return plan_gpt(settings, model, strategy, ranks, limit_bytes); });
}

std::vector<RankPlan> plan_sampling(const Settings& settings, const NamedModel& model,
                                    Strategy strategy, int ranks) {
  return plan_ranks(settings, ranks, {}, {}, [&](World& world) {
    auto gpt = sampling_gpt(world, settings, model.config, strategy);
    gpt.materialize(settings.seed);
    const NoTokens tokens{static_cast<std::size_t>(model.config.seq)};
    for (int token = 0; token < 2; ++token) {
      static_cast<void>(gpt.module().next_logits(tokens.span()));
    }
    return gpt.model().state_bytes();
  });
}

std::vector<RankPlan> plan_stack(const Settings& settings, std::int64_t parameters,
                                 Strategy strategy, int ranks) {
  return plan_units(settings, parameters, strategy, ranks, {});
}

const RankPlan& StrategyPlan::fullest() const {
  return *std::max_element(ranks.begin(), ranks.end(), [](const RankPlan& a, const RankPlan& b) {
    return a.memory.peak_bytes < b.memory.peak_bytes;
  });
}

const RankPlan& StrategyPlan::of(int rank) const {
  const auto kind = std::ranges::find_if(
      ranks, [&](const RankPlan& r) { return std::ranges::binary_search(r.ranks, rank); });
  expects(kind != ranks.end(), "StrategyPlan::of: a rank that was not planned");
  return *kind;
}

StrategyPlan plan_asked(const Settings& settings, Strategy strategy) {
  if (settings.params) {
    return {strategy, plan_stack(settings, *settings.params, strategy, settings.ranks)};
  }
  return {strategy, plan_training(settings, settings.named_model(), strategy, settings.ranks)};
}

std::optional<StrategyPlan> plan_asked_within(std::size_t limit_bytes, const Settings& settings,
                                              Strategy strategy) {
  return if_it_fits([&] {
    const int ranks = settings.ranks;
    return StrategyPlan{
        strategy, settings.params
                      ? plan_units(settings, *settings.params, strategy, ranks, limit_bytes)
                      : plan_gpt(settings, settings.named_model(), strategy, ranks, limit_bytes)};
  });
}

std::size_t activation_bytes(const Settings& settings) {
  if (settings.params || settings.steps == 0) { return 0; }
  ModelOptions model;
  model.compute = settings.sharded.compute;
  model.mesh = settings.sharded.mesh;
  model.accumulate = settings.sharded.accumulate;
  nn::DecoderBytes bytes;
  WorldOptions options = world_options(settings);
  options.trace = false;
  options.budget_bytes.reset();
  simulate_rank(
      {.rank = 0,
       .ranks = settings.ranks,
       .backend = {.device = settings.world.device,
                   .comm = planned_comm(settings, settings.ranks)}},
      [&](World& world) {
        bytes = nn::Decoder::bytes_needed(settings.named_model().config, gpt_options(settings),
                                          settings.batch, world, model);
      },
      options);
  return bytes.activations + bytes.workspace;
}

CommKind planned_comm(const Settings& settings, int ranks) {
  const bool threads = settings.comm == CommChoice::local ||
                       (settings.comm == CommChoice::automatic && ranks <= kMostThreadRanks);
  if (threads) { return CommKind::local; }
  return settings.world.device == DeviceKind::cuda ? CommKind::nccl : CommKind::mpi;
}

}  // namespace tessera::tools
