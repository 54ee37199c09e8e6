#include "torch/passes.hpp"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <exception>
#include <unordered_set>
#include <utility>

#include "tessera/base/error.hpp"
#include "torch/initial_values.hpp"
#include "torch/meeting.hpp"

namespace tessera::torch {

namespace {

thread_local Passes* current_passes = nullptr;

// Calls `found` with each gradient accumulator that a backward pass from `outputs` reaches.
template <class Found>
void for_each_accumulator(std::span<const at::Tensor> outputs, Found&& found) {
  std::vector<::torch::autograd::Node*> stack;
  std::unordered_set<const ::torch::autograd::Node*> seen;
  const auto push = [&](::torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) { stack.push_back(node); }
  };
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) {
      push(::torch::autograd::impl::gradient_edge(output).function.get());
    }
  }
  while (!stack.empty()) {
    ::torch::autograd::Node* const node = stack.back();
    stack.pop_back();
    if (auto* const leaf = dynamic_cast<::torch::autograd::AccumulateGrad*>(node)) { found(*leaf); }
    for (const ::torch::autograd::Edge& edge : node->next_edges()) { push(edge.function.get()); }
  }
}

// Calls a function if it is destroyed by an exception.
template <class Function>
class WhenUnwinding {
 public:
  explicit WhenUnwinding(Function function)
      : function_{std::move(function)}, exceptions_{std::uncaught_exceptions()} {}
  ~WhenUnwinding() {
    if (std::uncaught_exceptions() > exceptions_) { function_(); }
  }
  WhenUnwinding(const WhenUnwinding&) = delete;
  WhenUnwinding& operator=(const WhenUnwinding&) = delete;

 private:
  Function function_;
  int exceptions_;
};

}  // namespace

Passes::Passes(ShardedModel& model, const std::vector<ModuleUnit>& units)
    : model_{model}, alive_{std::make_shared<const bool>(true)} {
  for (std::size_t i = 0; i < units.size(); ++i) {
    LiveUnit& live = units_.emplace_back();
    live.parent = units[i].parent;
    std::vector<ParameterSpec> specs;
    for (const ModuleParameter& parameter : units[i].parameters) {
      ParameterSpec& spec = specs.emplace_back();
      spec.name = parameter.name;
      spec.shape = Shape{parameter.tensor.sizes().vec()};
      spec.trainable = parameter.tensor.requires_grad();
      if (parameter.tensor.scalar_type() == at::kBFloat16) { spec.dtype = DType::bf16; }
      if (parameter.tensor.scalar_type() == at::kHalf) { spec.dtype = DType::fp16; }
      homes_.emplace_back(parameter.tensor, parameter.names.front(), parameter.name, i, *this);
      live.homes.push_back(&homes_.back());
    }
    // A unit that stays open around others has its own slot.
    const bool root = units[i].name == kRootUnit || units[i].contains_units;
    live.unit = model_.add_unit(units[i].name, std::move(specs),
                                {.kind = root ? UnitKind::root : UnitKind::block});
  }
  current_passes = this;
}

Passes::~Passes() {
  for (const auto& [tensor, hook] : hooks_) { tensor.remove_hook(hook); }
  forget_scopes();
  if (current_passes == this) { current_passes = nullptr; }
}

void Passes::adopt() {
  for (ParameterHome& home : homes_) {
    DType dtype = model_.options().compute;
    if (home.tensor().scalar_type() == at::kBFloat16) { dtype = DType::bf16; }
    if (home.tensor().scalar_type() == at::kHalf) { dtype = DType::fp16; }
    home.adopt(dtype, device_of(model_.world()));
    if (!home.trainable()) { continue; }
    const std::weak_ptr<const bool> alive = alive_;
    hooks_.emplace_back(home.tensor(),
                        home.tensor().register_hook([this, alive, &home](const at::TensorBase&) {
                          if (!alive.expired()) { gradient_comes(home); }
                        }));
    auto accumulator = ::torch::autograd::impl::grad_accumulator(home.tensor());
    accumulator->add_post_hook(std::make_unique<::torch::autograd::utils::LambdaPostHook>(
        [this, alive, &home, node = accumulator.get()](const std::vector<at::Tensor>& outputs,
                                                       const std::vector<at::Tensor>& /*inputs*/) {
          if (!alive.expired()) { gradient_added(home, *node); }
          return outputs;
        }));
    accumulators_.push_back(std::move(accumulator));
  }
}

Passes* Passes::current() noexcept {
  return current_passes;
}

Passes* Passes::make_current(Passes* passes) noexcept {
  return std::exchange(current_passes, passes);
}

void Passes::use(std::span<const Use> uses, const std::string& op) {
  for (std::size_t i = 0; i < uses.size(); ++i) {
    Passes& passes = uses[i].place->home().passes();
    const bool first =
        std::none_of(uses.begin(), uses.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const Use& use) { return &use.place->home().passes() == &passes; });
    if (!first) { continue; }
    std::vector<std::size_t> wanted;
    for (const Use& use : uses.subspan(i)) {
      const ParameterHome& home = use.place->home();
      if (&home.passes() != &passes) { continue; }
      if (use.place->kind() != PlaceKind::parameter) { continue; }
      if (use.writes) {
        throw ContractError{op + " writes parameter \"" + home.name() +
                            "\" of a sharded module, and the values would be lost; let the "
                            "optimizer write parameters (ShardedModule::step), or use load"};
      }
      const bool outside = passes.phase_ == Phase::idle && (!passes.evaluation_ || passes.reads_);
      if (outside) { passes.read_outside(use, op); }
      if (std::find(wanted.begin(), wanted.end(), home.unit()) == wanted.end()) {
        wanted.push_back(home.unit());
      }
    }
    passes.open_all(wanted);
  }
}

void Passes::read_outside(const Use& use, const std::string& op) {
  if (use.records) {
    throw ContractError{op + " reads parameter \"" + use.place->home().name() +
                        "\" of a sharded module outside its passes; call the ShardedModule "
                        "(model(x) or model.forward), read it under NoGradGuard on all ranks, or "
                        "use its state_dict()"};
  }
  constexpr int kMost = 1024;  // an evaluation remembers the order of what it opens
  if (opened_ >= kMost) { close_everything(); }
  if (reads_) { return; }
  meet(model_.world(), "a reading of parameters outside passes");
  evaluation_.reset(new Evaluating{model_.evaluate()});
  reads_ = true;
}

void Passes::open_all(const std::vector<std::size_t>& wanted) {
  for (std::size_t i = 0; i + 1 < wanted.size(); ++i) {
    for (std::size_t k = i + 1; k < wanted.size(); ++k) {
      pairs_.insert(std::minmax(wanted[i], wanted[k]));
    }
  }
  const bool all_open = std::all_of(wanted.begin(), wanted.end(),
                                    [&](std::size_t index) { return units_[index].is_open(); });
  if (!all_open) {
    close_unused(wanted, /*alone=*/false);
    for (const std::size_t index : wanted) {
      if (!units_[index].is_open()) { open(index, wanted); }
    }
  }
  for (std::vector<std::size_t>& region : regions_) {
    for (const std::size_t index : wanted) {
      if (std::find(region.begin(), region.end(), index) == region.end()) {
        region.push_back(index);
      }
    }
  }
}

bool Passes::contains(std::size_t outer, std::size_t inner) const {
  std::optional<std::size_t> at = inner;
  while (at && *at != outer) { at = units_[*at].parent; }
  return at.has_value();
}

void Passes::close_unused(const std::vector<std::size_t>& wanted, bool alone) {
  const std::vector<std::size_t> open = open_;
  for (const std::size_t index : open) {
    const bool used = std::any_of(wanted.begin(), wanted.end(), [&](std::size_t other) {
      return contains(index, other) || (!alone && pairs_.contains(std::minmax(index, other)));
    });
    if (!used) { close(index); }
  }
}

void Passes::open_scope(LiveUnit& unit) {
  if (evaluation_) {
    unit.evaluation.emplace(model_.forward(unit.unit));
  } else {
    unit.training.emplace(model_.open_any(unit.unit, phase_ == Phase::backward));
  }
}

void Passes::open(std::size_t index, const std::vector<std::size_t>& wanted) {
  LiveUnit& unit = units_[index];
  try {
    open_scope(unit);
  } catch (const ContractError& refusal) {  // perhaps for want of a slot
    if (open_.empty()) { throw; }
    close_unused(wanted, /*alone=*/true);
    try {
      open_scope(unit);
    } catch (const ContractError&) {
      throw ContractError{std::string{refusal.what()} + "; an operator uses " +
                          std::to_string(wanted.size()) +
                          " units at once: set `prefetch` (ShardOptions::model) to at least " +
                          std::to_string(wanted.size() - 1)};
    }
  }
  open_.push_back(index);
  if (reads_) { ++opened_; }
  for (ParameterHome* const home : unit.homes) {
    home->open(unit.training ? (*unit.training)[home->in_unit()].data()
                             : (*unit.evaluation)[home->in_unit()].data());
  }
}

void Passes::open_gradients(std::size_t index) {
  LiveUnit& unit = units_[index];
  if (unit.has_gradients) { return; }
  close_unused({index}, /*alone=*/true);
  if (!unit.is_open()) { open_all({index}); }
  for (ParameterHome* const home : unit.homes) {
    if (!home->trained()) { continue; }
    const Tensor gradient = unit.training->grad(home->in_unit());
    home->open_gradient(gradient.data(), gradient.dtype());
  }
  unit.has_gradients = true;
}

void Passes::close(std::size_t index) {
  LiveUnit& unit = units_[index];
  for (ParameterHome* const home : unit.homes) {
    home->close();
    if (unit.has_gradients && home->trainable()) { home->close_gradient(); }
  }
  unit.has_gradients = false;
  std::erase(open_, index);
  // The scope ends even if later work fails.
  if (unit.evaluation) {
    ForwardScope scope = std::move(*unit.evaluation);
    unit.evaluation.reset();
    scope.close();
  }
  if (unit.training) {
    OpenScope scope = std::move(*unit.training);
    unit.training.reset();
    scope.close();
  }
}

void Passes::close_everything() {
  while (!open_.empty()) { close(open_.back()); }
  if (reads_) {
    evaluation_.reset();
    reads_ = false;
    opened_ = 0;
  }
}

void Passes::forget_scopes() noexcept {
  for (LiveUnit& unit : units_) {
    for (ParameterHome* const home : unit.homes) {
      home->close();
      home->close_gradient();
    }
    unit.evaluation.reset();
    unit.training.reset();
    unit.has_gradients = false;
  }
  open_.clear();
}

bool Passes::will_train() const noexcept {
  return (evaluation_ == nullptr || reads_) && at::GradMode::is_enabled();
}

void Passes::begin_forward() {
  if (phase_ == Phase::backward) {
    throw ContractError{
        "a forward pass of a sharded module begins within its backward pass; use "
        "tessera::torch::recompute"};
  }
  for (const ParameterHome& home : homes_) { home.require_own(); }
  end_reading();
  if (depth_ == 0 && evaluation_ == nullptr && !will_train()) {
    begin_evaluation();
    evaluates_one_pass_ = true;
  }
  phase_ = Phase::forward;
  ++depth_;
  current_passes = this;
}

void Passes::end_forward() {
  if (--depth_ > 0) { return; }
  phase_ = evaluation_ ? Phase::idle : Phase::between;
  const WhenUnwinding otherwise{[this] { forget_scopes(); }};
  close_everything();
  if (evaluates_one_pass_) {
    end_evaluation();
  } else if (evaluation_) {
    evaluation_->evaluation.end_pass();
  }
}

void Passes::begin_evaluation() {
  if (depth_ > 0 || phase_ == Phase::backward) {
    throw ContractError{
        "evaluate is called within a pass of the sharded module; call it before or after the pass"};
  }
  close_everything();
  evaluation_.reset(new Evaluating{model_.evaluate()});
  before_evaluation_ = std::exchange(phase_, Phase::idle);
}

void Passes::end_evaluation() {
  forget_scopes();
  evaluation_.reset();
  evaluates_one_pass_ = false;
  phase_ = before_evaluation_;
}

void Passes::end_step() {
  end_reading();
  if (depth_ > 0 || phase_ == Phase::backward || evaluation_) {
    throw ContractError{
        "step or discard is called within a pass of the sharded module; call it after the pass"};
  }
  close_everything();
  phase_ = Phase::idle;
  for (LiveUnit& unit : units_) { unit.regions = 0; }
}

void Passes::discard() {
  end_step();
  drop_gradients();
}

void Passes::drop_gradients() {
  close_everything();
  model_.discard();
  stand_ins_.forget_norms();
  for (ParameterHome& home : homes_) {
    home.set_trained(false);
    home.drop_gradient();
  }
}

void Passes::begin_region() {
  regions_.emplace_back();
}

std::vector<std::size_t> Passes::end_region(bool kept) {
  std::vector<std::size_t> used = std::move(regions_.back());
  regions_.pop_back();
  if (kept) {
    for (const std::size_t index : used) { ++units_[index].regions; }
  }
  return used;
}

void Passes::run_again(const std::vector<std::size_t>& units, std::span<const at::Tensor> outputs) {
  expect_from(outputs);
  for (const std::size_t index : units) {
    if (units_[index].regions > 0) { --units_[index].regions; }
  }
}

void Passes::expect_from(std::span<const at::Tensor> outputs) {
  for_each_accumulator(outputs, [&](const ::torch::autograd::AccumulateGrad& leaf) {
    // The variable's storage identifies its owner; detached tensors share it.
    const Place* const place = Place::of(leaf.variable);
    if (place == nullptr || &place->home().passes() != this ||
        !leaf.variable.is_same(place->home().tensor())) {
      return;
    }
    expected_.insert(&leaf);
    train(place->home());
    ++units_[place->home().unit()].expected;
  });
}

void Passes::train(ParameterHome& home) {
  if (home.trained()) { return; }
  model_.unfreeze(units_[home.unit()].unit, home.in_unit());
  home.set_trained(true);
}

void Passes::freeze_untrained() {
  for (ParameterHome& home : homes_) {
    if (!home.trainable()) { continue; }
    home.gradient_is_used();
    if (!home.trained()) { model_.freeze(units_[home.unit()].unit, home.in_unit()); }
    home.set_trained(false);
  }
}

void Passes::backward(std::span<Passes* const> all, const at::Tensor& loss, const at::Tensor& scale,
                      bool retain_graph) {
  if (!loss.defined() || loss.numel() != 1) {
    throw ContractError{"backward needs a loss of one element, not " +
                        (loss.defined() ? std::to_string(loss.numel()) : std::string{"none"}) +
                        "; take its mean first"};
  }
  if (!loss.requires_grad()) {
    throw ContractError{
        "the loss needs no gradient: it was computed without gradients, or from no trained "
        "parameter"};
  }
  for (Passes* const passes : all) {
    if (passes->phase_ != Phase::between) {
      throw ContractError{passes->phase_ == Phase::forward
                              ? "backward is called within a forward pass; call it after the pass"
                              : "backward is called without a preceding forward pass of the "
                                "sharded module since the last step or discard; call the module "
                                "first"};
    }
    for (const ParameterHome& home : passes->homes_) { home.require_own(); }
  }
  // Scopes that end while an exception unwinds end the model.
  const WhenUnwinding otherwise{[&] {
    for (Passes* const passes : all) {
      passes->forget_scopes();
      passes->phase_ = Phase::idle;
    }
  }};
  for (Passes* const passes : all) { passes->begin_backward(loss); }
  ::torch::autograd::backward({loss}, {scale.to(loss.scalar_type()).expand_as(loss)}, retain_graph);
  for (Passes* const passes : all) { passes->end_backward(); }
}

void Passes::begin_backward(const at::Tensor& loss) {
  close_everything();
  stand_ins_.forget_norms();
  phase_ = Phase::backward;
  current_passes = this;
  for (ParameterHome& home : homes_) {
    if (home.trainable() && home.tensor().requires_grad()) { train(home); }
  }
  expect_from({&loss, 1});
}

void Passes::end_backward() {
  close_everything();
  expected_.clear();
  for (LiveUnit& unit : units_) { unit.expected = 0; }
  phase_ = Phase::between;
}

void Passes::gradient_comes(ParameterHome& home) {
  const Passes* const other = current_passes;
  if (phase_ != Phase::backward && other != nullptr && other != this &&
      other->phase_ == Phase::backward) {
    throw ContractError{"the backward pass of another sharded module reaches parameter \"" +
                        home.name() +
                        "\"; freeze the parameters of this one for that pass "
                        "(requires_grad_(false)), detach its outputs, or train both by "
                        "tessera::torch::backward(loss, {a, b})"};
  }
  if (phase_ != Phase::backward) {
    throw ContractError{"autograd makes the gradient of \"" + home.name() +
                        "\" of a sharded module, but not within ShardedModule::backward; call "
                        "model.backward(loss) instead of loss.backward()"};
  }
  open_gradients(home.unit());
}

void Passes::gradient_added(ParameterHome& home, const ::torch::autograd::Node& accumulator) {
  if (phase_ != Phase::backward) { return; }  // gradient_comes has already thrown
  LiveUnit& unit = units_[home.unit()];
  if (unit.has_gradients && !home.has_own_gradient()) {
    throw ContractError{"the gradient of \"" + home.name() +
                        "\" was replaced during the backward pass (create_graph, or a hook that "
                        "sets grad); leave the gradient that the sharded module has set in place"};
  }
  if (const auto at = expected_.find(&accumulator); at != expected_.end()) {
    expected_.erase(at);
    --unit.expected;
  }
  if (unit.has_gradients && unit.expected == 0 && unit.regions == 0) { close(home.unit()); }
}

void Passes::parameters_changed() {
  for (ParameterHome& home : homes_) {
    if (home.trainable()) { home.tensor().unsafeGetTensorImpl()->bump_version(); }
  }
}

}  // namespace tessera::torch
