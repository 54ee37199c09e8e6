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

// What a module's user can do about a lack of slots: the adapter opens the scopes, and no order is
// declared.
constexpr const char* kMoreSlots =
    "; for a sharded module: operators that use several units at once ask for more `prefetch`, and "
    "units used several times before their gradients are complete for more `tuning.gradient_slots` "
    "(ShardOptions::model)";

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
      if (use.place->is_gradient()) {
        if (use.place->is_open()) { continue; }
        throw ContractError{op + " uses the gradient of \"" + home.name() +
                            "\", which is already reduced: it is whole only while autograd works "
                            "on its unit; use ShardedModule::export_gradients"};
      }
      if (use.writes) {
        throw ContractError{op + " writes parameter \"" + home.name() +
                            "\" of a sharded module, and the values would be lost; let the "
                            "optimizer write parameters (ShardedModule::step), or use load"};
      }
      if (passes.phase_ == Phase::idle) {
        throw ContractError{op + " reads parameter \"" + home.name() +
                            "\" of a sharded module outside its passes; call the ShardedModule "
                            "(model(x) or model.forward), or use its state_dict()"};
      }
      if (std::find(wanted.begin(), wanted.end(), home.unit()) == wanted.end()) {
        wanted.push_back(home.unit());
      }
    }
    passes.open_all(wanted);
  }
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
    close_unused(wanted);
    for (const std::size_t index : wanted) {
      if (!units_[index].is_open()) { open(index); }
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

void Passes::close_unused(const std::vector<std::size_t>& wanted) {
  const std::vector<std::size_t> open = open_;
  for (const std::size_t index : open) {
    const LiveUnit& unit = units_[index];
    const bool used = std::any_of(wanted.begin(), wanted.end(), [&](std::size_t other) {
      return contains(index, other) || pairs_.contains(std::minmax(index, other));
    });
    // More gradients will arrive, and the unit cannot be opened again for them.
    const bool last =
        unit.backward && unit.backwards == unit.forwards && (unit.expected > 0 || unit.regions > 0);
    if (!used && !last) { close(index); }
  }
}

void Passes::open(std::size_t index) {
  LiveUnit& unit = units_[index];
  if (phase_ != Phase::backward) {
    try {
      unit.forward.emplace(model_.forward(unit.unit));
    } catch (const ContractError& refusal) {
      if (open_.empty()) { throw; }
      throw ContractError{std::string{refusal.what()} + kMoreSlots};
    }
    open_.push_back(index);
    ++unit.forwards;
    for (ParameterHome* const home : unit.homes) {
      home->open((*unit.forward)[home->in_unit()].data());
    }
    return;
  }
  if (unit.backwards == unit.forwards) {
    const std::string name = model_.unit_name(unit.unit);
    throw ContractError{
        "unit \"" + name +
        "\" is needed again in the backward pass after its gradients were "
        "reduced; if a function of the program runs a forward pass again in backward, use "
        "tessera::torch::recompute instead"};
  }
  try {
    unit.backward.emplace(model_.backward(unit.unit));
  } catch (const ContractError& refusal) {
    const bool together = unit.regions > 0 &&
                          std::any_of(open_.begin(), open_.end(),
                                      [&](std::size_t other) { return units_[other].regions > 0; });
    if (!together) { throw ContractError{std::string{refusal.what()} + kMoreSlots}; }
    throw ContractError{std::string{refusal.what()} +
                        "; a recomputed function needs these units together: recompute one unit "
                        "at a time"};
  }
  open_.push_back(index);
  ++unit.backwards;
  for (ParameterHome* const home : unit.homes) {
    home->open((*unit.backward)[home->in_unit()].data());
    if (home->trained()) {
      const Tensor gradient = unit.backward->grad(home->in_unit());
      home->open_gradient(gradient.data(), gradient.dtype());
    }
  }
}

void Passes::close(std::size_t index) {
  LiveUnit& unit = units_[index];
  for (ParameterHome* const home : unit.homes) {
    home->close();
    if (unit.backward && home->trainable()) { home->close_gradient(); }
  }
  std::erase(open_, index);
  // The scope ends even if later work fails.
  if (unit.forward) {
    ForwardScope scope = std::move(*unit.forward);
    unit.forward.reset();
    scope.close();
  }
  if (unit.backward) {
    BackwardScope scope = std::move(*unit.backward);
    unit.backward.reset();
    scope.close();
  }
}

void Passes::close_everything() {
  while (!open_.empty()) { close(open_.back()); }
}

void Passes::forget_scopes() noexcept {
  for (LiveUnit& unit : units_) {
    for (ParameterHome* const home : unit.homes) {
      home->close();
      home->close_gradient();
    }
    unit.forward.reset();
    unit.backward.reset();
  }
  open_.clear();
}

void Passes::begin_forward() {
  if (phase_ == Phase::backward) {
    throw ContractError{
        "a forward pass of a sharded module begins within its backward pass; use "
        "tessera::torch::recompute"};
  }
  for (const ParameterHome& home : homes_) { home.require_own(); }
  phase_ = Phase::forward;
  ++depth_;
  current_passes = this;
}

void Passes::end_forward() {
  if (--depth_ > 0) { return; }
  phase_ = evaluation_ ? Phase::idle : Phase::between;
  const WhenUnwinding otherwise{[this] { forget_scopes(); }};
  close_everything();
  if (evaluation_) { evaluation_->evaluation.end_pass(); }
}

void Passes::begin_evaluation() {
  evaluation_.reset(new Evaluating{model_.evaluate()});
  for (LiveUnit& unit : units_) { unit.forwards = 0; }
}

void Passes::end_evaluation() {
  forget_scopes();
  evaluation_.reset();
  for (LiveUnit& unit : units_) { unit.forwards = 0; }
  phase_ = Phase::idle;
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
  for (const std::size_t index : units) { --units_[index].regions; }
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
    LiveUnit& unit = units_[place->home().unit()];
    ++unit.expected;
    unit.reached = true;
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
    if (!home.trained()) { model_.freeze(units_[home.unit()].unit, home.in_unit()); }
    home.set_trained(false);
  }
}

void Passes::backward(const at::Tensor& loss, const at::Tensor& scale) {
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
  if (phase_ != Phase::between) {
    throw ContractError{phase_ == Phase::forward
                            ? "backward is called within a forward pass; call it after the pass"
                            : "backward is called without a preceding forward pass of the sharded "
                              "module in this micro-batch; call the module first"};
  }
  for (const ParameterHome& home : homes_) { home.require_own(); }
  // Scopes that end while an exception unwinds end the model.
  const WhenUnwinding otherwise{[this] {
    forget_scopes();
    phase_ = Phase::idle;
  }};
  close_everything();
  phase_ = Phase::backward;
  current_passes = this;
  for (ParameterHome& home : homes_) {
    if (home.trainable() && home.tensor().requires_grad()) { train(home); }
  }
  expect_from({&loss, 1});
  ::torch::autograd::backward({loss}, {scale.to(loss.scalar_type()).expand_as(loss)});
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (units_[i].backward || units_[i].reached) { end_gradients(i); }
  }
  expected_.clear();
  for (LiveUnit& unit : units_) {
    unit.forwards = unit.backwards = unit.expected = unit.regions = 0;
    unit.reached = false;
  }
  phase_ = Phase::idle;
}

void Passes::gradient_comes(ParameterHome& home) {
  const Passes* const other = current_passes;
  if (phase_ != Phase::backward && other != nullptr && other != this &&
      other->phase_ == Phase::backward) {
    throw ContractError{"the backward pass of another sharded module reaches parameter \"" +
                        home.name() +
                        "\"; freeze the parameters of this one for that pass "
                        "(requires_grad_(false)), or detach its outputs"};
  }
  if (phase_ != Phase::backward) {
    throw ContractError{"autograd makes the gradient of \"" + home.name() +
                        "\" of a sharded module, but not within ShardedModule::backward; call "
                        "model.backward(loss) instead of loss.backward()"};
  }
  LiveUnit& unit = units_[home.unit()];
  if (unit.backward) { return; }
  open_all({home.unit()});
}

void Passes::gradient_added(ParameterHome& home, const ::torch::autograd::Node& accumulator) {
  if (phase_ != Phase::backward) { return; }  // gradient_comes has already thrown
  LiveUnit& unit = units_[home.unit()];
  if (unit.backward && !home.has_own_gradient()) {
    throw ContractError{"the gradient of \"" + home.name() +
                        "\" was replaced during the backward pass (create_graph, or a hook that "
                        "sets grad); leave the gradient that the sharded module has set in place"};
  }
  if (const auto at = expected_.find(&accumulator); at != expected_.end()) {
    expected_.erase(at);
    --unit.expected;
  }
  if (unit.reached && unit.expected == 0 && unit.regions == 0) { end_gradients(home.unit()); }
}

void Passes::end_gradients(std::size_t index) {
  LiveUnit& unit = units_[index];
  if (unit.backward) { close(index); }
  // A unit that was used several times gets its gradients at once, after its last use in backward.
  while (unit.reached && unit.backwards < unit.forwards) {
    open(index);
    close(index);
  }
}

void Passes::parameters_changed() {
  for (ParameterHome& home : homes_) {
    if (home.trainable()) { home.tensor().unsafeGetTensorImpl()->bump_version(); }
  }
}

}  // namespace tessera::torch
