#include "engine/model/model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "base/enumerator.hpp"
#include "engine/model/agreement.hpp"
#include "engine/model/initialise.hpp"
#include "engine/rules/moment_rules.hpp"
#include "tessera/base/error.hpp"
#include "world/host_pool.hpp"
#include "world/world_access.hpp"

namespace tessera::engine {
namespace {

// Unique in the process: a unit handle of an ended world matches no later model.
std::uint32_t next_number() {
  static std::atomic<std::uint32_t> made = 0;
  return ++made;
}

std::string describe_update(const Optimizer& optimizer, const OptimizerOptions& options) {
  return fmt::format("{}\nclip_norm {}\nmoments {} rounding {} seed {}\n", describe(optimizer),
                     options.clip_norm, to_string(options.moments), to_string(options.rounding),
                     options.rounding_seed);
}

/// The number of ranks of a job for which `options` are valid. Throws ConfigError as `validate`
/// does.
int checked_ranks(const ModelOptions& options, int ranks) {
  validate(options, ranks);
  return ranks;
}

/// A pipeline reduces its micro-batches together, unless the options say otherwise.
ModelOptions with_mesh_defaults(ModelOptions options) {
  const bool in_stages = std::ranges::any_of(
      options.mesh, [](const MeshDim& dim) { return dim.name == "pipe" && dim.size > 1; });
  if (in_stages && options.purpose == Purpose::training &&
      options.accumulate_mode == AccumulateMode::automatic) {
    options.accumulate_mode = AccumulateMode::deferred;
  }
  return options;
}

/// *Collective* in a pipeline. All units in the order of passes if all ranks declared the same
/// order of all units, otherwise in the order of declaration, which is equal on all ranks.
std::vector<std::size_t> agreed_pass_order(World& world, const Declaration& declaration,
                                           bool in_stages) {
  std::vector<std::size_t> order = declaration.pass_order();
  if (!in_stages || !can_disagree(world)) { return order; }
  const std::vector<std::string> orders = world.exchange(fmt::format("{}", fmt::join(order, " ")));
  if (std::ranges::adjacent_find(orders, std::not_equal_to{}) != orders.end()) {
    std::ranges::sort(order);
  }
  return order;
}

}  // namespace

Model::Model(World& world, const ModelOptions& options)
    : guest_{world},
      world_{world},
      options_{with_mesh_defaults(options)},
      number_{next_number()},
      journal_{world},
      declaration_{options_, checked_ranks(options_, world.size()), world.rank()} {
  world::WorldAccess::name_ranks(world_, options_.mesh);
}

// Peers may read this rank's buffers until its collectives have ended.
Model::~Model() {
  if (!guest_.world_ended()) { world_.quiesce(); }
  for (TensorLife& life : *lives_) { ++life.ended_scopes; }
}

void Model::end_of_owner() noexcept {
  std::exception_ptr& mistake = guest_.life().mistake;
  if (mistake || std::uncaught_exceptions() > uncaught_) { return; }
  const std::string open = units_ == nullptr ? "" : names_of_open_units(*units_);
  try {
    mistake = std::make_exception_ptr(ContractError{
        open.empty()
            ? "the model was destroyed during an evaluation; end the Evaluation before its model"
            : fmt::format("the model was destroyed while a scope of unit {} was open; end every "
                          "scope before its model",
                          open)});
  } catch (...) { mistake = std::current_exception(); }
}

void Model::rethrow_failure() const {
  if (failure_) { std::rethrow_exception(failure_); }
}

void Model::require_training(const char* what) const {
  if (evaluating_) {
    throw ContractError{
        fmt::format("{}: the model is being evaluated, which allows forward scopes only; end the "
                    "Evaluation first",
                    what)};
  }
  if (options_.purpose == Purpose::inference) {
    throw ContractError{
        fmt::format("{}: the model was made for inference, which allows forward scopes only, while "
                    "an Evaluation lives; choose Purpose::training",
                    what)};
  }
}

// ------------------------------------------------------------------------------------ declaration

std::uint32_t Model::add_unit(std::string name, std::vector<ParameterSpec> specs,
                              const UnitOptions& options) {
  expects(!is_materialized(),
          "add_unit: the model is already materialized; add all units before materialize");
  const std::size_t index = declaration_.add_unit(std::move(name), std::move(specs), options);
  const UnitPlan& plan = plans()[index];
  TensorLife life{.name = plan.name, .shapes = {}};
  for (std::size_t p = 0; p < plan.infos.size(); ++p) {
    life.shapes.push_back(plan.layout.part(p).shape());
  }
  lives_->push_back(std::move(life));
  return static_cast<std::uint32_t>(index);
}

void Model::declare_order(const std::vector<std::size_t>& forward) {
  expects(!is_materialized(),
          "declare_order: the model is already materialized; declare the order before materialize");
  declaration_.declare_order(forward);
}

void Model::materialize(const Initializer& initial) {
  rethrow_failure();
  expects(!is_materialized(), "materialize: the model is already materialized; call it once");
  expects(!plans().empty(), "materialize: the model has no units; call add_unit first");
  expects(initial != nullptr,
          "materialize: the initializer is empty; pass a function, such as init::normal");
  declaration_.decide();
  if (can_disagree(world_)) {
    require_agreement(world_, "the model",
                      declaration_.describe() + world::WorldAccess::describe_kernels(world_));
  }
  group_.emplace(Sharding::make(world_, options_));
  declaration_.decide_owned(*group_, world_.rank());
  for (const WholeUnits& whole : declaration_.whole_units()) {
    world_.memory().note(tessera::describe(whole));
  }
  // A device that cannot wait for the host fails here, before anything is allocated.
  if (options_.offload == Offload::optimizer) { (void)world::HostPool{world_}.compute_stream(); }
  if (options_.offload == Offload::state) { (void)world::HostPool{world_}.host_copy_stream(); }
  try {
    take_memory(initial);
  } catch (...) {
    forget_memory();
    throw;
  }
  update_order_ = with_the_rest(plans(), declaration_.order().units());
  units_->parameters().lane().order_after_compute();
  for (const std::size_t u : update_order_) { (*units_)[u].parameters().send_updated(); }
}

PassPlace Model::pass_place() {
  return {.world = world_,
          .journal = journal_,
          .units = *units_,
          .lives = *lives_,
          .prefetch = {.forward = options_.prefetch,
                       .backward = options_.tuning.prefetch_backward.value_or(options_.prefetch)}};
}

void Model::take_memory(const Initializer& initial) {
  units_ = std::make_unique<LiveUnits>(world_, plans(), journal_, options_, *group_,
                                       declaration_.order());
  if (options_.checks == Checks::memory && world_.device().computes()) {
    checks_ = std::make_unique<MemoryChecks>(world_, *units_, options_);
  }
  if (options_.purpose == Purpose::training) {
    training_ = std::make_unique<TrainingPass>(
        pass_place(), declaration_.order(),
        TrainingPass::Setup{.options = options_,
                            .order_is_declared = declaration_.order_is_declared(),
                            .update_order = update_order_,
                            .checks = checks_.get()});
    open_pass_ =
        std::make_unique<OpenPass>(pass_place(), declaration_.order(), options_, update_order_);
    sums_ = std::make_unique<GradientSums>(world_, *units_, *group_);
  }
  evaluation_ = std::make_unique<EvaluationPass>(pass_place(), evaluation_order_);
  initialise(world_, *units_, initial);
}

// Out of memory, or the initializer threw: the model is declared only, as before.
void Model::forget_memory() noexcept {
  try {
    world_.compute_stream().wait();
  } catch (...) {  // the stream has ended and touches nothing any more
  }
  evaluation_.reset();
  sums_.reset();
  open_pass_.reset();
  training_.reset();
  checks_.reset();
  units_.reset();
}

void Model::optimize_with(const Optimizer& optimizer, const OptimizerOptions& options) {
  rethrow_failure();
  require_training("optimize_with");
  expects(is_materialized(), "optimize_with: call materialize first");
  expects(step_ == nullptr, "optimize_with: the model already has an optimizer; call it once");
  validate(options_, optimizer, options);
  check_update(declaration_.units(), options_, optimizer, options);
  check_moment_blocks(declaration_.units(), group_->tensor().size, options);
  if (first_loss_scale(options_.loss_scaling, options_.compute, options_.gradient) != 1.0F) {
    expects(training_->begun() == 0 && !open_pass_->has_gradients(),
            "optimize_with: the loss is to be scaled, but this step's first micro-batches were "
            "not; call it before the first forward scope of the step");
  }
  const ParameterRules rules = resolve_rules(plans(), optimizer, options);
  if (can_disagree(world_)) {
    require_agreement(world_, "the optimizer",
                      describe_update(optimizer, options) + describe(plans(), rules));
  }
  step_ = std::make_unique<Step>(world_, journal_, *units_,
                                 OptimizerStep::Setup{options_, optimizer, options, rules, *group_},
                                 agreed_pass_order(world_, declaration_, group_->in_stages()));
  training_->search_with(&step_->search());
  open_pass_->search_with(&step_->search());
}

// ----------------------------------------------------------------------------------------- passes

void Model::require_ready() const {
  rethrow_failure();
  if (step_) { step_->check_if_stuck(); }
  expects(is_materialized(),
          "a unit is opened before materialize; call materialize after adding all units");
}

int Model::open(UseKind kind, std::size_t unit, std::optional<int> micro_batch) {
  if (!has(unit)) {
    throw ContractError{
        fmt::format("{} of unit '{}': the unit is at place {} along pipe, and this rank at place "
                    "{}: open only units of the rank's own place",
                    to_string(kind), plans()[unit].name, fmt::join(plans()[unit].places, " and "),
                    sharding().pipe())};
  }
  if (evaluating_ && kind == UseKind::forward) {
    expects(!micro_batch, "forward: an evaluation has no micro-batches; leave the number out");
    evaluation_->open(unit);
    return 0;
  }
  require_training(to_string(kind));
  if (open_pass_->begun()) {
    throw ContractError{fmt::format(
        "{} of unit '{}': the step has scopes of open_any, which are not counted; a step has only "
        "one kind",
        to_string(kind), plans()[unit].name)};
  }
  if (kind == UseKind::read) {
    training_->open_read(unit, *micro_batch);
    return *micro_batch;
  }
  return training_->open(kind, unit, micro_batch);
}

void Model::close(UseKind kind, std::size_t unit, int micro_batch, bool unwinding) noexcept {
  if (failure_ || guest_.world_ended()) { return; }
  try {
    if (unwinding) {
      throw ContractError{fmt::format(
          "the {} scope of unit '{}' was left by an exception; the model cannot be used any more",
          to_string(kind), plans()[unit].name)};
    }
    if (micro_batch == Scope::kAny) {
      open_pass_->close(kind, unit);
    } else if (evaluating_) {
      evaluation_->close(unit);
    } else if (kind == UseKind::read) {
      training_->close_read(unit, micro_batch);
    } else {
      training_->close(kind, unit, micro_batch);
    }
  } catch (...) { failure_ = std::current_exception(); }
}

void Model::open_any(UseKind kind, std::size_t unit) {
  require_training("open_any");
  if (training_->begun() > 0) {
    throw ContractError{fmt::format(
        "open_any of unit '{}': the step has scopes that are counted; a step has only one kind",
        plans()[unit].name)};
  }
  if (options_.checks != Checks::off) {
    throw ConfigError{
        "open_any: `checks` compare forward with backward scopes, which are not counted here; set "
        "it to off"};
  }
  open_pass_->open(kind, unit);
}

void Model::discard() {
  rethrow_failure();
  require_training("discard");
  if (open_pass_ == nullptr) { return; }
  expects(training_->begun() == 0,
          "discard: the step has scopes that are counted; finish its micro-batches and step");
  open_pass_->discard();
  sums_->next_step();
  scalings_ = {};
}

void Model::watch(std::size_t unit, int micro_batch, ConstView output) {
  if (output.elems < 0 || (output.elems > 0 && output.data == nullptr)) {
    throw ContractError{
        fmt::format("watch of unit '{}': the output is {} elements at {}; give the address of the "
                    "first and their number, 0 or more",
                    plans()[unit].name, output.elems, output.data)};
  }
  require_enumerator("watch: the dtype", output.dtype, DType::fp64);
  if (!evaluating_) { training_->watch(unit, micro_batch, output); }
}

void Model::set_frozen(const char* call, std::size_t unit, std::string_view name, bool frozen) {
  rethrow_failure();
  require_training(call);
  if (!is_materialized()) { throw ContractError{fmt::format("{}: call materialize first", call)}; }
  const ParameterRef at = find(unit, name);
  const UnitPlan& owner = plans()[at.unit];
  const ParameterInfo& info = owner.infos[at.parameter];
  if (!info.trainable) {
    throw ContractError{fmt::format(
        "{}: '{}' was declared frozen, without memory to train it; declare it trainable", call,
        info.full_name())};
  }
  if (owner.frozen[at.parameter] == frozen) { return; }
  const LiveUnit& live = (*units_)[at.unit];
  if ((training_->begun() > 0 || open_pass_->begun()) && live.trains() &&
      live.gradients().is_taken(at.parameter)) {
    throw ContractError{
        fmt::format("{}: this step already has a gradient of '{}'; call it between steps", call,
                    info.full_name())};
  }
  declaration_.set_frozen(at, frozen);
  if (frozen && live.trains()) { live.gradients().freeze(at.parameter); }
  if (step_) { step_->plan_runs(at.unit); }
}

void Model::begin_evaluation() {
  rethrow_failure();
  expects(is_materialized(), "evaluate: call materialize first");
  expects(!evaluating_,
          "evaluate: the model is already being evaluated; end that Evaluation first");
  if (training_ != nullptr && training_->begun() > 0) {
    throw ContractError{fmt::format(
        "evaluate: {} of the step's {} micro-batches have begun; evaluate between steps",
        training_->begun(), options_.accumulate)};
  }
  if (open_pass_ != nullptr) { open_pass_->require_scopes_ended("evaluate"); }
  phase_before_ = journal_.phase();
  journal_.enter(trace::Phase::evaluation, "");
  units_->copy_from_rank0(update_order_);
  evaluation_->begin(declaration_.order());
  evaluating_ = true;
}

void Model::end_pass() {
  rethrow_failure();
  evaluation_->end_pass();
}

void Model::end_evaluation() noexcept {
  if (guest_.world_ended()) { return; }
  if (!failure_) {
    try {
      end_pass();
    } catch (...) { failure_ = std::current_exception(); }
  }
  evaluating_ = false;
  try {
    journal_.enter(phase_before_, "");
  } catch (...) {  // without memory for its name, a recorded moment keeps the old one
  }
}

Step& Model::trained(const char* call) const {
  if (step_) { return *step_; }
  throw ContractError{fmt::format("{}: call optimize_with first", call)};
}

void Model::step(const double* loss, const LossCount& count) {
  rethrow_failure();
  require_training("step");
  Step& step = trained("step");
  training_->require_scopes_ended("step");
  training_->finish();
  if (open_pass_->begun()) {
    open_pass_->finish("step");
  } else if (training_->ended() != options_.accumulate) {
    throw ContractError{
        fmt::format("step: {} of {} micro-batches have been run; run a forward and a backward pass "
                    "for each before step (ModelOptions::accumulate)",
                    training_->ended(), options_.accumulate)};
  }
  require_no_graph(world_, options_);
  step.check(loss, count);
  step.note_without_backward(training_->without_backward());
  sums_->add();
  update_order_ =
      step.run(loss, count, declaration_.order(), open_pass_->describe() + scalings_.describe());
  sums_->next_step();
  scalings_ = {};
  training_->next_step();
  open_pass_->next_step();
  step.check_if_stuck();
}

// --------------------------------------------------------------------------- what scopes hand out

ParameterRef Model::find(std::size_t unit, std::string_view name) const {
  const UnitPlan& plan = plans()[unit];
  const auto index = plan.layout.find(name);
  if (!index) {
    std::string known;
    for (const ParameterSpec& spec : plan.layout.specs()) { known += " " + spec.name; }
    throw ContractError{
        fmt::format("unit '{}' has no parameter '{}'; it has:{}", plan.name, name, known)};
  }
  return plan.alias_of[*index].value_or(ParameterRef{unit, *index});
}

Lifetime Model::lifetime(std::size_t unit, std::size_t owner, Category category) const {
  return {lives_, (*lives_)[unit].ended_scopes, category, (*lives_)[owner].name};
}

ConstTensor Model::parameter(std::size_t unit, std::string_view name) const {
  const auto [owner, index] = find(unit, name);
  const UnitLayout::Location location = *plans()[owner].layout.locate(index);
  const Shape& shape = (*lives_)[owner].shapes[index];
  const View segment = (*units_)[owner].parameters().whole(location.segment);
  return {segment.slice(location.first, shape.elems()), shape,
          lifetime(unit, owner, (*units_)[owner].parameters().category())};
}

bool Model::has_gradient(std::size_t unit, std::string_view name) const {
  const auto [owner, index] = find(unit, name);
  return plans()[owner].infos[index].trainable && !plans()[owner].frozen[index];
}

ParameterRef Model::trained(std::size_t unit, std::string_view name) const {
  const ParameterRef found = find(unit, name);
  const ParameterInfo& info = plans()[found.unit].infos[found.parameter];
  if (info.trainable && !plans()[found.unit].frozen[found.parameter]) { return found; }
  throw ContractError{
      fmt::format("'{}' is frozen and has no gradient; check has_grad first", info.full_name())};
}

kernels::Write Model::write_of_gradient(std::size_t unit, std::string_view name) const {
  const auto [owner, index] = trained(unit, name);
  return (*units_)[owner].gradients().write(index, unit);
}

Tensor Model::open_gradient(std::size_t unit, std::string_view name) const {
  if (sums_->added()) {
    throw ContractError{fmt::format(
        "unit '{}' gets more gradients after this step's were read (gradient_norms, "
        "clear_gradient, export_state). Reading adds them over ranks along `tensor` or `pipe`, so "
        "read them after the last backward pass of the step",
        plans()[unit].name)};
  }
  open_pass_->open_gradients(trained(unit, name).unit);
  return gradient(unit, name);
}

Tensor Model::gradient(std::size_t unit, std::string_view name) const {
  const auto [owner, index] = trained(unit, name);
  const UnitLayout::Location location = *plans()[owner].layout.locate(index);
  GradientHome& gradients = (*units_)[owner].gradients();
  gradients.take(index);
  const View segment = gradients.whole(location.segment);
  const Shape& shape = (*lives_)[owner].shapes[index];
  return {segment.slice(location.first, shape.elems()), shape,
          lifetime(unit, owner, gradients.category())};
}

// ---------------------------------------------------------------------------------- between steps

void Model::export_state(StateTensor what, const StateSink& sink) {
  rethrow_failure();
  expects(is_materialized(), "export_state: call materialize first");
  require_enumerator("export_state: what", what, StateTensor::gradients);
  expects(sink != nullptr, "export_state: the sink is empty; pass a function");
  expects(!evaluating_, "export_state: the model is being evaluated; end the Evaluation first");
  if (what == StateTensor::parameters) {
    expects(training_ == nullptr || training_->begun() == 0,
            "export_state: a step is under way; export parameters between steps");
    if (open_pass_ != nullptr) { open_pass_->end_round("export_state"); }
    units_->copy_from_rank0(update_order_);
    return export_parameters(world_, *units_, *group_, options_, sink);
  }
  require_gradients("export_state");
  export_gradients(world_, *units_, *group_, options_, static_cast<float>(averaging_factor()),
                   sink);
}

void Model::require_gradients(const char* call) {
  require_training(call);
  training_->finish();
  if (open_pass_->has_gradients()) { open_pass_->finish(call); }
  if (!open_pass_->has_gradients() && training_->ended() != options_.accumulate) {
    throw ContractError{fmt::format(
        "{}: gradients are complete only after the last micro-batch; call it then, before step",
        call)};
  }
  sums_->add();
}

void Model::require_gradients_on_device(const char* call) {
  rethrow_failure();
  if (!is_materialized()) { throw ContractError{fmt::format("{}: call materialize first", call)}; }
  for (const UnitPlan& plan : plans()) {
    if (!plan.updated_on_host()) { continue; }
    throw ConfigError{fmt::format(
        "{}: the gradients of unit '{}' are in the host pool (ModelOptions::offload), where they "
        "cannot be read or changed before step; to clip, set OptimizerOptions::clip_norm",
        call, plan.name)};
  }
  require_gradients(call);
  units_->gradients().settle();
}

double Model::averaging_factor() const {
  const double parts = static_cast<double>(group_->data_ranks()) * options_.accumulate;
  return 1.0 / (parts * (step_ == nullptr ? 1.0 : step_->current_loss_scale()));
}

std::vector<std::vector<double>> Model::gradient_norms(Norm norm) {
  require_enumerator("gradient_norms: norm", norm, Norm::infinity);
  require_gradients_on_device("gradient_norms");
  std::vector<std::vector<double>> norms = GradientNorms{world_, *units_, *group_}.compute(norm);
  const double factor = averaging_factor();
  for (std::vector<double>& of_unit : norms) {
    for (double& of_parameter : of_unit) { of_parameter *= factor; }
  }
  return norms;
}

void Model::scale_gradient(std::size_t unit, std::string_view name, float factor) {
  require_gradients_on_device("scale_gradient");
  const ParameterRef at = trained(unit, name);
  engine::scale_gradient(world_, (*units_)[at.unit], at.parameter, factor);
  scalings_.scaled(at, factor);
}

void Model::clear_gradient(std::size_t unit, std::string_view name) {
  require_gradients_on_device("clear_gradient");
  const ParameterRef at = trained(unit, name);
  engine::clear_gradient(world_, (*units_)[at.unit], at.parameter);
  scalings_.cleared(at);
}

void Model::export_masters(const PieceSink& sink) {
  rethrow_failure();
  expects(is_materialized(), "export_masters: call materialize first");
  expects(sink != nullptr, "export_masters: the sink is empty; pass a function");
  require_training("export_masters");
  engine::export_masters(world_, *units_, sink);
}

void Model::require_between_steps(const char* call) const {
  require_world("a model");
  rethrow_failure();
  const auto refuse = [call](const std::string& why) {
    throw ContractError{fmt::format("{}: {}", call, why)};
  };
  if (!is_materialized()) { refuse("call materialize first"); }
  if (evaluating_) { refuse("the model is being evaluated; end the Evaluation first"); }
  if (world::WorldAccess::in_graph(world_)) {
    refuse("a graph is being captured; call it after the capture");
  }
  if (training_ != nullptr && training_->begun() > 0) {
    refuse(fmt::format("{} of the step's {} micro-batches have begun; call it between steps",
                       training_->begun(), options_.accumulate));
  }
  if (open_pass_ != nullptr) { open_pass_->end_round(call); }
}

void Model::require_no_gradients(const char* call) const {
  require_between_steps(call);
  if (open_pass_ == nullptr || !open_pass_->has_gradients()) { return; }
  throw ContractError{fmt::format(
      "{}: gradients of the values that it would replace wait for a step; call step first, or "
      "discard",
      call)};
}

void Model::continue_after(std::int64_t step, const kernels::StepScalars& scalars) {
  step_ ? step_->continue_after(step, scalars) : journal_.continue_after(step);
}

ModelStateBytes Model::state_bytes() const {
  ModelStateBytes bytes;
  if (!is_materialized()) { return bytes; }
  bytes.parameters = units_->parameters().persistent_bytes();
  if (!units_->train()) { return bytes; }
  bytes.gradients = units_->gradients().persistent_bytes();
  bytes.optimizer = units_->updates().device_bytes() + (step_ ? step_->device_bytes() : 0);
  const HostGradientPool* const host = units_->gradients().host();
  bytes.host = units_->updates().host_bytes() + (host != nullptr ? host->persistent_bytes() : 0) +
               (step_ ? step_->host_bytes() : 0);
  return bytes;
}

bool Model::stays_in_place(std::size_t unit, StateTensor what) const {
  expects(is_materialized(), "stays_in_place: call materialize first");
  const LiveUnit& one = (*units_)[unit];
  if (what == StateTensor::parameters) { return one.parameters().stays_in_place(); }
  require_training("stays_in_place of gradients");
  return one.gradients().stays_in_place();
}

}  // namespace tessera::engine
