#include "tessera/torch/recompute.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/base/shape.hpp"
#include "torch/intercept.hpp"
#include "torch/passes.hpp"
#include "torch/rank_random.hpp"
#include "torch/written_memory.hpp"

namespace tessera::torch {

namespace {

using Tensors = std::vector<at::Tensor>;

// States of the generators that operators of this thread draw from: the rank's, or libtorch's
// default ones of the CPU and of the current CUDA device.
class RandomState {
 public:
  RandomState() {
    for (at::Generator& generator : generators()) {
      const std::lock_guard lock{generator.mutex()};
      states_.push_back(generator.get_state());
    }
  }
  void restore() const {
    std::vector<at::Generator> all = generators();
    for (std::size_t i = 0; i < all.size() && i < states_.size(); ++i) {
      const std::lock_guard lock{all[i].mutex()};
      all[i].set_state(states_[i]);
    }
  }
  friend bool operator==(const RandomState& a, const RandomState& b) {
    return std::equal(a.states_.begin(), a.states_.end(), b.states_.begin(), b.states_.end(),
                      [](const at::Tensor& x, const at::Tensor& y) {
                        return x.nbytes() == y.nbytes() &&
                               std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
                      });
  }

 private:
  static std::vector<at::Generator> generators() {
    if (const RankRandom* const rank = RankRandom::current()) { return rank->all(); }
    std::vector<at::Generator> all{at::detail::getDefaultCPUGenerator()};
    if (c10::impl::hasDeviceGuardImpl(at::kCUDA)) {
      const c10::impl::DeviceGuardImplInterface* const cuda =
          c10::impl::getDeviceGuardImpl(at::kCUDA);
      if (cuda->deviceCount() > 0) {
        all.push_back(at::globalContext().defaultGenerator(cuda->getDevice()));
      }
    }
    return all;
  }

  Tensors states_;
};

// While one lives, this thread's passes are `passes`: autograd may run the second run on its own
// thread.
class CurrentPasses {
 public:
  explicit CurrentPasses(Passes* passes) : before_{Passes::make_current(passes)} {}
  ~CurrentPasses() { Passes::make_current(before_); }
  CurrentPasses(const CurrentPasses&) = delete;
  CurrentPasses& operator=(const CurrentPasses&) = delete;

 private:
  Passes* before_;
};

// A region of the current passes, if any; it ends as not kept unless `keep` was called.
class InRegion {
 public:
  explicit InRegion(Passes* passes) : passes_{passes} {
    if (passes_ != nullptr) { passes_->begin_region(); }
  }
  ~InRegion() {
    if (passes_ != nullptr) { static_cast<void>(passes_->end_region(false)); }
  }
  InRegion(const InRegion&) = delete;
  InRegion& operator=(const InRegion&) = delete;

  std::vector<std::size_t> keep() {
    Passes* const passes = std::exchange(passes_, nullptr);
    return passes != nullptr ? passes->end_region(true) : std::vector<std::size_t>{};
  }

 private:
  Passes* passes_;
};

struct Shaped {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype;
  explicit Shaped(const at::Tensor& tensor)
      : sizes{tensor.sizes().vec()}, dtype{tensor.scalar_type()} {}
  [[nodiscard]] std::string text() const {
    return Shape{sizes}.to_string() + " " + c10::toString(dtype);
  }
};

std::vector<Shaped> shaped(const Tensors& tensors) {
  std::vector<Shaped> all;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      throw ContractError{"a recomputed function returns tensor " + std::to_string(all.size()) +
                          " of " + std::to_string(tensors.size()) + " undefined"};
    }
    all.emplace_back(tensor);
  }
  return all;
}

// Undoes a change at the end of a scope. `undo` throws if that fails. After another exception,
// which is reported instead, the destructor undoes what it can.
template <class Undo>
class Undoing {
 public:
  explicit Undoing(Undo undo) : undo_{std::move(undo)} {}
  ~Undoing() {
    if (!pending_) { return; }
    try {
      undo_();
    } catch (...) {  // NOLINT(bugprone-empty-catch): an earlier error is on its way
    }
  }
  Undoing(const Undoing&) = delete;
  Undoing& operator=(const Undoing&) = delete;

  void undo() {
    pending_ = false;
    undo_();
  }

 private:
  Undo undo_;
  bool pending_ = true;
};

// The function that runs twice, and what the second run needs to know of the first.
struct Region : ::torch::CustomClassHolder {
  TensorFunction work;
  at::ThreadLocalState state;              // autograd's and autocast's modes of the thread
  std::optional<RandomState> random = {};  // set if the first run drew
  std::vector<Shaped> outputs = {};
  Passes* passes = nullptr;  // null if no unit was used
  std::weak_ptr<const bool> passes_alive = {};
  std::vector<std::size_t> units = {};
  WrittenMemory written = {};  // by the first run
  bool asks = false;           // whether a tensor that only requests a gradient follows the inputs

  Tensors run_first(const Tensors& given);
  /// `again` notes the memory that this run writes.
  Tensors run_again(const Tensors& given, WrittenMemory& again);
  void require_same(const Tensors& again) const;
};

std::vector<std::uint32_t> versions(const Tensors& tensors) {
  std::vector<std::uint32_t> all;
  for (const at::Tensor& tensor : tensors) {
    all.push_back(tensor.is_inference() ? 0U : static_cast<std::uint32_t>(tensor._version()));
  }
  return all;
}

Tensors Region::run_first(const Tensors& given) {
  Passes* const current = Passes::current();
  const std::vector<std::uint32_t> before = versions(given);
  InRegion region{current};
  Tensors result;
  std::optional<NotedWrites> noted{std::in_place, written};
  RandomState drawn_from;
  result = work(given);
  if (!(RandomState{} == drawn_from)) { random.emplace(std::move(drawn_from)); }
  noted.reset();
  written.forget_unshared();
  outputs = shaped(result);
  const std::vector<std::uint32_t> after = versions(given);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (after[i] != before[i]) {
      throw ContractError{"a recomputed function writes to its input " + std::to_string(i) +
                          ", which it reads again in the backward pass; make it work on a copy"};
    }
  }
  units = region.keep();
  if (!units.empty()) {
    passes = current;
    passes_alive = current->alive();
  }
  return result;
}

Tensors Region::run_again(const Tensors& given, WrittenMemory& again) {
  if (passes != nullptr && passes_alive.expired()) {
    throw ContractError{
        "a backward pass reaches a recomputed function whose sharded module has "
        "ended"};
  }
  const at::ThreadLocalStateGuard as_in_the_first_run{state};
  const CurrentPasses current{passes != nullptr ? passes : Passes::current()};
  const NotedWrites noted{again};
  if (!random) { return work(given); }
  const RandomState now;
  Undoing drawn_from{[&] { now.restore(); }};
  random->restore();
  Tensors result = work(given);
  drawn_from.undo();
  return result;
}

void Region::require_same(const Tensors& again) const {
  const std::vector<Shaped> second = shaped(again);
  const auto text = [](const std::vector<Shaped>& all) {
    std::string joined;
    for (const Shaped& one : all) { joined += (joined.empty() ? "" : ", ") + one.text(); }
    return joined.empty() ? std::string{"nothing"} : joined;
  };
  if (text(second) != text(outputs)) {
    throw ContractError{"a recomputed function returns " + text(second) +
                        " in the backward pass, but returned " + text(outputs) +
                        " before; make it return the same both times"};
  }
}

class Recomputed : public ::torch::autograd::Function<Recomputed> {
 public:
  static Tensors forward(::torch::autograd::AutogradContext* context,
                         const c10::intrusive_ptr<Region>& region, at::TensorList tensors) {
    const Tensors inputs{tensors.begin(), tensors.end() - (region->asks ? 1 : 0)};
    Tensors outputs = region->run_first(inputs);
    context->saved_data["region"] = c10::IValue::make_capsule(region);
    context->save_for_backward(inputs);
    context->set_materialize_grads(false);
    return outputs;
  }

  static Tensors backward(::torch::autograd::AutogradContext* context, const Tensors& gradients) {
    if (at::GradMode::is_enabled()) {
      throw ContractError{
          "the gradient of a recomputed function has no gradient of its own (create_graph)"};
    }
    if (!::torch::autograd::Engine::get_default_engine().is_checkpoint_valid()) {
      throw ContractError{
          "a recomputed function needs a whole backward pass: use loss.backward(), not "
          "autograd::grad or a backward for some inputs only"};
    }
    const auto capsule = context->saved_data["region"].toCapsule();
    Region& region = static_cast<Region&>(*capsule);
    Tensors inputs;
    for (const at::Tensor& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach().set_requires_grad(saved.requires_grad()));
    }
    // The second run reads what the first did, and the gradients read what the second left.
    // Afterwards the memory is as before: written once.
    WrittenMemory again;
    Undoing written_again{[&] { again.restore(); }};
    again.rewind_to(region.written);
    const Tensors outputs = region.run_again(inputs, again);
    region.require_same(outputs);
    Tensors roots;
    Tensors root_gradients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) { continue; }
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
    if (region.passes != nullptr) { region.passes->run_again(region.units, roots); }
    if (!roots.empty()) { ::torch::autograd::backward(roots, root_gradients); }
    written_again.undo();
    // For the region itself, each input, and the tensor that only requests a gradient.
    Tensors result{at::Tensor{}};
    for (const at::Tensor& input : inputs) { result.push_back(input.grad()); }
    if (region.asks) { result.emplace_back(); }
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> recompute(TensorFunction work, const std::vector<at::Tensor>& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      throw ContractError{"input " + std::to_string(i) + " of a recomputed function is undefined"};
    }
  }
  if (!at::GradMode::is_enabled()) { return work(inputs); }
  auto region = c10::make_intrusive<Region>();
  region->work = std::move(work);
  Tensors tensors = inputs;
  if (std::none_of(inputs.begin(), inputs.end(),
                   [](const at::Tensor& input) { return input.requires_grad(); })) {
    region->asks = true;
    tensors.push_back(at::empty({0}).set_requires_grad(true));
  }
  return Recomputed::apply(region, at::TensorList{tensors});
}

}  // namespace tessera::torch
