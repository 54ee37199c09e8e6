#include "c/objects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera::c {

void HeldViews::add(const std::string& name) {
  const std::lock_guard lock{mutex_};
  names_.insert(name);
}

void HeldViews::remove(const std::string& name) noexcept {
  const std::lock_guard lock{mutex_};
  names_.erase(names_.find(name));
}

std::string HeldViews::names() const {
  const std::lock_guard lock{mutex_};
  std::string text;
  for (const std::string& name : names_) {
    text += fmt::format("{}'{}'", text.empty() ? "" : ", ", name);
  }
  return text;
}

const Scope& OpenScope::any() const {
  if (const auto* const forward = std::get_if<ForwardScope>(&scope)) { return *forward; }
  return std::get<BackwardScope>(scope);
}

const BackwardScope& OpenScope::backward(Call call) const {
  const auto* const backward = std::get_if<BackwardScope>(&scope);
  if (backward == nullptr) {
    call.refuse("a forward scope has no gradients; open the unit with tessera_backward");
  }
  return *backward;
}

OpenModel::OpenModel(Rank& rank, const ModelOptions& options)
    : rank_{&rank}, sharded_{std::make_unique<ShardedModel>(rank.world(), options)} {}

namespace {

// A unit's number: its model's handle, which is unique, and its index from 1.
constexpr unsigned kPlaceBits = 24;

std::uint64_t model_part(const tessera_model* handle) noexcept {
  return std::uint64_t{reinterpret_cast<std::uintptr_t>(handle)} << kPlaceBits;
}

}  // namespace

tessera_unit OpenModel::number_of(Unit unit) const noexcept {
  return model_part(handle_) | (unit.index() + 1);
}

Unit OpenModel::unit_of(Call call, tessera_unit unit) const {
  const std::uint64_t place = unit & ((std::uint64_t{1} << kPlaceBits) - 1);
  if (unit == 0) {
    call.refuse("the unit is 0, which is invalid; pass what tessera_add_unit wrote");
  }
  if ((unit ^ place) != model_part(handle_) || place > sharded_->unit_count()) {
    call.refuse("the unit is of another model; pass what tessera_add_unit wrote for this one");
  }
  return sharded_->unit(place - 1);
}

tessera_scope* OpenModel::open(tessera_unit unit,
                               std::variant<ForwardScope, BackwardScope>&& scope) {
  const auto open = std::make_shared<OpenScope>(OpenScope{this, unit, std::move(scope)});
  tessera_scope* const handle = Handles::all().add(open);
  scopes_.emplace(handle, open);
  return handle;
}

void OpenModel::close(tessera_scope* handle, OpenScope& scope) {
  Handles::all().remove(handle);
  scopes_.erase(handle);  // the caller holds it
  std::visit([](Scope& either) { either.close(); }, scope.scope);
}

tessera_evaluation* OpenModel::begin_evaluation() {
  // Evaluations can be neither copied nor moved.
  std::shared_ptr<OpenEvaluation> open{new OpenEvaluation{this, sharded_->evaluate()}};
  evaluation_handle_ = Handles::all().add(open);
  evaluation_ = std::move(open);
  return evaluation_handle_;
}

void OpenModel::end_evaluation(Call call) {
  if (!scopes_.empty()) { call.refuse("a scope is open; close it before the evaluation ends"); }
  Handles::all().remove(evaluation_handle_);
  evaluation_.reset();
}

void OpenModel::require_nothing_open(Call call) const {
  if (!scopes_.empty()) {
    const OpenScope& open = *scopes_.begin()->second;
    call.refuse(fmt::format("a scope of unit '{}' is open; call tessera_close first",
                            sharded_->unit_name(unit_of(call, open.unit))));
  }
  if (evaluation_ != nullptr) {
    call.refuse("the model is being evaluated; call tessera_end_evaluation first");
  }
}

void OpenModel::end_all() noexcept {
  for (const auto& [handle, scope] : scopes_) { Handles::all().remove(handle); }
  scopes_.clear();
  if (evaluation_ != nullptr) { Handles::all().remove(evaluation_handle_); }
  evaluation_.reset();
}

Rank::~Rank() {
  end_all();
}

tessera_model* Rank::add_model(const ModelOptions& options) {
  auto model = std::make_shared<OpenModel>(*this, options);
  models_.reserve(models_.size() + 1);
  model->handle_ = Handles::all().add(model);
  models_.emplace_back(model->handle_, std::move(model));
  return models_.back().first;
}

void Rank::remove_model(tessera_model* handle) noexcept {
  Handles::all().remove(handle);
  std::erase_if(models_, [&](const auto& model) { return model.first == handle; });
}

tessera_registration* Rank::add_registration(CountedMemory memory) {
  const auto registration = std::make_shared<Registration>(Registration{this, std::move(memory)});
  tessera_registration* const handle = Handles::all().add(registration);
  registrations_.insert(handle);
  return handle;
}

void Rank::remove_registration(tessera_registration* handle) noexcept {
  Handles::all().remove(handle);
  registrations_.erase(handle);
}

void* Rank::add_buffer(Buffer buffer) {
  void* const address = buffer.data();
  if (address != nullptr) { buffers_.emplace(address, std::move(buffer)); }
  return address;
}

bool Rank::remove_buffer(void* address) noexcept {
  return buffers_.erase(address) == 1;
}

void Rank::require_nothing_open(Call call) const {
  for (const auto& [handle, model] : models_) { model->require_nothing_open(call); }
}

void Rank::end_all() noexcept {
  for (const auto& [handle, model] : models_) {
    model->end_all();
    Handles::all().remove(handle);
  }
  while (!models_.empty()) { models_.pop_back(); }
  while (!registrations_.empty()) { remove_registration(*registrations_.begin()); }
  buffers_.clear();
}

}  // namespace tessera::c
